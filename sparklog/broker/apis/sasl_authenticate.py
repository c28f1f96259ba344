"""SaslAuthenticate: exchange a message of the SASL mechanism that SaslHandshake chose (key 36).

- A failure gives no details. It is sent after `connection.failed.authentication.delay.ms` and ends the connection.
- With `connections.max.reauth.ms`, the last answer says how long the session lasts (KIP-368).
- ILLEGAL_SASL_STATE on a listener without SASL, or if no exchange is under way.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import IllegalSaslState, SaslAuthenticationFailed
from sparklog.broker.api import Api
from sparklog.broker.sasl import Authenticated, Authentication


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateRequest:
    authentication: Authentication | None
    """The connection's authentication; None: its listener has no SASL."""
    token: bytes = field(repr=False)


async def handle(request: SaslAuthenticateRequest, *, config: BrokerConfig) -> Authenticated:
    if request.authentication is None:
        raise IllegalSaslState("this listener has no SASL")
    try:
        return await request.authentication.authenticate(request.token)
    except SaslAuthenticationFailed:
        # Slows down password guessing; the connection reads nothing meanwhile.
        await asyncio.sleep(config.connection_failed_authentication_delay_ms / 1000)
        raise


API = Api(name="SaslAuthenticate", handle=handle, key=36, versions=(0, 2))
