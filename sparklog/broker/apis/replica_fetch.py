"""ReplicaFetch: a follower reads from the leader's log, and reports its own log's offsets (service Replication).

Like Fetch (fetch.py), except:

- A follower reads up to the log end offset, from the oldest segment on. The answer has whole batches of one segment of
  each partition and the segment's base offset, so that the follower rolls its segments at the same offsets.
- Only the leader answers, only to a request in its leader epoch, for the topic with that id: NOT_LEADER_OR_FOLLOWER,
  FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, INCONSISTENT_TOPIC_ID. A broker that has registered again since, with a
  newer broker epoch, gets STALE_BROKER_EPOCH.
- A follower whose log diverges is sent the point of divergence. A follower that ends below the oldest segment gets
  OFFSET_OUT_OF_RANGE with that segment's base offset (replica/divergence.py).
- Each request counts for every partition of its session, named again or not: the follower has everything below its
  fetch offset. It counts once, on arrival.
- The request waits for records, or for a high watermark or log start offset that the follower has not been sent. The
  next answer also has the generation of the leader's closed segments, which tells the follower that some were replaced.
- While leader.replication.throttled.rate is used up, an out-of-sync follower gets no records of replicas that
  leader.replication.throttled.replicas lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from msgspec.structs import replace

from sparklog.base.acls import AclOperation
from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
    StaleBrokerEpoch,
)
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.fetch_sessions import (
    CachedPartition,
    DivergingEpoch,
    FetchContext,
    Key,
    PartitionFetch,
    PartitionFetchResult,
)
from sparklog.broker.follower_fetches import FollowerFetches, WaitingFetch, find_led
from sparklog.broker.rights import on_cluster
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.log.epochs import EpochEnd
from sparklog.replica.divergence import find_divergence
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.replica.messages import FetchedPartition, FetchPartition, ReplicaFetch, ReplicaFetchResponse
from sparklog.replica.throttle import ReplicationThrottle, is_listed

READ_AT_ONCE = 1 << 20
Pair = tuple[PartitionFetch, CachedPartition | None]


async def handle(
    request: ReplicaFetch,
    *,
    clock: Clock,
    config: BrokerConfig,
    follower_fetches: FollowerFetches,
    metadata: MetadataCache,
    replicas: ReplicaManager,
) -> ReplicaFetchResponse:
    """Return what the follower has not been sent yet, after a wait of at most the request's `max_wait_ms`.

    Raises StaleBrokerEpoch, and as `FetchSessions.begin` and `FetchSessions.end` do.
    """
    known = metadata.brokers.get(request.replica_id)
    if known and known.epoch > request.broker_epoch:
        raise StaleBrokerEpoch(
            f"broker {request.replica_id} has epoch {known.epoch} by now, not {request.broker_epoch}"
        )
    context = follower_fetches.sessions.begin(
        session_id=request.session_id,
        epoch=request.session_epoch,
        asked=[_partition_fetch(part) for part in request.partitions],
        forgotten=[_key(part) for part in request.forgotten],
        uses_topic_ids=True,
        now_ms=clock.monotonic_ms(),
    )
    fetch = _FollowerFetch(
        request, context, replicas, follower_fetches.throttle, min(request.max_bytes, config.fetch_max_bytes)
    )
    fetch.begin(clock.monotonic_ms())
    fetch.count()
    found = fetch.read()
    if not fetch.is_enough(found):
        await fetch.wait(follower_fetches)
        found = fetch.read()
    session_id, returned = follower_fetches.sessions.end(context, found, clock.monotonic_ms())
    return ReplicaFetchResponse(
        session_id=session_id, partitions=tuple([await fetch.answer(part) for part in returned])
    )


def _place(pair: Pair) -> int:
    return pair[1].place if pair[1] else 0


def _key(part: FetchPartition) -> Key:
    return part.topic_id, part.name.partition


def _partition_fetch(part: FetchPartition) -> PartitionFetch:
    return PartitionFetch(
        topic=part.name.topic,
        partition=part.name.partition,
        fetch_offset=part.fetch_offset,
        max_bytes=part.max_bytes,
        current_leader_epoch=part.current_leader_epoch,
        last_fetched_epoch=part.last_fetched_epoch,
        topic_id=part.topic_id,
        log_start_offset=part.log_start_offset,
    )


class _FollowerFetch:
    """One follower's request, and its results so far."""

    def __init__(
        self,
        request: ReplicaFetch,
        context: FetchContext,
        replicas: ReplicaManager,
        throttle: ReplicationThrottle,
        limit: int,
    ) -> None:
        self._replicas = replicas
        self._throttle = throttle
        self._request = request
        self._context = context
        self._limit = limit
        self.max_wait_ms = request.max_wait_ms
        """The request's limit, shortened to the time that a throttle holds records back."""
        self._sizes: dict[Key, int] = {}
        self._size = 0

    def begin(self, now_ms: int) -> None:
        """Record the time of the fetch for the quiet partitions of its session, but not for those that it names."""
        request, session = self._request, self._context.session
        for named in (*request.partitions, *request.forgotten):
            if replica := self._replicas.find(named.name):
                replica.partition.end_quiet(request.replica_id)
        if session and self._replicas.is_epoch_of(request.replica_id, request.broker_epoch):
            session.clock.fetched(now_ms)

    def count(self) -> None:
        """Record the follower's progress in each partition where its log does not diverge, but not in quiet ones."""
        now = asyncio.get_running_loop().time()
        for part, _ in self._pairs():
            try:
                replica = self._find(part)
                if self._is_throttled(replica) and (pause := self._throttle.pause(now)):
                    self.max_wait_ms = min(self.max_wait_ms, int(pause * 1000) + 1)
                if _divergence(replica, part) is None:
                    self._replicas.follower_fetched(
                        replica,
                        self._request.replica_id,
                        broker_epoch=self._request.broker_epoch,
                        fetch_offset=part.fetch_offset,
                        log_start_offset=part.log_start_offset,
                    )
            except KafkaError:
                continue  # `read` reports the error

    def _pairs(self) -> list[Pair]:
        """Return what may have news, in read order."""
        pairs = self._context.active_pairs()
        pairs.sort(key=_place)
        return pairs

    async def wait(self, follower_fetches: FollowerFetches) -> None:
        """Wait until there is enough for an answer, or `max_wait_ms`."""
        session = self._context.session
        pairs: dict[TopicPartition, Pair] = {} if session else {pair[0].name: pair for pair in self._pairs()}
        waiting = WaitingFetch(session.keys if session else pairs, [])

        def is_enough() -> bool:
            while waiting.changed:
                name = waiting.changed.pop()
                pair = session.pair(name) if session else pairs[name]
                if pair and self.changed(pair):
                    return True
            return False

        await follower_fetches.wait(waiting, is_enough, self.max_wait_ms)
        if session:
            follower_fetches.sessions.activate_changed(session)

    def is_enough(self, found: Iterable[PartitionFetchResult]) -> bool:
        """Return whether the results, with those before, are enough for an answer."""
        told = self._context.session.partitions if self._context.session else {}
        for part in found:
            if part.error or part.diverging or (part.key in told and _is_news(told[part.key], part)):
                return True
            self._size += (part.slice.size if part.slice else 0) - self._sizes.get(part.key, 0)
            self._sizes[part.key] = part.slice.size if part.slice else 0
        return self._request.max_wait_ms == 0 or self._size >= max(1, min(self._request.min_bytes, self._limit))

    def changed(self, pair: Pair) -> bool:
        """Read one partition, which has changed, and return whether there is enough for an answer.

        An append costs no more than that, however many partitions the follower copies.
        """
        part, _ = pair
        replica = self._replicas.find(part.name)
        is_longer = replica and replica.log.log_end_offset > part.fetch_offset
        if replica and is_longer and self._request.min_bytes <= 1 and not self._is_held_back(replica):
            return True
        return self.is_enough(self._read_all([pair]))

    def read(self) -> list[PartitionFetchResult]:
        """Return the present results, without a session's partitions that have no news."""
        return self._read_all(self._pairs())

    def _read_all(self, pairs: Iterable[Pair]) -> list[PartitionFetchResult]:
        left = self._limit
        is_first = True
        results = []
        for part, cached in pairs:
            try:
                replica = self._find(part)
                if cached and _is_quiet(replica, part, cached):
                    self._settle(replica, part)
                    continue
                result = self._read(replica, part, left, min_one_batch=is_first)
            except KafkaError as error:
                result = self._failed(part, error)
            if result.slice:
                is_first = False
                left = max(0, left - result.slice.size)
            results.append(result)
        return results

    def _settle(self, replica: Replica, part: PartitionFetch) -> None:
        """Look at a partition without news no more, until it changes, if the follower is in its ISR."""
        request, session = self._request, self._context.session
        if session and replica.partition.become_quiet(request.replica_id, request.broker_epoch, session.clock):
            session.settle(part.key)

    def _find(self, part: PartitionFetch) -> Replica:
        """Return the replica. Raises as `find_led` does."""
        return find_led(
            self._replicas,
            part.name,
            topic_id=part.topic_id,
            leader_epoch=part.current_leader_epoch,
            follower=self._request.replica_id,
        )

    def _read(self, replica: Replica, part: PartitionFetch, left: int, *, min_one_batch: bool) -> PartitionFetchResult:
        diverging = _divergence(replica, part)
        found = None
        if diverging is None and not self._is_held_back(replica):
            limit = min(part.max_bytes, left)
            found = replica.log.read(part.fetch_offset, limit, min_one_batch=min_one_batch, for_replica=True)
        return PartitionFetchResult(
            topic=part.topic,
            topic_id=part.topic_id,
            partition=part.partition,
            fetch_offset=part.fetch_offset,
            next_offset=found.next_offset if found else part.fetch_offset,
            high_watermark=replica.partition.high_watermark,
            log_start_offset=replica.log.log_start_offset,
            slice=found if found and found.size else None,
            diverging=DivergingEpoch(epoch=diverging.epoch, end_offset=diverging.end_offset) if diverging else None,
            leader_epoch=replica.partition.leader_epoch,
            segment_base_offset=found.segment_base_offset if found else -1,
            generation=replica.log.generation,
        )

    def _is_throttled(self, replica: Replica) -> bool:
        partition = replica.partition
        listed = replica.config.leader_replication_throttled_replicas
        return is_listed(listed, partition.name.partition, partition.broker_id) and (
            self._request.replica_id not in partition.in_sync_replicas
        )

    def _is_held_back(self, replica: Replica) -> bool:
        if not self._is_throttled(replica):
            return False
        return self._throttle.pause(asyncio.get_running_loop().time()) > 0

    def _failed(self, part: PartitionFetch, error: KafkaError) -> PartitionFetchResult:
        replica = self._replicas.find(part.name)
        is_out = replica is not None and isinstance(error, OffsetOutOfRange)
        return PartitionFetchResult(
            topic=part.topic,
            topic_id=part.topic_id,
            partition=part.partition,
            fetch_offset=part.fetch_offset,
            next_offset=part.fetch_offset,
            error=error.with_traceback(None),  # as in fetch.py
            log_start_offset=replica.log.log_start_offset if replica and is_out else -1,
            leader_epoch=replica.partition.leader_epoch if replica else -1,
            segment_base_offset=replica.log.first_base_offset if replica and is_out else -1,
        )

    async def answer(self, part: PartitionFetchResult) -> FetchedPartition:
        """Return the answer with its bytes; an error if this broker lost the leadership while it read them."""
        name = TopicPartition(part.topic or "", part.partition)
        answer = FetchedPartition(
            name=name,
            error=part.error,
            high_watermark=part.high_watermark,
            log_start_offset=part.log_start_offset,
            segment_base_offset=part.segment_base_offset,
            diverging=EpochEnd(part.diverging.epoch, part.diverging.end_offset) if part.diverging else None,
            leader_epoch=part.leader_epoch,
            generation=part.generation,
        )
        if part.slice is None:
            return answer
        try:
            is_small = part.slice.size <= READ_AT_ONCE
            records = part.slice.read() if is_small else await asyncio.to_thread(part.slice.read)
            replica = self._replicas.get_leader(name)
            replica.partition.check_leader_epoch(part.leader_epoch)
        except KafkaError as error:
            return FetchedPartition(name=name, error=error.with_traceback(None))
        except OSError as error:
            return FetchedPartition(name=name, error=KafkaStorageError(f"{name} could not be read: {error}"))
        if self._is_throttled(replica):
            self._throttle.sent(len(records), asyncio.get_running_loop().time())
        return replace(answer, records=records)


