"""SaslAuthenticate: a message of the SASL exchange that SaslHandshake began (key 36).

- A failure says no more than that it failed, `connection.failed.authentication.delay.ms` later, and ends the
  connection.
- Where `connections.max.reauth.ms` is set, the last answer says how long the session lasts (KIP-368).
- On a listener without SASL, or where no exchange is under way: ILLEGAL_SASL_STATE.
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
    """The connection's; None: its listener has no SASL."""
    token: bytes = field(repr=False)


async def handle(request: SaslAuthenticateRequest, *, config: BrokerConfig) -> Authenticated:
    if request.authentication is None:
        raise IllegalSaslState("this listener has no SASL")
    try:
        return await request.authentication.authenticate(request.token)
    except SaslAuthenticationFailed:
        # Who guesses passwords waits for each answer; the connection reads nothing meanwhile.
        await asyncio.sleep(config.connection_failed_authentication_delay_ms / 1000)
        raise


API = Api(name="SaslAuthenticate", handle=handle, key=36, versions=(0, 2))
