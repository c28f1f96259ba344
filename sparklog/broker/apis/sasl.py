"""The APIs of SASL: the client chooses a mechanism, then exchanges messages with the broker until it is authenticated.

Both get ILLEGAL_SASL_STATE on a listener without SASL. `broker/sasl.py` says what is served before and after.

SaslHandshake (key 17):

- The answer lists the enabled mechanisms. Any other gets UNSUPPORTED_SASL_MECHANISM, and the connection ends.
- Version 1 is followed by SaslAuthenticate. After version 0 the client's tokens are sent bare, each behind its length.

SaslAuthenticate (key 36):

- A failure gives no details. It is sent after `connection.failed.authentication.delay.ms` and ends the connection.
- With `connections.max.reauth.ms`, the last answer says how long the session lasts (KIP-368).
- ILLEGAL_SASL_STATE if no exchange is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import IllegalSaslState, SaslAuthenticationFailed
from sparklog.broker.api import Api, Operation
from sparklog.broker.sasl import Authentication, SaslResponse
from sparklog.cluster.users import ScramCredential, ScramMechanism, UserStore


class SaslHandshakeRequest(Struct, frozen=True, kw_only=True):
    authentication: Authentication | None
    """The connection's authentication; None: its listener has no SASL."""
    mechanism: str


class SaslHandshakeResponse(Struct, frozen=True, kw_only=True):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateRequest:
    authentication: Authentication | None
    """The connection's authentication; None: its listener has no SASL."""
    token: bytes = field(repr=False)


async def choose_mechanism(request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Begin an exchange. Raises UnsupportedSaslMechanism or IllegalSaslState."""
    _check_listener(request.authentication).handshake(request.mechanism)
    return SaslHandshakeResponse()


async def authenticate(request: SaslAuthenticateRequest, *, config: BrokerConfig, users: UserStore) -> SaslResponse:
    """Return the answer to a token. Raises IllegalSaslState, or SaslAuthenticationFailed after a delay."""
    authentication = _check_listener(request.authentication)
    try:
        return await authentication.authenticate(request.token, users.credentials)
    except SaslAuthenticationFailed:
        # Slows down password guessing; the connection reads nothing meanwhile.
        await asyncio.sleep(config.connection_failed_authentication_delay_ms / 1000)
        raise


async def find_credentials(user: str, *, users: UserStore) -> Mapping[ScramMechanism, ScramCredential]:
    """Return the SCRAM credentials of a user, none for an unknown one."""
    return await asyncio.to_thread(users.credentials, user)


def _check_listener(authentication: Authentication | None) -> Authentication:
    """Return the connection's authentication. Raises IllegalSaslState if its listener has no SASL."""
    if authentication is None:
        raise IllegalSaslState("this listener has no SASL")
    return authentication


FIND_CREDENTIALS = Operation(handle=find_credentials, rights=())
SASL_HANDSHAKE = Api(
    name="SaslHandshake",
    summary="choose the SASL mechanism that authenticates the client",
    handle=choose_mechanism,
    rights=(),
    key=17,
    versions=(0, 1),
)
SASL_AUTHENTICATE = Api(
    name="SaslAuthenticate",
    summary="exchange a message of the SASL mechanism that SaslHandshake chose",
    handle=authenticate,
    rights=(),
    key=36,
    versions=(0, 2),
)