def _divergence(replica: Replica, part: PartitionFetch) -> EpochEnd | None:
    """Return where the follower's log diverges; None if it does not. Raises OffsetOutOfRange."""
    log = replica.log
    is_inside = log.first_base_offset <= part.fetch_offset <= log.log_end_offset
    if is_inside and part.last_fetched_epoch in (None, log.latest_epoch):
        return None  # the common case, without a search
    return find_divergence(
        log.stored_epochs.assign(replica.partition.leader_epoch, log.log_end_offset),
        first_offset=log.first_base_offset,
        end_offset=log.log_end_offset,
        fetch_offset=part.fetch_offset,
        last_epoch=part.last_fetched_epoch,
    )


def _is_news(cached: CachedPartition, found: PartitionFetchResult) -> bool:
    """Return whether the offsets are news that a follower with nothing to copy must get at once."""
    return (cached.high_watermark, cached.log_start_offset) != (found.high_watermark, found.log_start_offset)


def _is_quiet(replica: Replica, part: PartitionFetch, cached: CachedPartition) -> bool:
    """Return whether there is no news. Runs for every partition of a session at every fetch."""
    log = replica.log
    return (
        part.fetch_offset == log.log_end_offset
        and cached.high_watermark == replica.partition.high_watermark
        and cached.log_start_offset == log.log_start_offset
        and cached.segment_base_offset == log.segments[-1].base_offset
        and cached.generation == log.generation
        and (part.last_fetched_epoch is None or part.last_fetched_epoch == log.latest_epoch)
    )


API = Api(name="ReplicaFetch", handle=handle, rights=(on_cluster(AclOperation.CLUSTER_ACTION),))
