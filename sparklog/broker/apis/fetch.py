"""Fetch: read committed batches from partitions, and wait for them (key 1, versions 4 to 18).

- The response comes once `min_bytes` are available or a partition has an error, a divergence or a preferred read
  replica; at the latest after `max_wait_ms`, with what is available then. Waiting costs nothing: appends wake the
  request.
- For clients of Kafka's protocol, missing partitions beside existing ones do not end the wait, as in Apache Kafka: some
  clients retry them immediately until their assignment changes.
- Only whole batches are returned, of one segment of each partition. The first batch may begin before the fetch offset:
  readers skip those records. Batches of old formats are returned as they are in the file.
- Partitions are read in the order of the request or of its session, each up to its own limit, together up to
  `max_bytes` and the broker's fetch.max.bytes. The first batch is returned even if it exceeds the limits, so that a
  reader always makes progress.
- An offset below the log start or above the log end: OFFSET_OUT_OF_RANGE. At the high watermark: no records, no error.
- UNKNOWN_TOPIC_ID: no topic has the id. INCONSISTENT_TOPIC_ID: the topic has another id, as it was deleted and created
  again.
- `current_leader_epoch` is checked (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH). With `last_fetched_epoch`, the response
  may have the point where the reader's log diverges, instead of records.
- Fetch sessions (KIP-227): broker/fetch_sessions.py. A request with session id 0 and epoch -1 has no session.
- A reader of committed records (isolation level read_committed) gets records up to the last stable offset, and the
  aborted transactions that may have batches among them: it skips those batches.
- Reads are served by the leader: NOT_LEADER_OR_FOLLOWER elsewhere. A consumer that states its rack may read from
  followers too; the leader names the follower in a response without records (KIP-392, broker/read_replicas.py).
- Replica ids are ignored: brokers do not replicate over this API, and a request with one is served as a consumer's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.acls import AclOperation
from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.fetch_sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    CachedPartition,
    DivergingEpoch,
    FetchContext,
    FetchSessions,
    Key,
    Pair,
    PartitionFetch,
    PartitionFetchResult,
)
from sparklog.broker.metrics import Metrics
from sparklog.broker.read_replicas import (
    LEADER_ONLY,
    NO_REPLICA,
    check_is_committed,
    preferred_read_replica,
    readable_replica,
)
from sparklog.broker.rights import TOPIC, Access, If, OnAnswers, topic_of
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.runtime.eager import start
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.slices import Slices, of_many

TOGETHER = 500
"""Partitions that are read without yielding: some milliseconds."""
PART = 100
"""In larger requests: partitions that are read between two checks of the clock."""
HELD_BYTES = 1 << 20
"""Bytes of the log that a response may hold in memory; its further slices are read when they are sent."""
__all__ = ["API", "DivergingEpoch", "FetchRequest", "FetchResponse", "PartitionFetch", "PartitionFetchResult"]


class FetchRequest(Struct, frozen=True, kw_only=True):
    """`partitions` and `forgotten` change what the session reads; without a session, `partitions` lists all reads."""

    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int
    partitions: Sequence[PartitionFetch]
    session_id: int = NO_SESSION
    session_epoch: int = FINAL_EPOCH
    forgotten: Sequence[Key] = ()
    uses_topic_ids: bool = False
    is_read_committed: bool = False
    """Whether the reader wants only records of committed transactions, and those without a transaction."""
    client_rack: str | None = None
    """The consumer's rack; empty: not stated. None: the client reads from leaders only."""
    waits_beside_missing: bool = False
    """Whether a request with missing partitions still waits for the others, if there are any."""


class FetchResponse(Struct, frozen=True, kw_only=True):
    partitions: Sequence[PartitionFetchResult]
    session_id: int = NO_SESSION

    @property
    def size_bytes(self) -> int:
        """The bytes of records in the response, from the log; most are not read yet."""
        return sum(part.slice.size for part in self.partitions if part.slice)

    @property
    def has_error(self) -> bool:
        """Whether any partition has an error."""
        return any(part.error for part in self.partitions)


