"""Fetch sessions (KIP-227): a consumer names what it reads once, and then only what changes.

    full fetch          epoch 0: names every partition; the answer has all of them and the id of a new session, or 0 if
                        there is no free slot. epoch -1: the same without a session. Either closes the session that the
                        request names.
    incremental fetch   epoch 1, 2, …: names new partitions, those with another fetch offset, and those to forget; all
                        others are read as before. The answer has only partitions with news: records, an error, or
                        another high watermark or log start than the client was last sent.
    follower            a broker's session works the same way; news also includes the base offset of the leader's
                        segment and the generation of its closed segments. After an error or a divergence the high
                        watermark counts as not sent.
    order               a partition that returned records moves behind the others, so that none starves if `max_bytes`
                        is too small for all.

An unknown session gets FETCH_SESSION_ID_NOT_FOUND and a request with the wrong epoch INVALID_FETCH_SESSION_EPOCH. A
request that names topics by id in a session that uses names, or the reverse, gets FETCH_SESSION_TOPIC_ID_ERROR. A
session ends when its last partition is forgotten.

When all slots are taken, a new session evicts the least recently used one if that was last used more than `EVICTION_MS`
ago. Otherwise it evicts the smallest session created more than `EVICTION_MS` ago, if the new one is larger. Otherwise
the client gets no session and continues with full fetches.

All sessions together also have a limited number of partitions, as each takes some hundred bytes. A new session that
needs more evicts others by the same rules, or is not opened. A session that grows beyond the limit evicts others too,
or is closed: the client gets FETCH_SESSION_ID_NOT_FOUND and begins with a full fetch.

Pure: the caller provides the time with each call, and a function for new ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from math import inf
from uuid import UUID

from msgspec import Struct, field

from sparklog.base.errors import (
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
    NotLeaderOrFollower,
)
from sparklog.cluster.model import CurrentLeader
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.log.slice import LogSlice

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 120_000
MAX_PARTITIONS = 100_000
"""Maximum number of partitions in the sessions of all consumers: some 40 MB."""
_LAST_EPOCH = 2**31 - 1
Key = tuple[UUID | str | None, int]
"""A partition in a session: the topic's id, or its name in a session that uses names, and the partition number."""


class PartitionFetch(Struct, frozen=True, kw_only=True):
    """A read of one partition. `topic` is None if only the topic's id is given."""

    topic: str | None
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int | None = None
    last_fetched_epoch: int | None = None
    topic_id: UUID | None = None
    log_start_offset: int = -1
    """The follower's log start offset; -1: the reader is a consumer."""

    @property
    def key(self) -> Key:
        """What names the partition in its session: the topic's id, or its name if no id is given, and the number."""
        return self.topic_id or self.topic, self.partition


class DivergingEpoch(Struct, frozen=True, kw_only=True):
    """Last epoch and offset that both logs share; the reader truncates there."""

    epoch: int
    end_offset: int


class PartitionFetched(Struct, frozen=True, kw_only=True):
    """The result of one partition. Offsets are -1 if there is an error.

    `slice` refers to the bytes, which are not read yet; None if there are none.
    `next_offset` is where to continue: after the last batch, or `fetch_offset` if there is none.
    `leader_epoch` is the partition's: for followers always, for consumers only if the reader's was wrong or this broker
    does not lead the partition.
    """

    topic: str | None
    partition: int
    fetch_offset: int
    error: KafkaError | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    aborted: Sequence[AbortedTransaction] = ()
    """For readers of committed records: the aborted transactions that may have batches in `slice`."""
    log_start_offset: int = -1
    next_offset: int
    slice: LogSlice | None = None
    topic_id: UUID | None = None
    diverging: DivergingEpoch | None = None
    leader_epoch: int = -1
    preferred_read_replica: int = -1
    """The broker that the consumer should read from instead; -1: this one."""
    segment_base_offset: int = -1
    """For followers: the base offset of the segment that holds the records."""
    generation: int = -1
    """For followers: the generation of the leader's closed segments."""
    current_leader: CurrentLeader | None = None
    """For consumers, with `is_told_leader`: the leader, if there is one."""

    @property
    def is_told_leader(self) -> bool:
        """Whether the client is told the current leader, which saves it a Metadata request (KIP-951)."""
        return isinstance(self.error, NotLeaderOrFollower | FencedLeaderEpoch)

    @property
    def key(self) -> Key:
        """The key of the `PartitionFetch` that this answers."""
        return self.topic_id or self.topic, self.partition


class Cached(Struct):
    """One partition of a session: the read, and what the client was sent last."""

    asked: PartitionFetch
    high_watermark: int = -1
    log_start_offset: int = -1
    segment_base_offset: int = -1
    generation: int = -1

    def tell(self, found: PartitionFetched) -> bool:
        """Return whether `found` has news for the client, and record it as sent."""
        is_news = (
            found.slice is not None
            or found.error is not None
            or found.diverging is not None
            or found.high_watermark != self.high_watermark
            or found.log_start_offset != self.log_start_offset
            or found.segment_base_offset != self.segment_base_offset
            or found.generation != self.generation
            or found.preferred_read_replica >= 0
        )
        self.high_watermark = -1 if found.error or found.diverging else found.high_watermark
        self.log_start_offset = found.log_start_offset
        self.segment_base_offset = found.segment_base_offset
        self.generation = found.generation
        return is_news


