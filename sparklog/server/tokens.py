"""Verification of OAUTHBEARER tokens: JSON Web Tokens (RFC 7519), as in Apache Kafka (BrokerJwtValidator).

A token needs a signature of a key in the JSON Web Key Set, the claims `exp` and `iat`, and a user in
`sasl.oauthbearer.sub.claim.name`. `iss` must be `sasl.oauthbearer.expected.issuer` if that is set. `aud` must contain
one of `sasl.oauthbearer.expected.audience`; without this key, a token with an audience is refused.

Different from Apache Kafka: an expired token is refused at once. There, a token that expired within the clock skew
begins a session that ends with the next request.

A verified token is cached until it expires, for at most REMEMBERED_S, because each gRPC call brings one. Log and errors
never contain a token, or parts of an unverified one.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import secrets
from typing import Any, NamedTuple

import jwt

from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import SaslAuthenticationFailed
from sparklog.server.json_web_keys import JsonWebKeys

MAX_BYTES = 64 << 10
REMEMBERED_S = 60
MAX_REMEMBERED = 10_000
FEW = 4
"""Maximum number of concurrent verifications."""
_ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "ES256K", "EdDSA"}
)
logger = logging.getLogger(__name__)


class VerifiedToken(NamedTuple):
    """User and expiry of a verified token."""

    user: str
    expires_ms: int
    """Expiry, since the Unix epoch."""


class TokenVerifier:
    """The tokens that one broker accepts. Used on one event loop."""

    def __init__(self, config: BrokerConfig, clock: Clock, keys: JsonWebKeys) -> None:
        self.keys = keys
        self._clock = clock
        self._user_claim = config.sasl_oauthbearer_sub_claim_name
        self._issuer = config.sasl_oauthbearer_expected_issuer or None
        self._audience = config.sasl_oauthbearer_expected_audience or None
        self._skew_s = config.sasl_oauthbearer_clock_skew_seconds
        self._few = asyncio.Semaphore(FEW)
        self._secret = secrets.token_bytes(32)
        self._known: dict[bytes, tuple[VerifiedToken, int]] = {}
        """Verified tokens, hashed with the secret, and the end of their time in this cache."""

    async def verify(self, token: str) -> VerifiedToken:
        """Return the token's user and expiry. Raises SaslAuthenticationFailed, without the cause."""
        known = hmac.digest(self._secret, token.encode(errors="replace"), "sha256")
        if (found := self._known.get(known)) and self._clock.time_ms() < found[1]:
            return found[0]
        try:
            verified = await self._verify_uncached(token)
        except jwt.PyJWTError as error:
            self._known.pop(known, None)
            logger.warning("a token is refused: %s", error)
            raise SaslAuthenticationFailed("Authentication failed: the token is invalid or has expired") from None
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        until_ms = min(verified.expires_ms, self._clock.time_ms() + REMEMBERED_S * 1000)
        self._known[known] = verified, until_ms
        return verified

    async def _verify_uncached(self, token: str) -> VerifiedToken:
        """Verify a token that is not cached. Raises PyJWTError."""
        if len(token) > MAX_BYTES or not token.isascii():
            raise jwt.DecodeError(f"it is no text of up to {MAX_BYTES} bytes in ASCII")
        async with self._few:
            key_id, algorithm = await asyncio.to_thread(_header, token)
        keys = await self.keys.find(key_id, algorithm)
        if not keys:
            raise jwt.InvalidKeyError("the JSON Web Key Set has no key for it")
        async with self._few:
            return self._check_claims(
                await asyncio.to_thread(self._decode, token, [each.key for each in keys], algorithm)
            )

    def _decode(self, token: str, keys: list[Any], algorithm: str) -> dict[str, Any]:
        """Return the claims of a token that one of the keys has signed. Raises PyJWTError for another token."""
        failure: jwt.PyJWTError = jwt.InvalidSignatureError("Signature verification failed")
        for key in keys:
            try:
                claims: dict[str, Any] = jwt.decode(
                    token,
                    key,
                    algorithms=[algorithm],
                    issuer=self._issuer,
                    audience=self._audience,
                    options={
                        "require": ["exp", "iat", self._user_claim],
                        "verify_exp": False, "verify_iat": False, "verify_nbf": False,  # `_check_claims` has a clock
                        "verify_sub": False, "verify_jti": False,
                    },
                )  # fmt: skip
                return claims
            except jwt.InvalidSignatureError as error:
                failure = error
            except (ValueError, TypeError, RecursionError):
                raise jwt.DecodeError("it cannot be decoded") from None
        raise failure

    def _check_claims(self, claims: dict[str, Any]) -> VerifiedToken:
        """Return user and expiry. Raises PyJWTError if the claims are not valid now."""
        now_s = self._clock.time_ms() / 1000
        if _time_claim(claims, "exp") <= now_s:
            raise jwt.ExpiredSignatureError("it has expired")
        if max(_time_claim(claims, "iat"), _time_claim(claims, "nbf", 0.0)) > now_s + self._skew_s:
            raise jwt.ImmatureSignatureError("it is not valid yet")
        user = claims[self._user_claim]
        if not (isinstance(user, str) and user.strip()):
            raise jwt.InvalidTokenError(f"the claim {self._user_claim} is no name")
        return VerifiedToken(user, int(_time_claim(claims, "exp") * 1000))


def _header(token: str) -> tuple[str | None, str]:
    """Return key id and algorithm of a token's header. Raises PyJWTError."""
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:  # not raised: its text may repeat the token
        raise jwt.DecodeError("it is no JSON Web Token") from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not (isinstance(algorithm, str) and algorithm in _ALGORITHMS):
        raise jwt.InvalidAlgorithmError("its algorithm is not one of " + ", ".join(sorted(_ALGORITHMS)))
    return key_id, algorithm


def _time_claim(claims: dict[str, Any], name: str, default: float | None = None) -> float:
    """Return the claim as a time since the Unix epoch. Raises PyJWTError if it is none."""
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12 or math.isnan(value):
        raise jwt.InvalidTokenError(f"the claim {name} is no time")
    return float(value)