class Fetch(Struct, frozen=True, kw_only=True, eq=False):
    """Reads from this broker's replicas, and waits if there is too little to read."""

    clock: Clock
    config: BrokerConfig
    fetch_sessions: FetchSessions
    metadata: MetadataCache
    metrics: Metrics
    replicas: ReplicaManager
    session_waiting: Purgatory[int]
    slices: Slices
    waiting: Purgatory[TopicPartition]

    async def __call__(self, request: FetchRequest) -> FetchResponse:
        """Raises InvalidRequest for a negative limit or a repeated partition, and as `FetchSessions` does."""
        _check(request)
        sessions = self.fetch_sessions
        context = sessions.begin(
            session_id=request.session_id,
            epoch=request.session_epoch,
            asked=request.partitions,
            forgotten=request.forgotten,
            uses_topic_ids=request.uses_topic_ids,
            now_ms=self.clock.monotonic_ms(),
        )

        if context.active_size > PART:
            await self.slices.begin()
        limit = min(request.max_bytes, self.config.fetch_max_bytes)
        found = await self._read_once_enough(request, context, limit)
        session_id, told = sessions.end(context, found, self.clock.monotonic_ms())
        for part in told:
            if part.slice:
                self.metrics.fetched(part.topic or "", part.slice.size)
        return FetchResponse(partitions=told, session_id=session_id)

    async def _read_once_enough(
        self, request: FetchRequest, context: FetchContext, limit: int
    ) -> list[PartitionFetchResult]:
        """Return the results once there are enough; at the latest after `max_wait_ms`."""
        if request.max_wait_ms == 0:
            return await self._read_all(request, context, limit)
        if context.active_size > TOGETHER:
            return await self._read_many_once_enough(request, context, limit)
        found = await self._read_all(request, context, limit)
        if sum([part.slice.size for part in found if part.slice]) >= min(request.min_bytes, limit):
            return found  # most requests: without a wait, no progress has to be recorded
        so_far = _FetchProgress(request, context.size, limit)
        so_far.add(found)
        if so_far.is_enough:
            return found
        del found  # results take much more than their numbers
        await self._wait(request, context, limit, so_far)
        return await self._read_all(request, context, limit)

    async def _read_many_once_enough(
        self, request: FetchRequest, context: FetchContext, limit: int
    ) -> list[PartitionFetchResult]:
        # Other requests run during the read: start the wait before it, so that no append to what is read is missed.
        first, so_far = _FetchProgress(request, context.size, limit), _FetchProgress(request, context.size, limit)
        change = start(self._wait(request, context, limit, so_far))
        try:
            found = await self._read_all(request, context, limit)
            first.add(found)
            if first.is_enough or (change.done() and not change.result()):
                return found
            so_far.add(part for part in found if part.key not in so_far.changed)
            del found  # results take much more than their numbers
            if not so_far.is_enough:
                await change
        finally:
            change.cancel()
        return await self._read_all(request, context, limit)

    async def _wait(self, request: FetchRequest, context: FetchContext, limit: int, so_far: _FetchProgress) -> bool:
        """Wait until there is enough; return False if the time is over.

        Only the partition that changed is read: an append costs the waiting requests no more than that, however many
        partitions they name.
        """

        def is_enough(part: PartitionFetch) -> bool:
            replica = self.replicas.find(TopicPartition(part.topic or "", part.partition))
            if so_far.min_bytes <= 1 and replica and _end(request, replica) > part.fetch_offset:
                return True
            is_first = so_far.size == so_far.sizes.get(part.key, 0)
            so_far.change(self._read_partition(request, part, limit, min_one_batch=is_first))
            return so_far.is_enough

        if session := context.session:

            def look(_: int) -> bool | None:
                while session.changed:
                    cached = session.partitions.get(session.changed.popitem()[0])
                    if cached and is_enough(cached.asked):
                        return True
                return None

            return await self.session_waiting.watch((session.session_id,), look, request.max_wait_ms) is not None
        asked = {TopicPartition(part.topic or "", part.partition): part for part, _ in context.pairs()}

        def read(name: TopicPartition) -> bool | None:
            return is_enough(asked[name]) or None

        return await self.waiting.watch(asked, read, request.max_wait_ms) is not None

    async def _read_all(self, request: FetchRequest, context: FetchContext, limit: int) -> list[PartitionFetchResult]:
        """Return the results now, without a session's partitions that have no news. Yield if there are many."""
        if context.active_size > TOGETHER:
            return await self._read_in_parts(request, context, limit)
        results: list[PartitionFetchResult] = []
        self._read(request, context, context.active_pairs(), results, limit, limit)
        return results

    async def _read_in_parts(
        self, request: FetchRequest, context: FetchContext, limit: int
    ) -> list[PartitionFetchResult]:
        results: list[PartitionFetchResult] = []
        left = limit

        async def read(pairs: Sequence[Pair]) -> None:
            nonlocal left
            left = self._read(request, context, pairs, results, left, limit)

        await self.slices.each(of_many(context.active_pairs(), PART), read)
        return results

    def _read(
        self,
        request: FetchRequest,
        context: FetchContext,
        pairs: Iterable[Pair],
        results: list[PartitionFetchResult],
        left: int,
        limit: int,
    ) -> int:
        """Read `pairs` into `results`, up to `left` of `limit` bytes. Return the bytes left; negative if exceeded."""
        for part, cached in pairs:
            if cached and context.session and self._is_quiet(request, part, cached):
                context.session.settle(part.key)
                continue
            result = self._read_partition(request, part, max(0, left), min_one_batch=left == limit)
            if result.slice:
                left -= result.slice.size
                if limit - left > HELD_BYTES:
                    result.slice.forget()
            results.append(result)
        return left

    def _is_quiet(self, request: FetchRequest, part: PartitionFetch, cached: CachedPartition) -> bool:
        """Return whether the reader is at the high watermark and has been sent the partition's offsets."""
        if part.fetch_offset != cached.high_watermark or part.last_fetched_epoch is not None or part.topic is None:
            return False
        replica = self.replicas.find(TopicPartition(part.topic, part.partition))
        if replica is None or (part.topic_id and not self._is_same_topic(part)):
            return False
        partition = replica.partition
        return (
            partition.is_leader
            and (not request.client_rack or self.config.replica_selector_class == LEADER_ONLY)
            and partition.high_watermark == cached.high_watermark
            and replica.log.log_start_offset == cached.log_start_offset
            and part.current_leader_epoch in (None, partition.leader_epoch)
        )

    def _is_same_topic(self, part: PartitionFetch) -> bool:
        topic = self.metadata.find(part.topic) if part.topic else None
        return topic is not None and topic.topic_id == part.topic_id

    def _read_partition(
        self, request: FetchRequest, part: PartitionFetch, left: int, *, min_one_batch: bool
    ) -> PartitionFetchResult:
        try:
            if part.max_bytes < 0:
                raise InvalidRequest(
                    f"{part.topic}-{part.partition}: partition_max_bytes = {part.max_bytes} is negative"
                )
            replica = self._find(request, part)
            if part.current_leader_epoch is not None:
                replica.partition.check_leader_epoch(part.current_leader_epoch)
            diverging = None if part.last_fetched_epoch is None else _diverging(replica, part)
            check_is_committed(replica, part.fetch_offset)
            preferred, found = NO_REPLICA, None
            aborted: Sequence[AbortedTransaction] = ()
            if request.client_rack:
                preferred = preferred_read_replica(
                    self.config, self.metadata, replica, part.fetch_offset, request.client_rack
                )
            if diverging is None and preferred == NO_REPLICA:
                limit = min(part.max_bytes, left)
                if request.is_read_committed:
                    found, aborted = self.replicas.read_committed(
                        replica, part.fetch_offset, limit, min_one_batch=min_one_batch
                    )
                else:
                    found = self.replicas.read(replica, part.fetch_offset, limit, min_one_batch=min_one_batch)
        except KafkaError as error:
            return self._failed(part, error)
        return PartitionFetchResult(
            topic=replica.partition.name.topic,
            topic_id=part.topic_id,
            partition=part.partition,
            fetch_offset=part.fetch_offset,
            next_offset=max(part.fetch_offset, found.next_offset) if found else part.fetch_offset,
            high_watermark=replica.partition.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            aborted=aborted,
            log_start_offset=replica.log.log_start_offset,
            slice=found if found and found.size else None,
            diverging=diverging,
            preferred_read_replica=preferred,
        )

    def _find(self, request: FetchRequest, part: PartitionFetch) -> Replica:
        """Return the replica to read. Raises UnknownTopicId, InconsistentTopicId, and as `readable_replica` does."""
        name = part.topic
        if name is None:
            if part.topic_id is None:
                raise UnknownTopicId("neither a topic's name nor its id is given")
            name = self.metadata.get_by_id(part.topic_id).name
        elif part.topic_id and not self._is_same_topic(part):
            self.metadata.get(name)
            raise InconsistentTopicId(f"topic {name!r} has another id by now")
        return readable_replica(self.replicas, TopicPartition(name, part.partition), request.client_rack)

    def _failed(self, part: PartitionFetch, error: KafkaError) -> PartitionFetchResult:
        leader_epoch = -1
        if isinstance(error, FencedLeaderEpoch | UnknownLeaderEpoch | NotLeaderOrFollower) and part.topic:
            replica = self.replicas.find(TopicPartition(part.topic, part.partition))
            leader_epoch = replica.partition.leader_epoch if replica else -1
        failed = PartitionFetchResult(
            topic=part.topic,
            topic_id=part.topic_id,
            partition=part.partition,
            fetch_offset=part.fetch_offset,
            next_offset=part.fetch_offset,
            error=error.with_traceback(None),  # its frames take kilobytes, and a garbage collection visits them
            leader_epoch=leader_epoch,
        )
        if not failed.is_told_leader:
            return failed
        name = TopicPartition(part.topic or "", part.partition)
        return replace(failed, current_leader=self.metadata.current_leader(name))


