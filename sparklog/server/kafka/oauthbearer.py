r"""OAUTHBEARER (RFC 7628, KIP-255) in Kafka's protocol: the client's first message has a token.

    n,a=USER,\x01auth=Bearer TOKEN\x01KEY=VALUE\x01\x01       a=USER and extensions may be missing

A valid token ends the exchange with an empty answer. After an invalid one the answer is JSON, the client sends \x01,
and the exchange fails, as in RFC 7628 and in Apache Kafka (OAuthBearerSaslServer). Extensions are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.base.errors import SaslAuthenticationFailed
from sparklog.broker.sasl import FindCredentials

if TYPE_CHECKING:
    from sparklog.server.tokens import TokenVerifier

INVALID_TOKEN = '{"status":"invalid_token"}'
_SEPARATOR = "\x01"


class OAuthBearerExchange:
    """The exchange of one client message, or of two if the token is invalid. Implements SaslExchange."""

    def __init__(self, tokens: TokenVerifier) -> None:
        self.user: str | None = None
        self.claimed: str | None = None
        self.expires_ms: int | None = None
        self._tokens = tokens
        self._is_refused = False

    async def step(self, token: bytes, credentials: FindCredentials) -> bytes:
        if self._is_refused:
            raise SaslAuthenticationFailed(INVALID_TOKEN)
        self.claimed, bearer = _parse(token)
        try:
            verified = await self._tokens.verify(bearer)
        except SaslAuthenticationFailed:
            self._is_refused = True
            return INVALID_TOKEN.encode()
        if self.claimed not in (None, verified.user):
            raise SaslAuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
        self.user, self.expires_ms = verified.user, verified.expires_ms
        return b""


def _parse(message: bytes) -> tuple[str | None, str]:
    """Return the authorization user, or None, and the token. Raises SaslAuthenticationFailed."""
    wrong = SaslAuthenticationFailed("Invalid OAUTHBEARER client first message")
    try:
        head, *pairs, last, end = message.decode().split(_SEPARATOR)
        flag, acting_as, rest = head.split(",")
    except ValueError:  # includes UnicodeDecodeError
        raise wrong from None
    found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    scheme, _, token = found.get("auth", "").partition(" ")
    is_right = (flag, rest, last, end) == ("n", "", "", "") and all("=" in pair for pair in pairs)
    if not (is_right and scheme.lower() == "bearer" and token and acting_as[:2] in ("", "a=")):
        raise wrong
    user = acting_as[2:].replace("=2C", ",").replace("=3D", "=")
    return user or None, token.strip(" ")
