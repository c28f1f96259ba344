"""Client quotas at work: which quota applies to a client, and the buckets that it draws from. Pure.

Of all entities that have a quota of a kind, the first of these applies (kafka.server.ClientQuotaManager):

    user and client id · user, default client id · user · default user, client id · default user and client id
    · default user · client id · default client id

Clients to whom the same user's quota applies share a bucket; of a quota for both, each pair has a bucket of its own; of
a default, each user (or client id, or pair) has its own.

A bucket fills at the quota's rate and holds `burst_s` of it. A request takes what it costs once that is known, and may
leave the bucket below zero: the client then waits until the debt is paid. A bucket that is full again is forgotten, so
no client can make many of them last.

Differs from Apache Kafka: it averages bytes and times over 11 samples of a second and lets clients that were silent use
up ten seconds' worth at once. Here it is `quota.window.size.seconds`, so the rate over half a minute is close to the
quota. Controller mutations are as in Kafka (KIP-599).
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
"""Above this number of buckets, full ones are looked for, at most once a second."""
KNOWN_CLIENTS = 10_000
"""Clients whose buckets are remembered; one that is forgotten is looked up again."""


MAX_WAIT_MS = (1 << 31) - 1
Mutate = Callable[[int], None]
"""Counts partitions that are about to be created or deleted. Raises ThrottlingQuotaExceeded to refuse them."""


def unlimited(partitions: int) -> None:
    """Count partitions where no quota applies."""


class TokenBucket:
    """A quota of one owner. All times are in seconds, of a clock that never goes back."""

    __slots__ = ("_at", "_low", "_saved", "is_low", "most", "rate")

    def __init__(self, rate: float, most: float) -> None:
        """rate: of refilling, per second. most: what it holds when it is full, as it is at first."""
        self.rate, self.most = rate, most
        self._low = most / 2
        self.is_low = False
        """Whether less than half was left when something was taken last: without that, nobody waits."""
        self._saved, self._at = most, 0.0

    def take(self, amount: float, now: float) -> bool:
        """Take an amount, which may be more than there is. Return `is_low`."""
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
        """Return whether nothing is owed or used up: a new bucket would be the same."""
        return self._now(now) >= self.most

    def _now(self, now: float) -> float:
        return min(self.most, self._saved + (now - self._at) * self.rate)


class ClientBuckets(NamedTuple):
    """The buckets of a client, by what they count. None: no quota applies."""

    produced: TokenBucket | None
    fetched: TokenBucket | None
    worked: TokenBucket | None
    """In seconds of the event loop."""
    mutated: TokenBucket | None
    longest_s: float
    """The longest wait that work causes, as in Kafka: a debt beyond it is paid after later requests."""

    @property
    def is_limited(self) -> bool:
        """Whether any quota applies."""
        return (self.produced or self.fetched or self.worked or self.mutated) is not None

    def fetch_bytes(self, asked: int) -> int:
        """Return what a fetch may return at once: what is asked for, or a burst of the quota, to wait never long."""
        return min(asked, max(1, int(self.fetched.most))) if self.fetched else asked

    def work_wait_s(self, now: float) -> float:
        """Return how long the client must wait because of its work."""
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
    """Return the milliseconds to wait, as an answer has them."""
    return min(ceil(wait_s * 1000), MAX_WAIT_MS)


class QuotaWindows(NamedTuple):
    """How many seconds' worth of a quota a silent client may use up at once."""

    burst_s: float = 1.0
    """quota.window.size.seconds"""
    mutations_s: float = 11.0
    """controller.quota.window.num of controller.quota.window.size.seconds"""


class ClientQuotas:
    """The cluster's quotas as the controller has sent them, and this broker's buckets. Used on one event loop."""

    def __init__(self, windows: QuotaWindows) -> None:
        self.generation = 0
        """Grows with each change of quotas: whoever holds a `ClientBuckets` must ask for it again."""
        self.has_client_quotas = False
        """Whether there is any quota but those of addresses."""
        self.waits = 0
        """Number of requests for which a client had to wait, since the start."""
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
        """Replace all quotas. Debts of quotas that stay as they are remain, unless one of their kind is removed."""
        before, self._quotas = self._quotas, {quota.entity: quota for quota in quotas}
        removed = {key for each in before.values() for key in each.values if key not in self._values(each.entity)}
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if name[0] not in removed}
        self.has_client_quotas = any(quota.entity[0].type != IP for quota in self._quotas.values())
        self.generation += 1
        self._find.cache_clear()

    def count_wait(self, seconds: float) -> None:
        """Count a request for which its client has to wait."""
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
        """Count a new connection and return 0; or return the seconds until the address may have another one."""
        found = self._find_ip(address)
        if found is None:
            return 0.0
        if len(self._buckets) > SWEEP_AT:
            self._sweep(now)
        bucket = self._bucket(CONNECTION_CREATION_RATE, found)
        assert bucket
        bucket.take(1, now)
        if wait_s := bucket.wait_s(now):
            bucket.take(-1, now)  # a connection that is refused does not count
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
        self.generation += 1  # a bucket that is full is made again for its client

    def _find_owners(self, user: str, client_id: str) -> tuple[tuple[Entity, float] | None, ...]:
        keys = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
        return tuple(self._find_owner(key, user, client_id) for key in keys)

    def _find_owner(self, key: str, user: str, client_id: str) -> tuple[Entity, float] | None:
        """Return the quota that applies, and who shares its bucket."""
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
