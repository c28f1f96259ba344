"""Produce: append record batches to partitions (key 0, versions 3 to 13).

- Batches are stored as they come (records/batch.py: checked, not decompressed); their base offsets are ignored. If
  the topic's compression.type is not `producer`, a batch with another codec is compressed anew first
  (records/recompression.py), in a thread.
- acks=1: the response comes once the leader has appended. acks=-1 (all): once every in-sync replica has the records.
  acks=0: the listener sends no response.
- With acks=all and the records appended, a partition may get one of these errors:
  REQUEST_TIMED_OUT: the in-sync replicas do not have the records within `timeout_ms`.
  NOT_ENOUGH_REPLICAS_AFTER_APPEND: fewer in-sync replicas are left than min.insync.replicas.
  NOT_LEADER_OR_FOLLOWER, at once: this broker lost the leadership. The records may or may not survive; an idempotent
  producer that resends them has them once.
  KAFKA_STORAGE_ERROR: the disk has failed.
- NOT_LEADER_OR_FOLLOWER if another broker leads; nothing is appended.
- A missing topic is created with the broker's defaults if the request allows it and auto.create.topics.enable is set.
  Kafka's protocol creates topics on a metadata request, not here.
- Clients cannot write to internal topics (INVALID_TOPIC_EXCEPTION).
- If flush.messages requires a flush, the response waits until the records are on disk, and readers do not see them
  before; the event loop does not wait.
- A batch with a producer id must be the producer's next (log/producers/producer_state.py). A duplicate gets the
  original answer and is not written again. Its log append time is returned only if the broker sets the timestamps;
  Apache Kafka always returns the batch's timestamp. A negative epoch, or a negative id other than -1, gets
  INVALID_RECORD; Apache Kafka accepts both unchecked.
- A batch of a transaction is accepted once the transaction's coordinator has said that the partition is enrolled in it
  (broker/verification.py): INVALID_TXN_STATE, or TRANSACTION_ABORTABLE for clients that know it, if it is not.
- Requests append in the order in which their handlers start, provided that their topics exist. A large request
  (`is_appended_in_parts`) yields to others meanwhile: a caller that needs an order must wait for its end. It must also
  have what may wait done before (`PREPARE`): transactions verified, and batches compressed anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from sparklog.base.acls import CLUSTER_NAME, AclOperation, AclResourceType
from sparklog.base.clock import Clock
from sparklog.base.errors import InvalidRequiredAcks, InvalidTopic, KafkaError, NotLeaderOrFollower, RequestTimedOut
from sparklog.base.ids import INTERNAL_TOPICS, TopicPartition
from sparklog.broker.api import Api, Operation
from sparklog.broker.metrics import Metrics
from sparklog.broker.recompression import RecompressionJob, Recompressor
from sparklog.broker.rights import TOPIC, TRANSACTIONAL_ID, Access, OnEach, on_transactional_id, topic_of
from sparklog.broker.topics import Topics
from sparklog.broker.verification import FirstBatch, TransactionVerifier, VerificationResult
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import CurrentLeader
from sparklog.coordinator.transaction_messages import PROTOCOL_1, TransactionProtocol
from sparklog.records.batch import HEADER_SIZE, read_header
from sparklog.records.recompression import Compression, compression_of, has_codec
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.slices import Slices, in_parts
from sparklog.runtime.state_machine import ProducerIdAndEpoch

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
DEFAULT_TIMEOUT_MS = 30_000
NOT_VERIFIED: Mapping[TopicPartition, VerificationResult] = MappingProxyType({})
TOGETHER, BYTES_TOGETHER = 1_000, 8 << 20
"""Partitions and bytes that are appended without yielding: 10 ms."""
PART, PART_BYTES = 100, 1 << 20
"""In larger requests: partitions and bytes that are appended between two checks of the clock."""


class PartitionProduce(Struct, frozen=True, kw_only=True):
    """Batches for one partition. The broker modifies `data`: it writes offsets into it."""

    topic: str
    partition: int
    data: bytearray | memoryview
    current_leader_epoch: int | None = None
    error: KafkaError | None = None
    """The error with which `PREPARE` has refused the batches."""


class ProduceRequest(Struct, frozen=True, kw_only=True):
    acks: int = ACKS_ALL
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    partitions: Sequence[PartitionProduce]
    creates_topics: bool = True
    """Whether missing topics are created, if auto.create.topics.enable is set."""
    writes_internal_topics: bool = False
    transactional_id: str | None = None
    """The producer's, if batches of the request are in its transaction."""
    protocol: TransactionProtocol = PROTOCOL_1
    verified: Mapping[TopicPartition, VerificationResult] | None = None
    """The results of `PREPARE` for transactions; None: the handler prepares the request itself."""


