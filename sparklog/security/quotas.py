"""Client quotas: the quotas that apply to a client, and its token buckets. Pure.

Of all entities with a quota of a kind, the first of these applies (kafka.server.ClientQuotaManager):

    user and client id · user, default client id · user · default user, client id · default user and client id
    · default user · client id · default client id

All clients of a user share the bucket of the user's quota. With a quota for user and client id, each pair has a bucket.
With a default quota, each user (or client id, or pair) has a bucket.

A bucket fills at the quota's rate and holds `burst_s` of it. A request takes its cost once that is known, and may leave
the bucket below zero: the client then waits until the debt is paid. A full bucket is dropped, so a client cannot fill
the memory with buckets.

Differs from Apache Kafka, which averages bytes and times over 11 samples of a second: a silent client may use ten
seconds' worth at once. Here it is `quota.window.size.seconds`, so the rate over half a minute is close to the quota.
Controller mutations are as in Kafka (KIP-599).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from sparklog.base.errors import ThrottlingQuotaExceeded
from sparklog.base.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuota,
    Entity,
    entity,
)

SWEEP_AT = 1_000
"""Above this number of buckets, full ones are dropped, at most once a second."""
KNOWN_CLIENTS = 10_000
"""Maximum number of clients whose quotas are cached."""


MAX_WAIT_MS = (1 << 31) - 1
Mutate = Callable[[int], None]
"""Counts partitions that are about to be created or deleted. Raises ThrottlingQuotaExceeded to refuse them."""


def unlimited(partitions: int) -> None:
    """Count partitions where no quota applies."""


class TokenBucket:
    """A token bucket of one owner of a quota. All times are in seconds of a monotonic clock."""

    __slots__ = ("_at", "_low", "_saved", "is_low", "most", "rate")

    def __init__(self, rate: float, most: float) -> None:
        """rate: refilled per second. most: the content of a full bucket; a new one is full"""
        self.rate, self.most = rate, most
        self._low = most / 2
        self.is_low = False
        """Whether less than half was left after the last `take`; if not, no client has to wait."""
        self._saved, self._at = most, 0.0

    def take(self, amount: float, now: float) -> bool:
        """Take an amount, even if the bucket has less. Return `is_low`."""
        saved = self._saved + (now - self._at) * self.rate  # as `_now`, for every request
        self._saved = saved = (saved if saved < self.most else self.most) - amount
        self._at = now
        self.is_low = is_low = saved < self._low
        return is_low

    def wait_s(self, now: float) -> float:
        """Return the time until the debt is paid; 0 without debt."""
        saved = self._now(now)
        return 0.0 if saved >= 0 else -saved / self.rate

    def is_full(self, now: float) -> bool:
        """Return whether the bucket is full, and so equals a new one."""
        return self._now(now) >= self.most

    def _now(self, now: float) -> float:
        return min(self.most, self._saved + (now - self._at) * self.rate)


class ClientBuckets(NamedTuple):
    """The buckets of a client, by what they count; None: no quota applies."""

    produced: TokenBucket | None
    fetched: TokenBucket | None
    worked: TokenBucket | None
    """In seconds of the event loop."""
    mutated: TokenBucket | None
    longest_s: float
    """The longest wait because of work, as in Kafka: later requests pay the rest of the debt."""

    @property
    def is_limited(self) -> bool:
        """Whether any quota applies."""
        return (self.produced or self.fetched or self.worked or self.mutated) is not None

    def fetch_bytes(self, asked: int) -> int:
        """Return the bytes that a fetch may return: those that it asks for, at most a burst, to keep waits short."""
        return min(asked, max(1, int(self.fetched.most))) if self.fetched else asked

    def work_wait_s(self, now: float) -> float:
        """Return the seconds for which the client must wait because of its work."""
        return min(self.worked.wait_s(now), self.longest_s) if self.worked else 0.0

    def mutate(self, partitions: int, now: float, *, strict: bool) -> None:
        """Count partitions that are about to be created or deleted.

        strict: raise ThrottlingQuotaExceeded if there is a debt (KIP-599), so that the client tries again
        """
        if self.mutated is None:
            return
        if strict and (wait_s := self.mutated.wait_s(now)):
            raise ThrottlingQuotaExceeded(
                f"The throttling quota has been exceeded: try again in {wait_s:.1f} s ({CONTROLLER_MUTATION_RATE} is "
                f"{self.mutated.rate:g} partitions per second)"
            )
        self.mutated.take(partitions, now)


def whole_ms(wait_s: float) -> int:
    """Return a wait in whole milliseconds, for a response."""
    return min(ceil(wait_s * 1000), MAX_WAIT_MS)


class QuotaWindows(NamedTuple):
    """Seconds' worth of a quota that a silent client may use at once."""

    burst_s: float = 1.0
    """quota.window.size.seconds"""
    mutations_s: float = 11.0
    """controller.quota.window.num of controller.quota.window.size.seconds"""


