"""SASL authentication of a connection: what the client may send in each state, and when it must re-authenticate.

    HANDSHAKE      ApiVersions, SaslHandshake      a handshake with a mechanism that is enabled ─▶ AUTHENTICATE
    AUTHENTICATE   SaslAuthenticate                the exchange is complete ─▶ COMPLETE; it fails ─▶ FAILED
    COMPLETE       everything                      SaslHandshake ─▶ AUTHENTICATE, to re-authenticate (KIP-368)
    FAILED         nothing

A request that is not allowed ends the connection before its body is read. A session lasts until
`connections.max.reauth.ms` have passed, or the client's token expires. A client that has not re-authenticated in time
may send nothing but SaslHandshake. It must use the same mechanism and be the same user. Until the state is COMPLETE for
the first time, the client is anonymous.

Differs from Apache Kafka: ApiVersions may be sent more than once before the handshake; a request out of turn between
two SaslAuthenticate requests ends the connection without an ILLEGAL_SASL_STATE answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple, Protocol

from sparklog.base.clock import Clock
from sparklog.base.config_keys import DAY_MS
from sparklog.base.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from sparklog.cluster.users import ScramCredential, ScramMechanism

logger = logging.getLogger(__name__)

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
MAX_LIFETIME_MS = 365 * DAY_MS
"""A longer lifetime overflows in Java clients, which count in nanoseconds."""
FindCredentials = Callable[[str], Mapping[ScramMechanism, ScramCredential]]


class SaslExchange(Protocol):
    """One mechanism's message exchange with one client; it is complete once `user` is set."""

    user: str | None
    """The authenticated user; None: not authenticated yet."""
    claimed: str | None
    """The user that the client claims to be, if it has named one."""
    expires_ms: int | None
    """When the client's credential expires, in ms since the Unix epoch; None: never."""

    async def step(self, token: bytes, credentials: FindCredentials) -> bytes:
        """Return the answer to the client's next message.

        credentials: returns the SCRAM credentials of a user, none for an unknown one; blocks.

        Raises SaslAuthenticationFailed, with a message for the client that reveals nothing about the cause.
        """
        ...


class SaslState(Enum):
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    COMPLETE = auto()
    FAILED = auto()


_ALLOWED = {
    SaslState.HANDSHAKE: {API_VERSIONS, SASL_HANDSHAKE},
    SaslState.AUTHENTICATE: {SASL_AUTHENTICATE},
    SaslState.FAILED: set[int](),
}


class SaslResponse(NamedTuple):
    """The answer to a client's message."""

    token: bytes
    session_lifetime_ms: int
    """Time until the client must re-authenticate; 0: no limit, or the exchange is not complete yet."""


class Authentication:
    """The authentication state of one connection. Used on one event loop, by one request at a time."""

    def __init__(
        self, mechanisms: Mapping[str, Callable[[], SaslExchange]], clock: Clock, max_reauth_ms: int, host: str = ""
    ) -> None:
        """`host`: the client's host, for the log if authentication fails."""
        self._host = host
        self.mechanisms = mechanisms
        self.user: str | None = None
        self.state = SaslState.HANDSHAKE
        self._clock = clock
        self._max_reauth_ms = max_reauth_ms
        self._expires_ms: int | None = None
        self._mechanism = ""
        self._exchange: SaslExchange | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the last exchange has authenticated the client; True even when its session has expired."""
        return self.state is SaslState.COMPLETE

    def admit(self, api_key: int) -> None:
        """Raises IllegalSaslState or SaslAuthenticationFailed if the client may not send this API's request now."""
        if self.state is not SaslState.COMPLETE:
            if api_key not in _ALLOWED[self.state]:
                raise IllegalSaslState(f"API {api_key} is not served in state {self.state.name} of SASL")
        elif self._is_expired() and api_key != SASL_HANDSHAKE:
            raise SaslAuthenticationFailed(f"{self.user} has not shown again who it is in time")

    def handshake(self, mechanism: str) -> None:
        """Begin an exchange.

        Raises UnsupportedSaslMechanism, or IllegalSaslState if the client re-authenticates by another mechanism.
        """
        begin = self.mechanisms.get(mechanism)
        if begin is None:
            self.state = SaslState.FAILED
            raise UnsupportedSaslMechanism(f"SASL mechanism {mechanism!r} is not enabled")
        if self.user is not None and mechanism != self._mechanism:
            self.state = SaslState.FAILED
            raise IllegalSaslState(f"{self.user} came by {self._mechanism} and cannot go on by {mechanism}")
        self._mechanism, self._exchange, self.state = mechanism, begin(), SaslState.AUTHENTICATE

    async def authenticate(self, token: bytes, credentials: FindCredentials) -> SaslResponse:
        """Handle the next message of the exchange and return the answer. credentials: see `SaslExchange.step`.

        Raises SaslAuthenticationFailed, or IllegalSaslState if no exchange is under way.
        """
        exchange = self._exchange
        if exchange is None:
            raise IllegalSaslState("SaslAuthenticate without SaslHandshake before it")
        try:
            answer = await exchange.step(token, credentials)
            if self.user not in (None, exchange.user) and exchange.user is not None:
                raise SaslAuthenticationFailed("Cannot change principals during re-authentication")
        except BaseException as error:
            self.state, self._exchange = SaslState.FAILED, None
            if isinstance(error, SaslAuthenticationFailed):
                who = "a client" if exchange.claimed is None else f"user {exchange.claimed!r}"
                logger.warning("%s: %s could not log in by %s", self._host, who, self._mechanism)
            raise
        if exchange.user is None:
            return SaslResponse(answer, 0)
        self.user, self._exchange, self.state = exchange.user, None, SaslState.COMPLETE
        lifetime_ms = self._lifetime_ms(exchange)
        self._expires_ms = self._clock.monotonic_ms() + lifetime_ms if lifetime_ms else None
        return SaslResponse(answer, lifetime_ms)

    def _lifetime_ms(self, exchange: SaslExchange) -> int:
        """Return how long the session lasts; 0: without a limit. A token never gives less than 1 ms."""
        if exchange.expires_ms is None:
            return self._max_reauth_ms
        left_ms = min(max(exchange.expires_ms - self._clock.time_ms(), 1), MAX_LIFETIME_MS)
        return min(left_ms, self._max_reauth_ms or left_ms)

    def _is_expired(self) -> bool:
        return self._expires_ms is not None and self._clock.monotonic_ms() >= self._expires_ms
