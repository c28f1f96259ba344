"""Client quotas on a connection: what its present request costs, and how long its client must wait after it (KIP-219).

A request is answered first, with the time to wait; then nothing more is read from the connection for that time.

    Produce         takes its bytes when it has arrived
    Fetch           takes the bytes of its response. It returns a second's worth at most, and goes on where that ends
    every request   takes the time of its work, waits for others not included, up to the moment when the answer is
                    made, and the rest when it is sent
    CreateTopics, CreatePartitions, DeleteTopics    take the partitions that they create or delete

SASL requests take nothing: until they are done, it is not known whose quota applies.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from time import monotonic

from sparklog.broker.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from sparklog.security.acls import user_of
from sparklog.security.quotas import Client, ClientQuotas

PRODUCE, FETCH = 0, 1
_FREE = (SASL_HANDSHAKE, SASL_AUTHENTICATE)
MAX_WAIT_MS = (1 << 31) - 1


class Throttle:
    """The quotas of one connection. Used on one event loop, by one request at a time."""

    __slots__ = ("_client", "_client_id", "_counted_s", "_generation", "_principal", "_quotas", "_worked_s")

    def __init__(self, quotas: ClientQuotas, worked_s: Callable[[float], float]) -> None:
        """worked_s: returns the time of the present request's work up to a moment, in seconds"""
        self._quotas = quotas
        self._worked_s = worked_s
        self._generation = -1
        self._principal = self._client_id = ""
        self._client: Client | None = None
        self._counted_s = 0.0

    def begin(self, api_key: int, principal: str, client_id: str | None, size: int, now: float) -> bool:
        """Begin to count a request of `size` bytes. Return whether a quota applies to it."""
        if api_key in _FREE:
            return False
        client_id = client_id or ""
        if self._generation != self._quotas.generation or client_id != self._client_id or principal != self._principal:
            self._client = self._find(principal, client_id, now)
        client = self._client
        if client is None:
            return False
        self._counted_s = 0.0
        if api_key == PRODUCE and client.produced:
            client.produced.take(size, now)
        return True

    @property
    def fetch_bytes(self) -> int | None:
        """What a fetch may return: a second's worth of the quota; None: there is no quota."""
        return int(self._client.fetched.most) if self._client and self._client.fetched else None

    def fetched(self, size: int) -> None:
        """Count the bytes of a response."""
        if self._client and self._client.fetched:
            self._client.fetched.take(size, monotonic())

    def mutate(self, partitions: int, *, strict: bool) -> None:
        """Count partitions to create or delete. Raises ThrottlingQuotaExceeded as `Client.mutate` does."""
        if self._client:
            self._client.mutate(partitions, monotonic(), strict=strict)

    def wait_s(self) -> float:
        """Count the work done since the last call, and return how long the client must wait, in seconds."""
        client, now = self._client, monotonic()
        if client is None:
            return 0.0
        if client.worked:
            worked_s = self._worked_s(now)
            client.worked.take(worked_s - self._counted_s, now)
            self._counted_s = worked_s
        return client.wait_s(now)

    def wait_ms(self) -> int:
        """Do the same, and return whole milliseconds."""
        wait_s = self.wait_s()
        return min(ceil(wait_s * 1000), MAX_WAIT_MS) if wait_s else 0

    def _find(self, principal: str, client_id: str, now: float) -> Client | None:
        quotas = self._quotas
        self._principal, self._client_id = principal, client_id
        found = quotas.client(user_of(principal), client_id, now)
        self._generation = quotas.generation
        return found if found.is_limited else None
