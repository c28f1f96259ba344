"""ListOffsets: which offset a partition has at a position or a time.

- EARLIEST: the log start offset. LATEST: the high watermark, the offset of the next record to be committed. Both
  without a timestamp.
- A time of 0 or later: the first committed record whose timestamp is that or later; MAX_TIMESTAMP (KIP-734): the
  record with the highest timestamp, the first of them if several have it. Offset and timestamp are -1 where there is
  no such record.
- Offsets above the high watermark are never told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.log.log import TimestampOffset
from sparklog.replica.manager import Replica

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3  # in the place of a time, numbered as in Kafka's protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsetQuery:
    """`position` is a time in ms, or LATEST, EARLIEST or MAX_TIMESTAMP."""

    topic: str
    partition: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequest:
    partitions: Sequence[PartitionOffsetQuery]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffset:
    topic: str
    partition: int
    error: KafkaError | None = None
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponse:
    partitions: Sequence[PartitionOffset]


async def handle(services: Services, request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(partitions=[_answer(services, query) for query in request.partitions])


def _answer(services: Services, query: PartitionOffsetQuery) -> PartitionOffset:
    try:
        replica = services.replicas.get(TopicPartition(query.topic, query.partition))
        found = _find(replica, query.position)
    except KafkaError as error:
        return PartitionOffset(topic=query.topic, partition=query.partition, error=error)
    return PartitionOffset(
        topic=query.topic,
        partition=query.partition,
        offset=found.offset,
        timestamp_ms=found.timestamp_ms,
        leader_epoch=found.leader_epoch,
    )


def _find(replica: Replica, position: int) -> TimestampOffset:
    partition, log = replica.partition, replica.log
    nothing = TimestampOffset(-1, -1, -1)
    if position == LATEST:
        return TimestampOffset(-1, partition.high_watermark, partition.leader_epoch)
    if position == EARLIEST:
        return TimestampOffset(-1, log.log_start_offset, partition.leader_epoch)
    if position < MAX_TIMESTAMP:
        raise InvalidRequest(f"{partition.name}: {position} is neither a time nor a position")
    found = log.max_timestamp() if position == MAX_TIMESTAMP else log.offset_for_timestamp(position)
    return found if found and partition.is_committed(found.offset) else nothing


API = Api(name="ListOffsets", handle=handle, key=2, versions=(1, 11))
