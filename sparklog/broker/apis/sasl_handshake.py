"""SaslHandshake: choose the SASL mechanism by which the client will show who it is (key 17).

- The answer names the mechanisms that are enabled; one that is not is refused with UNSUPPORTED_SASL_MECHANISM, and the
  connection ends.
- On a listener without SASL: ILLEGAL_SASL_STATE. What is served before and after: `broker/sasl.py`.
- Version 1 is followed by SaslAuthenticate; after version 0 the client's messages come bare, each behind its length.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.base.errors import IllegalSaslState
from sparklog.broker.api import Api
from sparklog.broker.sasl import Authentication


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeRequest:
    authentication: Authentication | None
    """The connection's; None: its listener has no SASL."""
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
