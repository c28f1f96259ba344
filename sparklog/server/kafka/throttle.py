"""Client quotas on a connection: the cost of the present request, and the throttle time after it (KIP-219).

A request is answered first, with the throttle time; then nothing more is read from the connection for that time.

    Produce         costs its bytes, on arrival
    Fetch           costs the bytes of its response, which has at most the quota of one second
    every request   costs the time of its work without waits for others: the time until the answer is complete, then
                    the rest when the answer is sent
    CreateTopics, CreatePartitions, DeleteTopics    cost the partitions that they create or delete

SASL requests cost nothing, because the client is not known before their end.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from sparklog.broker.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from sparklog.security.acls import user_of
from sparklog.security.quotas import ClientBuckets, ClientQuotas, TokenBucket, whole_ms

PRODUCE, FETCH = 0, 1
_FREE = (SASL_HANDSHAKE, SASL_AUTHENTICATE)


class ConnectionThrottle:
    """The quotas of one connection. Used on one event loop, by one request at a time."""

    __slots__ = (
        "_client", "_client_id", "_counted_s", "_generation", "_principal", "_quotas", "_taken", "_worked",
        "_worked_s", "may_wait",
    )  # fmt: skip

    def __init__(self, quotas: ClientQuotas, worked_s: Callable[[float], float]) -> None:
        """worked_s: returns the work of the present request until a moment, in seconds"""
        self._quotas = quotas
        self._worked_s = worked_s
        self._generation = -1
        self._principal = ""
        self._client_id: str | None = None
        self._client: ClientBuckets | None = None
        self._worked: TokenBucket | None = None
        self._taken: TokenBucket | None = None
        """The quota of the present request, beside work."""
        self._counted_s = 0.0
        self.may_wait = False
        """Whether a quota of the present request is half used up; otherwise its client cannot be throttled."""

    def begin(self, api_key: int, principal: str, client_id: str | None, size: int, now: float) -> bool:
        """Begin to count a request of `size` bytes. Return whether a quota applies to its client."""
        if self._generation != self._quotas.generation or client_id != self._client_id or principal != self._principal:
            self._find(principal, client_id, now)
        client = self._client
        if client is None or api_key in _FREE:
            return False
        self._counted_s, self._taken = 0.0, None
        worked = self._worked
        self.may_wait = worked is not None and worked.is_low
        if api_key == PRODUCE and (produced := client.produced):
            self._taken = produced
            if produced.take(size, now):
                self.may_wait = True
        return True

    def fetch_bytes(self, asked: int) -> int:
        """Return the maximum bytes of one fetch (`ClientBuckets.fetch_bytes`)."""
        return self._client.fetch_bytes(asked) if self._client else asked

    def fetched(self, size: int) -> None:
        """Count the bytes of a response."""
        if self._client and (fetched := self._client.fetched):
            self._taken = fetched
            if fetched.take(size, monotonic()):
                self.may_wait = True

    def mutate(self, partitions: int, *, strict: bool) -> None:
        """Count partitions to create or delete. Raises ThrottlingQuotaExceeded as `ClientBuckets.mutate` does."""
        if self._client:
            self._taken, self.may_wait = self._client.mutated, True
            self._client.mutate(partitions, monotonic(), strict=strict)

    def wait_ms(self) -> int:
        """Return the throttle time after the present request in milliseconds, with its work so far."""
        now = monotonic()
        wait_s = self.end(self._worked_s(now), now)
        return whole_ms(wait_s)

    def end(self, worked_s: float, now: float) -> float:
        """Count the work of the present request, and return the throttle time in seconds."""
        if worked := self._worked:
            if worked.take(worked_s - self._counted_s, now):
                self.may_wait = True
            self._counted_s = worked_s
        if not self.may_wait or self._client is None:
            return 0.0
        return max(self._taken.wait_s(now) if self._taken else 0.0, self._client.work_wait_s(now))

    def _find(self, principal: str, client_id: str | None, now: float) -> None:
        quotas = self._quotas
        found = quotas.client(user_of(principal), client_id or "", now)
        self._client, self._worked = (found, found.worked) if found.is_limited else (None, None)
        self._principal, self._client_id, self._generation = principal, client_id, quotas.generation