class FetchSession(Struct, kw_only=True):
    """The fetch session of one client."""

    session_id: int
    uses_topic_ids: bool
    created_ms: int
    last_used_ms: int
    epoch: int
    """The epoch that the next request must have."""
    partitions: dict[Key, Cached] = field(default_factory=dict)
    """In read order."""

    def update(self, asked: Iterable[PartitionFetch], forgotten: Iterable[Key]) -> None:
        """Add and change the partitions that a request names, then drop those to forget. A change keeps the order."""
        for part in asked:
            cached = self.partitions.get(part.key)
            if cached is None:
                self.partitions[part.key] = Cached(part)
            else:
                cached.asked = part
        for key in forgotten:
            self.partitions.pop(key, None)

    def select(self, found: Iterable[PartitionFetched]) -> list[PartitionFetched]:
        """Return the results with news for the client; move partitions that returned records behind the others."""
        told = []
        for part in found:
            cached = self.partitions.get(part.key)
            if cached and cached.tell(part):
                told.append(part)
                if part.slice:
                    del self.partitions[part.key]
                    self.partitions[part.key] = cached
        return told


class FetchContext(Struct, frozen=True, kw_only=True):
    """One request: `session` is set for an incremental fetch, `opens_session` for a full fetch that wants a session."""

    asked: Sequence[PartitionFetch] = ()
    session: FetchSession | None = None
    epoch_after: int = FINAL_EPOCH
    opens_session: bool = False
    uses_topic_ids: bool = False

    @property
    def size(self) -> int:
        """The number of partitions to read."""
        return len(self.session.partitions if self.session else self.asked)

    def pairs(self) -> Iterator[tuple[PartitionFetch, Cached | None]]:
        """Return an iterator over the reads, in order, each with its session entry (None without a session)."""
        if self.session:
            return ((cached.asked, cached) for cached in self.session.partitions.values())
        return zip(self.asked, repeat(None), strict=False)


class FetchSessions:
    """The sessions of a broker, at most `slots` (max.incremental.fetch.session.cache.slots)."""

    def __init__(self, slots: int, new_id: Callable[[], int], max_partitions: float = inf) -> None:
        """`new_id` returns a random number from 1 to 2^31 - 1; it is called again if that id is taken."""
        self._max_partitions = max_partitions
        self._partitions = 0
        """Number of partitions in all sessions."""
        self._slots = slots
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        *,
        session_id: int,
        epoch: int,
        asked: Sequence[PartitionFetch],
        forgotten: Iterable[Key],
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchContext:
        """Return what to read for a request; pass the results to `end`.

        Raises FetchSessionIdNotFound, InvalidFetchSessionEpoch or FetchSessionTopicIdError.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(session_id)
            return FetchContext(asked=asked, opens_session=epoch == INITIAL_EPOCH, uses_topic_ids=uses_topic_ids)
        session = self._find(session_id, epoch, uses_topic_ids)
        self._close(session_id)
        session.update(asked, forgotten)
        if not session.partitions:
            return FetchContext(asked=asked)
        if not self._make_room(len(session.partitions), now_ms):
            raise FetchSessionIdNotFound(f"fetch session {session_id} has become too large for this broker")
        self._add(session)
        session.last_used_ms = now_ms
        session.epoch = _next_epoch(epoch)
        return FetchContext(session=session, epoch_after=session.epoch)

    def end(
        self, context: FetchContext, found: Sequence[PartitionFetched], now_ms: int
    ) -> tuple[int, Sequence[PartitionFetched]]:
        """Return the session id and the results to answer with.

        Raises InvalidFetchSessionEpoch if another request has used the session meanwhile.
        """
        if context.session:
            if context.session.epoch != context.epoch_after:
                raise InvalidFetchSessionEpoch(f"fetch session {context.session.session_id} went on meanwhile")
            return context.session.session_id, context.session.select(found)
        if context.opens_session and self._make_room(len(found), now_ms):
            return self._open(context, found, now_ms), found
        return NO_SESSION, found

    def _find(self, session_id: int, epoch: int, uses_topic_ids: bool) -> FetchSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}")
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(f"fetch session {session_id} names its topics by id, or did not until now")
        return session

    def _open(self, context: FetchContext, found: Sequence[PartitionFetched], now_ms: int) -> int:
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        self._add(
            FetchSession(
                session_id=session_id,
                uses_topic_ids=context.uses_topic_ids,
                created_ms=now_ms,
                last_used_ms=now_ms,
                epoch=_next_epoch(INITIAL_EPOCH),
                partitions={
                    asked.key: Cached(
                        asked, part.high_watermark, part.log_start_offset, part.segment_base_offset, part.generation
                    )
                    for asked, part in zip(context.asked, found, strict=True)
                },
            )
        )
        return session_id

    def _add(self, session: FetchSession) -> None:
        self._sessions[session.session_id] = session
        self._partitions += len(session.partitions)

    def _close(self, session_id: int) -> None:
        if session := self._sessions.pop(session_id, None):
            self._partitions -= len(session.partitions)

    def _make_room(self, size: int, now_ms: int) -> bool:
        """Return whether there is room for a session of `size` partitions, if need be instead of others."""
        if size > self._max_partitions:
            return False
        while len(self._sessions) >= self._slots or self._partitions + size > self._max_partitions:
            if not self._evict(size, now_ms):
                return False
        return True

    def _evict(self, size: int, now_ms: int) -> bool:
        """Evict a session for a new one of `size` partitions. Return whether there was one."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms <= EVICTION_MS:
            old = [each for each in self._sessions.values() if now_ms - each.created_ms > EVICTION_MS]
            oldest = min(old, key=lambda each: len(each.partitions), default=None)
            if oldest is None or len(oldest.partitions) >= size:
                return False
        self._close(oldest.session_id)
        return True


def _next_epoch(epoch: int) -> int:
    return 1 if epoch == _LAST_EPOCH else epoch + 1
