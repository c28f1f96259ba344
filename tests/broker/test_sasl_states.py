"""Requests that a client may send before, during and after its authentication."""

from __future__ import annotations

import pytest

from sparklog.base.errors import IllegalSaslState, KafkaError, SaslAuthenticationFailed, UnsupportedSaslMechanism
from sparklog.broker.sasl import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Authentication, FindCredentials
from sparklog.cluster.users import ScramCredential, ScramMechanism
from sparklog.testing.sim.clock import SimClock

PRODUCE, METADATA = 0, 3
EVERYTHING = {PRODUCE, METADATA, API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE}


class Nickname:
    """A mechanism of two messages: a greeting, then a name. Only alice and bob are accepted."""

    def __init__(self) -> None:
        self.user: str | None = None
        self.claimed: str | None = None
        self.expires_ms: int | None = None
        self._greeted = False

    async def step(self, token: bytes, credentials: FindCredentials) -> bytes:
        if not self._greeted:
            self._greeted = True
            return b"who?"
        if token not in (b"alice", b"bob"):
            raise SaslAuthenticationFailed("no")
        self.user = token.decode()
        return b""


def nobody(_: str) -> dict[ScramMechanism, ScramCredential]:
    return {}


def begin(*, max_reauth_ms: int = 0) -> tuple[Authentication, SimClock]:
    clock = SimClock()
    return Authentication({"NICKNAME": Nickname, "OTHER": Nickname}, clock, max_reauth_ms), clock


def allowed(authentication: Authentication) -> set[int]:
    def is_allowed(key: int) -> bool:
        try:
            authentication.admit(key)
        except KafkaError:
            return False
        return True

    return {key for key in EVERYTHING if is_allowed(key)}


async def log_in(authentication: Authentication, name: bytes) -> int:
    """Lifetime of the session."""
    authentication.handshake("NICKNAME")
    await authentication.authenticate(b"hello", nobody)
    return (await authentication.authenticate(name, nobody)).session_lifetime_ms


async def test_an_unauthenticated_client_may_only_authenticate() -> None:
    authentication, _ = begin()
    assert allowed(authentication) == {API_VERSIONS, SASL_HANDSHAKE}

    authentication.handshake("NICKNAME")
    assert allowed(authentication) == {SASL_AUTHENTICATE}
    assert (await authentication.authenticate(b"hello", nobody)).token == b"who?"
    assert (allowed(authentication), authentication.user) == ({SASL_AUTHENTICATE}, None)

    await authentication.authenticate(b"alice", nobody)
    assert (allowed(authentication), authentication.user) == (EVERYTHING, "alice")


async def test_after_a_failure_nothing_is_served_any_more() -> None:
    authentication, _ = begin()

    with pytest.raises(SaslAuthenticationFailed):
        await log_in(authentication, b"mallory")

    assert (allowed(authentication), authentication.user) == (set(), None)
    with pytest.raises(IllegalSaslState):
        await authentication.authenticate(b"alice", nobody)


async def test_an_unknown_mechanism_ends_it() -> None:
    authentication, _ = begin()

    with pytest.raises(UnsupportedSaslMechanism):
        authentication.handshake("GSSAPI")

    assert allowed(authentication) == set()


async def test_a_session_that_has_run_out_may_only_be_renewed() -> None:
    authentication, clock = begin(max_reauth_ms=1_000)
    assert await log_in(authentication, b"alice") == 1_000

    clock.advance(999)
    assert allowed(authentication) == EVERYTHING
    clock.advance(1)
    assert allowed(authentication) == {SASL_HANDSHAKE}

    await log_in(authentication, b"alice")
    assert allowed(authentication) == EVERYTHING


async def test_reauthentication_cannot_change_the_user() -> None:
    authentication, _ = begin()
    await log_in(authentication, b"alice")

    with pytest.raises(SaslAuthenticationFailed):
        await log_in(authentication, b"bob")

    assert (allowed(authentication), authentication.user) == (set(), "alice")


async def test_the_mechanism_stays_the_same() -> None:
    authentication, _ = begin()
    await log_in(authentication, b"alice")

    with pytest.raises(IllegalSaslState):
        authentication.handshake("OTHER")

    assert allowed(authentication) == set()
