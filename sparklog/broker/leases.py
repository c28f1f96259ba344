"""Leases for replacing segments: at most one for each log, in the broker's memory. Pure: time is an argument.

    begin ──▶ HELD ── begin_upload, renew ──▶ HELD            renews the lease: it expires lease_ms from then on
               │  └── begin_commit ──▶ COMMITTING ── finish ──▶ gone; its answer is kept for ANSWER_KEPT_MS
               │                          └─────── end ──▶ gone
               └── end, expiry, begin by the same holder ──▶ gone

- While a lease is held, other holders are refused. A new lease of the same holder replaces its old one.
- A lease that is committing does not expire.
- Only the last upload under a lease counts: `renew` refuses earlier ones.
- Leases do not survive a restart of the broker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.errors import DuplicateResource, ResourceNotFound
from sparklog.log.description import SegmentDescription

ANSWERS_KEPT = 1_000
ANSWER_KEPT_MS = 600_000
Log = TypeVar("Log", bound=Hashable)


class Lease(Struct, Generic[Log], frozen=True, kw_only=True):
    """The right of `holder` to put one segment in place of `sources`."""

    id: str
    log: Log
    holder: str
    sources: tuple[SegmentDescription, ...]
    lease_ms: int
    expires_ms: int = 0
    upload: int = 0
    """The number of uploads begun so far."""
    is_committing: bool = False

    @property
    def base_offset(self) -> int:
        """The base offset of the first source, and so of the segment that replaces the sources."""
        return self.sources[0].base_offset


class Leases(Generic[Log]):
    """The leases of one broker. Times are in ms of the monotonic clock."""

    def __init__(self) -> None:
        self._by_log: dict[Log, Lease[Log]] = {}
        self._by_id: dict[str, Lease[Log]] = {}
        self._answers: OrderedDict[str, tuple[SegmentDescription, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def all(self) -> tuple[Lease[Log], ...]:
        """All leases, expired ones and those that are committing included."""
        return tuple(self._by_id.values())

    def held(self, log: Log) -> Lease[Log] | None:
        """Return the log's lease, expired or not; None if there is none."""
        return self._by_log.get(log)

    def check_free(self, log: Log, holder: str, now_ms: int) -> None:
        """Raises DuplicateResource if another holder has the log's lease."""
        held = self._by_log.get(log)
        if held and held.holder != holder and not _is_expired(held, now_ms):
            raise DuplicateResource(f"{log}: {held.holder!r} is replacing segments")

    def begin(self, lease: Lease[Log], now_ms: int) -> Lease[Log]:
        """Take the log's lease, replacing an expired one or the holder's own; return it with its time of expiry.

        Raises DuplicateResource if another holder has the lease, or while the holder's own lease is committing.
        """
        self.check_free(lease.log, lease.holder, now_ms)
        if (held := self._by_log.get(lease.log)) is not None:
            if held.is_committing:
                raise DuplicateResource(f"{lease.log}: {held.holder!r} is putting a segment in place")
            self.end(held.id)
        return self._put(lease, now_ms)

    def find(self, lease_id: str) -> Lease[Log] | None:
        """Return the lease, expired or not; None if there is none."""
        return self._by_id.get(lease_id)

    def get(self, lease_id: str, now_ms: int) -> Lease[Log]:
        """Return the lease. Raises ResourceNotFound if it does not exist or has expired."""
        lease = self._by_id.get(lease_id)
        if lease is None or _is_expired(lease, now_ms):
            raise ResourceNotFound(f"there is no lease {lease_id!r}, or it has ended: begin anew")
        return lease

    def begin_upload(self, lease_id: str, now_ms: int) -> Lease[Log]:
        """Return the lease with the number of a new upload, the only one that counts. Raises as `begin_commit` does."""
        lease = self._idle(lease_id, now_ms)
        return self._put(replace(lease, upload=lease.upload + 1), now_ms)

    def renew(self, lease_id: str, upload: int, now_ms: int) -> None:
        """Renew the lease. Raises as `begin_commit` does, and ResourceNotFound if another upload has begun."""
        lease = self._idle(lease_id, now_ms)
        if lease.upload != upload:
            raise ResourceNotFound(f"another upload under lease {lease_id!r} has begun")
        self._put(lease, now_ms)

    def begin_commit(self, lease_id: str, now_ms: int) -> Lease[Log]:
        """Return the lease, now committing. Raises ResourceNotFound, or DuplicateResource if it already is."""
        return self._put(replace(self._idle(lease_id, now_ms), is_committing=True), now_ms)

    def finish(self, lease_id: str, answer: SegmentDescription, now_ms: int) -> None:
        """End a committed lease, and keep its answer for `ANSWER_KEPT_MS`."""
        self.end(lease_id)
        self._answers[lease_id] = (answer, now_ms + ANSWER_KEPT_MS)
        while len(self._answers) > ANSWERS_KEPT:
            self._answers.popitem(last=False)

    def answer(self, lease_id: str) -> SegmentDescription | None:
        """Return the answer given to `finish`; None if there is none or it is no longer kept."""
        answer = self._answers.get(lease_id)
        return answer[0] if answer else None

    def end(self, lease_id: str) -> Lease[Log] | None:
        """Remove a lease and return it; None if there is none."""
        lease = self._by_id.pop(lease_id, None)
        if lease:
            del self._by_log[lease.log]
        return lease

    def expired(self, now_ms: int) -> list[Lease[Log]]:
        """Return the expired leases, and drop answers that are too old."""
        while self._answers and next(iter(self._answers.values()))[1] <= now_ms:
            self._answers.popitem(last=False)
        return [lease for lease in self._by_id.values() if _is_expired(lease, now_ms)]

    def _idle(self, lease_id: str, now_ms: int) -> Lease[Log]:
        lease = self.get(lease_id, now_ms)
        if lease.is_committing:
            raise DuplicateResource(f"lease {lease_id!r} is putting a segment in place")
        return lease

    def _put(self, lease: Lease[Log], now_ms: int) -> Lease[Log]:
        alive = replace(lease, expires_ms=now_ms + lease.lease_ms)
        self._by_id[alive.id] = self._by_log[alive.log] = alive
        return alive


def _is_expired(lease: Lease[Log], now_ms: int) -> bool:
    return lease.expires_ms <= now_ms and not lease.is_committing
