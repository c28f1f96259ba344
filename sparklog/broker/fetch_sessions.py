"""Fetch sessions (KIP-227): a consumer names what it reads once, and then only what changes.

    full fetch          epoch 0: names every partition; the answer has all of them and the id of a new session, or 0 if
                        there is no free slot. epoch -1: the same without a session. Either closes the session that the
                        request names.
    incremental fetch   epoch 1, 2, …: names new partitions, those with another fetch offset, and those to forget; all
                        others are read as before. The answer has only partitions with news: records, an error, or
                        another high watermark or log start than the client was last sent.
    follower            a broker's session works the same way; news also includes the base offset of the leader's
                        segment and the generation of its closed segments. After an error or a divergence the high
                        watermark counts as not sent. A partition without news is no longer read only if the follower is
                        in its ISR and has the whole log (`Partition.become_quiet`).
    order               a partition that returned records moves behind the others, so that none starves if `max_bytes`
                        is too small for all.
    active              the partitions of a session that may have news: those that the request names, that have changed
                        (`changed`), or that did not have all their news sent. A fetch reads only these, so partitions
                        without news cost nothing, however many they are. Every `RECHECK_MS` all are active.

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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from sparklog.base.ids import TopicPartition
from sparklog.cluster.model import CurrentLeader
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.log.slice import LogSlice
from sparklog.replica.partition import FetchClock

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 120_000
RECHECK_MS = 10_000
"""After this time a fetch reads all partitions: `changed` does not report log starts that retention has moved, unless
`version` does."""
MAX_PARTITIONS = 100_000
"""Maximum number of partitions in the sessions of all consumers: some 80 MB."""
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

    @property
    def name(self) -> TopicPartition:
        """The partition's name; without a topic if only the topic's id is given."""
        return TopicPartition(self.topic or "", self.partition)

    @property
    def is_followers(self) -> bool:
        """Whether the reader is a follower."""
        return self.log_start_offset >= 0


class DivergingEpoch(Struct, frozen=True, kw_only=True):
    """Last epoch and offset that both logs share; the reader truncates there."""

    epoch: int
    end_offset: int


class PartitionFetchResult(Struct, frozen=True, kw_only=True):
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
    """Id of the broker that the consumer should read from; -1: this one."""
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


class CachedPartition(Struct):
    """One partition of a session: the read, and what the client was sent last."""

    asked: PartitionFetch
    high_watermark: int = -1
    log_start_offset: int = -1
    segment_base_offset: int = -1
    generation: int = -1
    place: int = 0
    """Its place in the read order of the session: that of a smaller number comes first."""

    def update(self, found: PartitionFetchResult) -> bool:
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
    partitions: dict[Key, CachedPartition] = field(default_factory=dict)
    """In read order."""
    active: dict[Key, None] = field(default_factory=dict)
    """The partitions that may have news."""
    changed: dict[Key, None] = field(default_factory=dict)
    """Those of them that have changed since a waiting fetch looked at them."""
    checked_ms: int = 0
    """When all partitions became active last."""
    version: int = 0
    """What `FetchSessions.version` returned then."""
    clock: FetchClock = field(default_factory=FetchClock)
    """For followers: the time of the last fetch."""
    last_place: int = 0
    """The greatest `place` of its partitions."""
    keys: dict[TopicPartition, Key] = field(default_factory=dict)
    """For followers: the key of each partition."""

    def put(self, key: Key, cached: CachedPartition) -> None:
        """Put a partition behind all others in the read order."""
        self.last_place += 1
        cached.place = self.last_place
        self.partitions.pop(key, None)
        self.partitions[key] = cached
        if cached.asked.is_followers:
            self.keys[cached.asked.name] = key

    def pair(self, name: TopicPartition) -> Pair | None:
        """Return what a follower reads of a partition; None if the session has it no longer."""
        cached = self.partitions.get(self.keys[name]) if name in self.keys else None
        return (cached.asked, cached) if cached else None

    def forget(self, key: Key) -> CachedPartition | None:
        """Remove a partition, and return it if the session had it."""
        if cached := self.partitions.pop(key, None):
            self.active.pop(key, None)
            if self.keys.get(cached.asked.name) == key:  # else the session has a later topic of that name
                del self.keys[cached.asked.name]
        return cached

    def activate_all(self, version: int) -> None:
        """Let all partitions be read, as each may have news."""
        self.active = dict.fromkeys(self.partitions)
        self.version = version

    def settle(self, key: Key) -> None:
        """Record that the client has been sent all news of a partition."""
        self.active.pop(key, None)

    def select(self, found: Iterable[PartitionFetchResult]) -> list[PartitionFetchResult]:
        """Return the results with news for the client; move partitions that returned records behind the others."""
        told = []
        for part in found:
            cached = self.partitions.get(part.key)
            if cached and cached.update(part):
                told.append(part)
                if part.slice:
                    self.put(part.key, cached)
                    if part.key in self.active:
                        del self.active[part.key]
                        self.active[part.key] = None
        return told


Pair = tuple[PartitionFetch, CachedPartition | None]
"""A read, and its entry in the session; None without a session."""


class FetchContext(Struct, frozen=True, kw_only=True):
    """One request: `session` is set for an incremental fetch, `opens_session` for a full fetch that wants a session."""

    asked: Sequence[PartitionFetch] = ()
    session: FetchSession | None = None
    epoch_after: int = FINAL_EPOCH
    opens_session: bool = False
    uses_topic_ids: bool = False

    @property
    def size(self) -> int:
        """The number of partitions of the session or, without one, of the request."""
        return len(self.session.partitions if self.session else self.asked)

    @property
    def active_size(self) -> int:
        """The number of `active_pairs`."""
        return len(self.session.active if self.session else self.asked)

    def pairs(self) -> Iterator[Pair]:
        """Return an iterator over the reads, in order, each with its session entry (None without a session)."""
        if self.session:
            return ((cached.asked, cached) for cached in self.session.partitions.values())
        return zip(self.asked, repeat(None), strict=False)

    def active_pairs(self) -> list[Pair]:
        """Return those of `pairs` that may have news; in a session in the order in which they have changed."""
        if self.session is None:
            return list(self.pairs())
        partitions = self.session.partitions
        return [(cached.asked, cached) for cached in [partitions[key] for key in self.session.active]]


class FetchSessions:
    """The sessions of a broker, at most `slots` (max.incremental.fetch.session.cache.slots)."""

    def __init__(
        self,
        slots: int,
        new_id: Callable[[], int],
        max_partitions: float = inf,
        *,
        tracks_changes: bool = False,
        version: Callable[[], int] = lambda: 0,
    ) -> None:
        """`new_id` returns a random number from 1 to 2^31 - 1; it is called again if that id is taken.

        tracks_changes: whether the caller calls `changed`; if not, every fetch reads all partitions of its session
        version: returns another number after changes for which `changed` is not called
        """
        self._version = version
        self._max_partitions = max_partitions
        self._tracks_changes = tracks_changes
        self._keys: dict[tuple[str | None, int], dict[int, Key]] = {}
        """For each partition, by topic and number: the ids of its sessions, with its key in each."""
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
        self._take_out(session_id)
        self._update(session, asked, forgotten)
        if not session.partitions:
            return FetchContext(asked=asked)
        if not self._make_room(len(session.partitions), now_ms):
            self._stop_listening(session_id, session.partitions.values())
            raise FetchSessionIdNotFound(f"fetch session {session_id} has become too large for this broker")
        self._put_back(session)
        self.activate_changed(session)
        if not self._tracks_changes or now_ms - session.checked_ms >= RECHECK_MS:
            session.activate_all(self._version())
            session.checked_ms = now_ms
        session.changed.clear()
        session.last_used_ms = now_ms
        session.epoch = _next_epoch(epoch)
        return FetchContext(session=session, epoch_after=session.epoch)

    def activate_changed(self, session: FetchSession) -> None:
        """Let all partitions be read if there were changes for which `changed` is not called."""
        if session.version != (version := self._version()):
            session.activate_all(version)

    def end(
        self, context: FetchContext, found: Sequence[PartitionFetchResult], now_ms: int
    ) -> tuple[int, Sequence[PartitionFetchResult]]:
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

    def changed(self, name: TopicPartition) -> Iterable[int]:
        """Record that a partition's high watermark, leadership or existence has changed. Return its sessions' ids."""
        keys = self._keys.get(name)
        if keys is None:
            return ()
        for session_id, key in keys.items():
            session = self._sessions[session_id]
            session.active[key] = session.changed[key] = None
        return tuple(keys)

    def _find(self, session_id: int, epoch: int, uses_topic_ids: bool) -> FetchSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}")
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(f"fetch session {session_id} names its topics by id, or did not until now")
        return session

    def _open(self, context: FetchContext, found: Sequence[PartitionFetchResult], now_ms: int) -> int:
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(
            session_id=session_id,
            uses_topic_ids=context.uses_topic_ids,
            created_ms=now_ms,
            last_used_ms=now_ms,
            epoch=_next_epoch(INITIAL_EPOCH),
            partitions={
                asked.key: CachedPartition(
                    asked, part.high_watermark, part.log_start_offset, part.segment_base_offset, part.generation, place
                )
                for place, (asked, part) in enumerate(zip(context.asked, found, strict=True), 1)
            },
            last_place=len(found),
            checked_ms=now_ms,
        )
        if context.asked and context.asked[0].is_followers:
            session.keys = {cached.asked.name: key for key, cached in session.partitions.items()}
        session.activate_all(self._version())
        self._listen(session_id, session.partitions)
        self._put_back(session)
        return session_id

    def _update(self, session: FetchSession, asked: Iterable[PartitionFetch], forgotten: Iterable[Key]) -> None:
        """Add and change the partitions that a request names, then drop those to forget. A change keeps the order."""
        for part in asked:
            key = part.key
            cached = session.partitions.get(key)
            if cached is None:
                session.put(key, cached := CachedPartition(part))
                self._listen(session.session_id, {key: cached})
            elif cached.asked.topic != part.topic:
                self._stop_listening(session.session_id, (cached,))
                cached.asked = part
                self._listen(session.session_id, {key: cached})
            else:
                cached.asked = part
            session.active[key] = None
        for key in forgotten:
            if cached := session.forget(key):
                self._stop_listening(session.session_id, (cached,))

    def _put_back(self, session: FetchSession) -> None:
        self._sessions[session.session_id] = session
        self._partitions += len(session.partitions)

    def _take_out(self, session_id: int) -> FetchSession | None:
        session = self._sessions.pop(session_id, None)
        if session:
            self._partitions -= len(session.partitions)
        return session

    def _close(self, session_id: int) -> None:
        if session := self._take_out(session_id):
            self._stop_listening(session_id, session.partitions.values())

    def _listen(self, session_id: int, partitions: Mapping[Key, CachedPartition]) -> None:
        """Index partitions for `changed`. Takes many at once: a call for each partition would cost more."""
        for key, cached in partitions.items() if self._tracks_changes else ():
            if (topic := cached.asked.topic) is not None:
                self._keys.setdefault((topic, key[1]), {})[session_id] = key

    def _stop_listening(self, session_id: int, partitions: Iterable[CachedPartition]) -> None:
        for cached in partitions if self._tracks_changes else ():
            name = cached.asked.topic, cached.asked.partition
            keys = self._keys.get(name)
            if keys and keys.get(session_id) == cached.asked.key:  # else the session has a later topic of that name
                del keys[session_id]
                if not keys:
                    del self._keys[name]

    def _make_room(self, size: int, now_ms: int) -> bool:
        """Return whether there is room for a session of `size` partitions; evict other sessions if needed."""
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