class ClientQuotas:
    """The cluster's quotas as the controller has sent them, and this broker's buckets. Used on one event loop."""

    def __init__(self, windows: QuotaWindows) -> None:
        self.generation = 0
        """Grows with each change of quotas: `ClientBuckets` of an earlier generation are outdated."""
        self.has_client_quotas = False
        """Whether there is a quota of a user or client id."""
        self.waits = 0
        """Number of requests since the start after which a client had to wait."""
        self.waited_s = 0.0
        self._windows = windows
        self._quotas: dict[Entity, ClientQuota] = {}
        self._buckets: dict[tuple[str, Entity], TokenBucket] = {}
        self._swept_at = 0.0
        self._find = lru_cache(KNOWN_CLIENTS)(self._find_owners)

    @property
    def quotas(self) -> list[ClientQuota]:
        """All quotas of the cluster, as this broker knows them."""
        return list(self._quotas.values())

    def set_quotas(self, quotas: Iterable[ClientQuota]) -> None:
        """Replace all quotas. Debts of unchanged quotas remain, unless a quota of the same kind is removed."""
        before, self._quotas = self._quotas, {quota.entity: quota for quota in quotas}
        removed = {key for each in before.values() for key in each.values if key not in self._values(each.entity)}
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if name[0] not in removed}
        self.has_client_quotas = any(quota.entity[0].type != IP for quota in self._quotas.values())
        self.generation += 1
        self._find.cache_clear()

    def count_wait(self, seconds: float) -> None:
        """Count a request after which its client has to wait."""
        self.waits += 1
        self.waited_s += seconds

    def client(self, user: str, client_id: str, now: float) -> ClientBuckets:
        """Return the buckets of a client. user: without the type, such as alice"""
        produced, fetched, worked, mutated = self._find(user, client_id)
        if len(self._buckets) > SWEEP_AT:
            self._sweep(now)
        return ClientBuckets(
            self._bucket(PRODUCER_BYTE_RATE, produced),
            self._bucket(CONSUMER_BYTE_RATE, fetched),
            self._bucket(REQUEST_PERCENTAGE, worked),
            self._bucket(CONTROLLER_MUTATION_RATE, mutated),
            self._windows.burst_s,
        )

    def connect(self, address: str, now: float) -> float:
        """Count a new connection and return 0; or return the seconds until the address may open another one."""
        found = self._find_ip(address)
        if found is None:
            return 0.0
        if len(self._buckets) > SWEEP_AT:
            self._sweep(now)
        bucket = self._bucket(CONNECTION_CREATION_RATE, found)
        assert bucket
        bucket.take(1, now)
        if wait_s := bucket.wait_s(now):
            bucket.take(-1, now)  # a refused connection does not count
        return wait_s

    def _values(self, owner: Entity) -> Mapping[str, float]:
        quota = self._quotas.get(owner)
        return quota.values if quota else {}

    def _bucket(self, key: str, found: tuple[Entity, float] | None) -> TokenBucket | None:
        if found is None:
            return None
        owner, value = found
        rate = value / 100 if key == REQUEST_PERCENTAGE else value
        bucket = self._buckets.get((key, owner))
        if bucket is None or bucket.rate != rate:
            seconds = self._windows.mutations_s if key == CONTROLLER_MUTATION_RATE else self._windows.burst_s
            bucket = self._buckets[key, owner] = TokenBucket(rate, max(rate * seconds, 1.0 if key in _COUNTED else 0.0))
        return bucket

    def _sweep(self, now: float) -> None:
        if now < self._swept_at + 1:
            return
        self._swept_at = now
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if not bucket.is_full(now)}
        self.generation += 1  # clients get new buckets in place of dropped ones

    def _find_owners(self, user: str, client_id: str) -> tuple[tuple[Entity, float] | None, ...]:
        keys = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
        return tuple(self._find_owner(key, user, client_id) for key in keys)

    def _find_owner(self, key: str, user: str, client_id: str) -> tuple[Entity, float] | None:
        """Return the owner of the bucket and the value of the quota that applies; None: no quota does."""
        pair, of_user, of_client = (
            entity({USER: user, CLIENT_ID: client_id}),
            entity({USER: user}),
            entity({CLIENT_ID: client_id}),
        )
        for parts, owner in (
            ({USER: user, CLIENT_ID: client_id}, pair),
            ({USER: user, CLIENT_ID: None}, pair),
            ({USER: user}, of_user),
            ({USER: None, CLIENT_ID: client_id}, pair),
            ({USER: None, CLIENT_ID: None}, pair),
            ({USER: None}, of_user),
            ({CLIENT_ID: client_id}, of_client),
            ({CLIENT_ID: None}, of_client),
        ):
            values = self._values(entity(parts))
            if key in values:
                return owner, values[key]
        return None

    def _find_ip(self, address: str) -> tuple[Entity, float] | None:
        for name in (address, None):
            values = self._values(entity({IP: name}))
            if CONNECTION_CREATION_RATE in values:
                return entity({IP: address}), values[CONNECTION_CREATION_RATE]
        return None


_COUNTED = {CONNECTION_CREATION_RATE, CONTROLLER_MUTATION_RATE}
"""Keys of quotas that count things: a bucket holds at least one."""