class PartitionProduceResult(Struct, frozen=True, kw_only=True):
    """The result of one partition; the offsets are -1 if there is an error."""

    topic: str
    partition: int
    error: KafkaError | None = None
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    current_leader: CurrentLeader | None = None
    """With `is_told_leader`: the leader, if there is one."""

    @property
    def is_told_leader(self) -> bool:
        """Whether the client is told the current leader, which saves it a Metadata request (KIP-951)."""
        return isinstance(self.error, NotLeaderOrFollower)


def is_appended_in_parts(request: ProduceRequest) -> bool:
    """Return whether other requests run while this one is appended."""
    size = 0
    for part in request.partitions:
        size += len(part.data)
    return size > BYTES_TOGETHER or len(request.partitions) > TOGETHER


class ProduceResponse(Struct, frozen=True, kw_only=True):
    partitions: Sequence[PartitionProduceResult] = field(default_factory=list)


class _PendingAppend(NamedTuple):
    """Appended batches that wait for a flush or for replicas."""

    place: int
    """Index in the response."""
    replica: Replica
    led_since: int
    """`Partition.led_since` at the time of the append."""
    last_offset: int
    must_flush: bool

    def is_settled(self, acks: int) -> bool:
        """Return whether the batches can be acknowledged. Raises as `Partition.is_replicated` does."""
        return acks != ACKS_ALL or self.replica.is_replicated(self.last_offset, self.led_since)


