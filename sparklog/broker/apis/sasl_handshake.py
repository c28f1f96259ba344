"""SaslHandshake: choose the SASL mechanism that authenticates the client (key 17).

- The answer lists the enabled mechanisms. Any other gets UNSUPPORTED_SASL_MECHANISM, and the connection ends.
- ILLEGAL_SASL_STATE on a listener without SASL. `broker/sasl.py` says what is served before and after.
- Version 1 is followed by SaslAuthenticate. After version 0 the client's tokens are sent bare, each behind its length.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.base.errors import IllegalSaslState
from sparklog.broker.api import Api
from sparklog.broker.sasl import Authentication


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeRequest:
    authentication: Authentication | None
    """The connection's authentication; None: its listener has no SASL."""
    mechanism: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeResponse:
    pass


async def handle(request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    if request.authentication is None:
        raise IllegalSaslState("this listener has no SASL")
    request.authentication.handshake(request.mechanism)
    return SaslHandshakeResponse()


API = Api(name="SaslHandshake", handle=handle, key=17, versions=(0, 1))