def _check(request: FetchRequest) -> None:
    if request.max_wait_ms < 0 or request.min_bytes < 0 or request.max_bytes < 0:
        raise InvalidRequest(
            f"max_wait_ms = {request.max_wait_ms}, min_bytes = {request.min_bytes}, "
            f"max_bytes = {request.max_bytes}: none can be negative"
        )
    if len(request.partitions) > 1 and len({part.key for part in request.partitions}) < len(request.partitions):
        raise InvalidRequest("the request names a partition twice")


class _FetchProgress:
    """The results that a waiting request would get now: the bytes of each partition, and whether they are enough."""

    def __init__(self, request: FetchRequest, partitions: int, limit: int) -> None:
        self.min_bytes = min(request.min_bytes, limit)
        self.size = 0
        self.sizes: dict[Key, int] = {}
        """Size of each partition with records."""
        self.changed: set[Key] = set()
        self._missing: set[Key] = set()
        self._partitions = partitions
        self._waits_beside_missing = request.waits_beside_missing
        self._has_news = False

    @property
    def is_enough(self) -> bool:
        return self._has_news or self.size >= self.min_bytes or len(self._missing) == self._partitions

    def add(self, found: Iterable[PartitionFetchResult]) -> None:
        for part in found:
            if self._waits_beside_missing and isinstance(part.error, UnknownTopicOrPartition | UnknownTopicId):
                self._missing.add(part.key)
            elif part.error or part.diverging or part.preferred_read_replica != NO_REPLICA:
                self._has_news = True
            elif part.slice:
                self.sizes[part.key] = part.slice.size
                self.size += part.slice.size

    def change(self, found: PartitionFetchResult) -> None:
        """Replace the result of one partition."""
        key = found.key
        self.changed.add(key)
        self._missing.discard(key)
        self.size -= self.sizes.pop(key, 0)
        self.add((found,))


