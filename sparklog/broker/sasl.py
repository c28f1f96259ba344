"""Who a connection's client is, shown by SASL: what it may send when, and when it must show it again.

    HANDSHAKE      ApiVersions, SaslHandshake      a handshake with a mechanism that is enabled ─▶ AUTHENTICATE
    AUTHENTICATE   SaslAuthenticate                the exchange is complete ─▶ COMPLETE; it fails ─▶ FAILED
    COMPLETE       everything                      SaslHandshake ─▶ AUTHENTICATE, to show it again (KIP-368)
    FAILED         nothing

What is not allowed ends the connection, before its body is read. With `connections.max.reauth.ms` a client that has
not shown again in time who it is may send nothing but SaslHandshake. It must do so by the same mechanism and be the
same user. Until it is COMPLETE for the first time, everything a client sends is from a stranger.

Differs from Apache Kafka: ApiVersions may be sent more than once before the handshake; a request out of turn between
SaslAuthenticates is not answered with ILLEGAL_SASL_STATE before the connection ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple, Protocol

from sparklog.base.clock import Clock
from sparklog.base.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism

logger = logging.getLogger(__name__)

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36


class Exchange(Protocol):
    """One mechanism's messages with one client, until `user` is known."""

    user: str | None
    """Who the client has shown to be; None: not yet."""
    claimed: str | None
    """Who it says it is."""

    def step(self, token: bytes) -> bytes:
        """The answer to the client's next message; may block.

        Raises SaslAuthenticationFailed, with a message for the client that does not say what it could learn from.
        """
        ...


class State(Enum):
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    COMPLETE = auto()
    FAILED = auto()


_ALLOWED = {
    State.HANDSHAKE: {API_VERSIONS, SASL_HANDSHAKE},
    State.AUTHENTICATE: {SASL_AUTHENTICATE},
    State.FAILED: set[int](),
}


class Authenticated(NamedTuple):
    """The answer to a client's message."""

    token: bytes
    session_lifetime_ms: int
    """How long the client may go on before it must show again who it is; 0: for ever, or not complete yet."""


class Authentication:
    """One connection's state. Used on one event loop, by one request after the other."""

    def __init__(
        self, mechanisms: Mapping[str, Callable[[], Exchange]], clock: Clock, max_reauth_ms: int, host: str = ""
    ) -> None:
        """`host`: the client's, to be named where it fails."""
        self._host = host
        self.mechanisms = mechanisms
        self.user: str | None = None
        self.state = State.HANDSHAKE
        self._clock = clock
        self._max_reauth_ms = max_reauth_ms
        self._expires_ms: int | None = None
        self._mechanism = ""
        self._exchange: Exchange | None = None

    @property
    def is_complete(self) -> bool:
        return self.state is State.COMPLETE

    def admit(self, api_key: int) -> None:
        """Raises IllegalSaslState or SaslAuthenticationFailed where the client may not send this now."""
        if self.state is not State.COMPLETE:
            if api_key not in _ALLOWED[self.state]:
                raise IllegalSaslState(f"API {api_key} is not served in state {self.state.name} of SASL")
        elif self._is_expired() and api_key != SASL_HANDSHAKE:
            raise SaslAuthenticationFailed(f"{self.user} has not shown again who it is in time")

    def handshake(self, mechanism: str) -> None:
        """Begin an exchange; raises UnsupportedSaslMechanism, or IllegalSaslState for another than the first time."""
        begin = self.mechanisms.get(mechanism)
        if begin is None:
            self.state = State.FAILED
            raise UnsupportedSaslMechanism(f"SASL mechanism {mechanism!r} is not enabled")
        if self.user is not None and mechanism != self._mechanism:
            self.state = State.FAILED
            raise IllegalSaslState(f"{self.user} came by {self._mechanism} and cannot go on by {mechanism}")
        self._mechanism, self._exchange, self.state = mechanism, begin(), State.AUTHENTICATE

    async def authenticate(self, token: bytes) -> Authenticated:
        """The next message of the exchange; raises SaslAuthenticationFailed, or IllegalSaslState without one."""
        exchange = self._exchange
        if exchange is None:
            raise IllegalSaslState("SaslAuthenticate without SaslHandshake before it")
        try:
            answer = await asyncio.to_thread(exchange.step, token)
            if self.user not in (None, exchange.user) and exchange.user is not None:
                raise SaslAuthenticationFailed("Cannot change principals during re-authentication")
        except BaseException as error:
            self.state, self._exchange = State.FAILED, None
            if isinstance(error, SaslAuthenticationFailed):
                logger.warning("%s: user %r could not log in by %s", self._host, exchange.claimed, self._mechanism)
            raise
        if exchange.user is None:
            return Authenticated(answer, 0)
        self.user, self._exchange, self.state = exchange.user, None, State.COMPLETE
        if self._max_reauth_ms:
            self._expires_ms = self._clock.monotonic_ms() + self._max_reauth_ms
        return Authenticated(answer, self._max_reauth_ms)

    def _is_expired(self) -> bool:
        return self._expires_ms is not None and self._clock.monotonic_ms() >= self._expires_ms
