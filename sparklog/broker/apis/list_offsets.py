"""ListOffsets: find the offset of a partition at a position or a time (key 2, versions 1 to 11).

- EARLIEST: the log start offset, with the leader epoch of the record there. LATEST: the high watermark, the offset of
  the next record to be committed; for a reader of committed records, the last stable offset. Both come without a
  timestamp.
- A time of 0 or later: the first committed record with that timestamp or a later one. MAX_TIMESTAMP (KIP-734): the
  record with the highest timestamp, the first one if several have it. Offset and timestamp are -1 if there is no such
  record. Both look into files, in a thread.
- Segments are on this broker's disks only (KIP-405): EARLIEST_LOCAL is EARLIEST; LATEST_TIERED and
  EARLIEST_PENDING_UPLOAD do not exist here, so both are -1.
- Offsets above the high watermark are never returned; to a reader of committed records, none from the last stable
  offset on.
- Only the leader answers: NOT_LEADER_OR_FOLLOWER elsewhere. A new leader does not know at once how much its predecessor
  had committed. Until then it answers OFFSET_NOT_AVAILABLE for LATEST, and for a time for which it has no committed
  record: the offsets that a client sees must never go back (KIP-207).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import TOPIC, OnEach, topic_of
from sparklog.log.log import TimestampOffset
from sparklog.replica.manager import Replica, ReplicaManager

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3  # used instead of a time, numbered as in Kafka's protocol
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
NOTHING = TimestampOffset(-1, -1, -1)


class PartitionOffsetQuery(Struct, frozen=True, kw_only=True):
    """`position` is a timestamp in ms, or one of the constants above."""

    topic: str
    partition: int
    position: int
    current_leader_epoch: int | None = None


class ListOffsetsRequest(Struct, frozen=True, kw_only=True):
    partitions: Sequence[PartitionOffsetQuery]
    is_read_committed: bool = False


class PartitionOffset(Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    error: KafkaError | None = None
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


class ListOffsetsResponse(Struct, frozen=True, kw_only=True):
    partitions: Sequence[PartitionOffset]


async def handle(request: ListOffsetsRequest, *, replicas: ReplicaManager) -> ListOffsetsResponse:
    """Return the offset or an error of each partition, in their order."""
    found = [_replica(replicas, query) for query in request.partitions]

    def answer_all() -> list[PartitionOffset]:
        return [_answer(query, replica, request) for query, replica in zip(request.partitions, found, strict=True)]

    if any(query.position >= 0 or query.position == MAX_TIMESTAMP for query in request.partitions):
        return ListOffsetsResponse(partitions=await asyncio.to_thread(answer_all))
    return ListOffsetsResponse(partitions=answer_all())


def _replica(replicas: ReplicaManager, query: PartitionOffsetQuery) -> Replica | KafkaError:
    try:
        replica = replicas.get_leader(TopicPartition(query.topic, query.partition))
        replica.partition.check_leader_epoch(query.current_leader_epoch)
    except KafkaError as error:
        return error
    return replica


def _answer(query: PartitionOffsetQuery, replica: Replica | KafkaError, request: ListOffsetsRequest) -> PartitionOffset:
    """Answer one query. May block; safe on any thread, as what it reads only grows."""
    try:
        if isinstance(replica, KafkaError):
            raise replica
        offset = _find(replica, query.position, is_read_committed=request.is_read_committed)
    except KafkaError as error:
        return PartitionOffset(topic=query.topic, partition=query.partition, error=error)
    return PartitionOffset(
        topic=query.topic,
        partition=query.partition,
        offset=offset.offset,
        timestamp_ms=offset.timestamp_ms,
        leader_epoch=offset.leader_epoch,
    )


def _find(replica: Replica, position: int, *, is_read_committed: bool) -> TimestampOffset:
    partition, log = replica.partition, replica.log
    end = replica.last_stable_offset if is_read_committed else partition.high_watermark
    if position == LATEST:
        partition.check_offset_is_known()
        return TimestampOffset(-1, end, partition.leader_epoch)
    if position in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(-1, log.log_start_offset, log.epochs.epoch_at(log.log_start_offset))
    if position in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    if position < MAX_TIMESTAMP:
        raise InvalidRequest(f"{partition.name}: {position} is neither a time nor a position")
    found = log.max_timestamp() if position == MAX_TIMESTAMP else log.offset_for_timestamp(position)
    if found and found.offset < end:
        return found
    partition.check_offset_is_known()
    return NOTHING


def _refused(part: PartitionOffsetQuery, error: KafkaError) -> PartitionOffset:
    return PartitionOffset(topic=part.topic, partition=part.partition, error=error)


API = Api(
    name="ListOffsets",
    handle=handle,
    rights=(OnEach(AclOperation.DESCRIBE, TOPIC, "partitions", topic_of, _refused, "partitions"),),
    key=2,
    versions=(1, 11),
)