def _end(request: FetchRequest, replica: Replica) -> int:
    """Return the offset up to which the reader may read."""
    return replica.last_stable_offset if request.is_read_committed else replica.partition.high_watermark


def _diverging(replica: Replica, part: PartitionFetch) -> DivergingEpoch | None:
    """Return where a reader whose last record has `last_fetched_epoch` diverges from this log; None if it does not.

    Raises OffsetOutOfRange if this log does not reach back to that epoch.
    """
    last_epoch = part.last_fetched_epoch or 0
    end = replica.end_offset_for(last_epoch)
    if end.end_offset < 0 or part.fetch_offset < replica.log.log_start_offset:
        raise OffsetOutOfRange(f"{replica.log} does not know where epoch {last_epoch} ended")
    if end.epoch < last_epoch or end.end_offset < part.fetch_offset:
        return DivergingEpoch(epoch=end.epoch, end_offset=end.end_offset)
    return None


def _needs_check(request: FetchRequest, access: Access) -> bool:
    """Return whether the answer may have partitions that the client may not read.

    A session has partitions that the request does not name, and the right to them may have been withdrawn.
    """
    if request.session_id:
        return True
    return not _READ.covers(request.partitions, access)


def _refused(part: PartitionFetchResult, error: KafkaError) -> PartitionFetchResult:
    return PartitionFetchResult(
        topic=part.topic,
        topic_id=part.topic_id,
        partition=part.partition,
        fetch_offset=part.fetch_offset,
        next_offset=part.fetch_offset,
        error=error,
    )


_READ = OnAnswers(AclOperation.READ, TOPIC, "partitions", topic_of, _refused)
API = Api(
    name="Fetch",
    handle=Fetch,
    rights=(If(_needs_check, _READ),),
    key=1,
    versions=(4, 18),
)