class Produce(Struct, frozen=True, kw_only=True, eq=False):
    """Appends to the replicas that this broker leads, and waits for disks and other brokers."""

    metadata: MetadataCache
    metrics: Metrics
    recompressor: Recompressor
    replicas: ReplicaManager
    slices: Slices
    topics: Topics
    verifier: TransactionVerifier
    waiting: Purgatory[TopicPartition]

    async def __call__(self, request: ProduceRequest) -> ProduceResponse:
        """Raises InvalidRequiredAcks for acks other than -1, 0 and 1."""
        if request.acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            raise InvalidRequiredAcks(f"acks = {request.acks}: it must be 0, 1 or -1 (all)")
        if request.creates_topics:
            await create_missing_topics(request, metadata=self.metadata, topics=self.topics)
        results: list[PartitionProduceResult] = []
        pending: list[_PendingAppend] = []
        if request.verified is None and (request.transactional_id is not None or self.replicas.compressions):
            request = await prepare(
                request, recompressor=self.recompressor, replicas=self.replicas, verifier=self.verifier
            )
        verified = request.verified or NOT_VERIFIED
        if not is_appended_in_parts(request):
            self._append_all(request, request.partitions, results, pending, verified)
        else:

            async def append(parts: Sequence[PartitionProduce]) -> None:
                self._append_all(request, parts, results, pending, verified)

            parts = in_parts(request.partitions, lambda part: max(len(part.data), PART_BYTES // PART), PART_BYTES)
            await self.slices.each(parts, append)
        if pending:
            await self._settle(request, results, pending)
        return ProduceResponse(partitions=results)

    def _append_all(
        self,
        request: ProduceRequest,
        parts: Sequence[PartitionProduce],
        results: list[PartitionProduceResult],
        pending: list[_PendingAppend],
        verified: Mapping[TopicPartition, VerificationResult],
    ) -> None:
        """Append to each partition; add the result to `results`, and to `pending` if it must wait."""
        acks, replicas = request.acks, self.replicas
        for part in parts:
            topic, number = part.topic, part.partition
            name = TopicPartition(topic, number)
            try:
                if topic in INTERNAL_TOPICS and not request.writes_internal_topics:
                    raise InvalidTopic(f"{topic} is written by brokers only")
                replica = replicas.get_leader(name)
                verification = verified.get(name) if verified else None
                if isinstance(verification, KafkaError):
                    raise verification
                if part.error:
                    raise part.error
                appended = replicas.append(
                    replica, part.data, acks=acks, leader_epoch=part.current_leader_epoch, verification=verification
                )
            except KafkaError as error:
                results.append(self._failed(topic, number, error))
                continue
            last_offset = appended.last_offset
            if not appended.is_duplicate:
                self.metrics.appended(topic, appended.size_bytes, last_offset - appended.first_offset + 1)
            partition = replica.partition
            if appended.must_flush or (acks == ACKS_ALL and not partition.is_committed(last_offset)):
                pending.append(
                    _PendingAppend(len(results), replica, partition.led_since, last_offset, appended.must_flush)
                )
            results.append(
                PartitionProduceResult(
                    topic=topic,
                    partition=number,
                    base_offset=appended.first_offset,
                    last_offset=last_offset,
                    log_append_time_ms=appended.log_append_time_ms,
                    log_start_offset=appended.log_start_offset,
                )
            )

    async def _settle(
        self, request: ProduceRequest, results: list[PartitionProduceResult], pending: list[_PendingAppend]
    ) -> None:
        """Wait for disks and replicas; put an error into each of `results` that is not acknowledged in time."""

        async def flush(each: _PendingAppend) -> None:
            try:
                await self.replicas.flush(each.replica)
            except KafkaError as error:
                results[each.place] = self._failed(*each.replica.partition.name, error)

        # Start all flushes before waiting for any: the client may disconnect, and readers see records only once they
        # are flushed.
        if due := [each for each in pending if each.must_flush]:
            await asyncio.gather(*map(flush, due))
        waiting: dict[TopicPartition, list[_PendingAppend]] = {}
        for each in reversed(pending):
            if results[each.place].error is None:
                waiting.setdefault(each.replica.partition.name, []).append(each)

        def is_settled(each: _PendingAppend) -> bool:
            try:
                return each.is_settled(request.acks)
            except KafkaError as error:
                results[each.place] = self._failed(*each.replica.partition.name, self._why_gone(each) or error)
                return True

        def settle(name: TopicPartition) -> bool | None:
            """Check a partition that has changed; return True once no partition waits.

            Its batches are committed in order, and `waiting` has the first one last. To check all batches at each
            change would take time by the square of their number.
            """
            left = waiting.get(name)
            while left and is_settled(left[-1]):
                left.pop()
            if not left:
                waiting.pop(name, None)
            return None if waiting else True

        for name in tuple(waiting):
            settle(name)
        if waiting and await self.waiting.watch(tuple(waiting), settle, request.timeout_ms) is None:
            for each in chain.from_iterable(waiting.values()):
                results[each.place] = self._failed(*each.replica.partition.name, _not_in_time(each, request.timeout_ms))

    def _failed(self, topic: str, partition: int, error: KafkaError) -> PartitionProduceResult:
        failed = PartitionProduceResult(
            topic=topic, partition=partition, error=error.with_traceback(None)
        )  # as in fetch.py
        if not failed.is_told_leader:
            return failed
        return replace(failed, current_leader=self.metadata.current_leader(TopicPartition(topic, partition)))

    def _why_gone(self, pending: _PendingAppend) -> KafkaError | None:
        """Return why the replica is gone, such as a failed disk; None if this broker has only lost the leadership."""
        try:
            self.replicas.get(pending.replica.partition.name)
        except KafkaError as error:
            return error
        return None


async def prepare(
    request: ProduceRequest, *, recompressor: Recompressor, replicas: ReplicaManager, verifier: TransactionVerifier
) -> ProduceRequest:
    """Return the request with batches that have their topics' codecs, and its transactions verified.

    A request without either stays as it is.
    """
    if replicas.compressions:
        request = await _recompress(request, recompressor, replicas)
    if request.transactional_id is None:
        return request
    batches = _transactional_batches(request.partitions)
    return replace(request, verified=await verifier.verify(request.transactional_id, batches, request.protocol))


async def _recompress(request: ProduceRequest, recompressor: Recompressor, replicas: ReplicaManager) -> ProduceRequest:
    """Return the request with batches that have their topics' codecs. Only partitions led here are looked at."""
    jobs: dict[int, RecompressionJob] = {}
    for place, part in enumerate(request.partitions):
        name = TopicPartition(part.topic, part.partition)
        compression = replicas.compressions.get(name)
        if compression is None or has_codec(part.data, compression.codec):
            continue
        replica = replicas.find(name)
        if replica and replica.partition.is_leader:
            jobs[place] = RecompressionJob(part.data, compression, replica.config.max_message_bytes)
    if not jobs:
        return replace(request, verified=NOT_VERIFIED)
    done = await recompressor.run(jobs)
    partitions = [
        replace(part, data=done[place].data, error=done[place].error) if place in done else part
        for place, part in enumerate(request.partitions)
    ]
    return replace(request, partitions=partitions, verified=NOT_VERIFIED)


def _transactional_batches(parts: Sequence[PartitionProduce]) -> dict[TopicPartition, FirstBatch]:
    """Return each partition's first transactional batch. Invalid batches are left to the append."""
    found: dict[TopicPartition, FirstBatch] = {}
    for part in parts:
        if len(part.data) >= HEADER_SIZE and (header := read_header(part.data)).is_transactional:
            name = TopicPartition(part.topic, part.partition)
            producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
            found.setdefault(name, FirstBatch(producer, header.base_sequence))
    return found


async def create_missing_topics(request: ProduceRequest, *, metadata: MetadataCache, topics: Topics) -> None:
    """Create missing topics, if auto.create.topics.enable is set; the append reports those that failed."""
    for part in request.partitions:
        if part.topic not in metadata and part.topic not in INTERNAL_TOPICS:
            with suppress(KafkaError):
                await topics.find_or_create(part.topic)


class ProduceTarget(NamedTuple):
    """A topic's settings that a listener needs to encode records."""

    partitions: int
    max_batch_bytes: int
    compression: Compression | None
    """The compression of the records; None: the client chooses."""
    now_ms: int
    """The broker's time, for records without a timestamp."""


async def find_target(topic: str, *, clock: Clock, topics: Topics) -> ProduceTarget:
    """Return the topic to produce to; create it if it is missing and auto.create.topics.enable is set.

    Raises UnknownTopicOrPartition if there is no such topic, and as `Topics.find_or_create` does.
    """
    found = await topics.find_or_create(topic)
    config = found.config
    return ProduceTarget(len(found.partitions), config.max_message_bytes, compression_of(config), clock.time_ms())


def check_transactional_id(access: Access, transactional_id: str | None) -> None:
    """Raises TransactionalIdAuthorizationFailed if the client may not write as this transactional id."""
    if transactional_id is not None:
        access.check(AclOperation.WRITE, TRANSACTIONAL_ID, transactional_id)


def check_topic(access: Access, topic: str) -> None:
    """Raises TopicAuthorizationFailed if the client may not write to the topic, or may not create a missing one.

    For listeners whose requests have other steps between this check and the append.
    """
    access.check(AclOperation.WRITE, TOPIC, topic)
    if access.creates_topics and topic not in access.topics:
        may_create_any = access.may(AclOperation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME)
        if not may_create_any:
            access.check(AclOperation.CREATE, TOPIC, topic)


def _not_in_time(pending: _PendingAppend, timeout_ms: int) -> RequestTimedOut:
    return RequestTimedOut(f"{pending.replica.partition.name}: the in-sync replicas took longer than {timeout_ms} ms")


def _refused(part: PartitionProduce, error: KafkaError) -> PartitionProduceResult:
    return PartitionProduceResult(topic=part.topic, partition=part.partition, error=error)


API = Api(
    name="Produce",
    handle=Produce,
    rights=(
        on_transactional_id(AclOperation.WRITE),
        OnEach(AclOperation.WRITE, TOPIC, "partitions", topic_of, _refused, "partitions"),
    ),
    key=0,
    versions=(3, 13),
)
CREATE_MISSING_TOPICS = Operation(handle=create_missing_topics, rights=())
FIND_TARGET = Operation(handle=find_target, rights=())
PREPARE = Operation(handle=prepare, rights=())
