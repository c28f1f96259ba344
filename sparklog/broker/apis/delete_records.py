"""DeleteRecords: move the log start offset of partitions up (key 21).

- Everything before `before_offset` is gone for readers once the response is there; segments that hold nothing else go
  with the next round of retention. -1: the high watermark, so everything that is committed goes.
- An offset above the high watermark, or a negative one other than -1, is OFFSET_OUT_OF_RANGE; one below the log start
  changes nothing.
- Refused with POLICY_VIOLATION where the topic's cleanup.policy has no "delete".
- Versions 0 to 2, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.base.errors import KafkaError, OffsetOutOfRange, PolicyViolation
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.services import Services

HIGH_WATERMARK = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsToDelete:
    topic: str
    partition: int
    before_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsRequest:
    partitions: Sequence[RecordsToDelete]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsDeleted:
    topic: str
    partition: int
    error: KafkaError | None = None
    log_start_offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsResponse:
    partitions: Sequence[RecordsDeleted]


async def handle(services: Services, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(partitions=[_delete(services, part) for part in request.partitions])


def _delete(services: Services, part: RecordsToDelete) -> RecordsDeleted:
    try:
        log_start_offset = _advance(services, TopicPartition(part.topic, part.partition), part.before_offset)
    except KafkaError as error:
        return RecordsDeleted(topic=part.topic, partition=part.partition, error=error)
    return RecordsDeleted(topic=part.topic, partition=part.partition, log_start_offset=log_start_offset)


def _advance(services: Services, name: TopicPartition, before_offset: int) -> int:
    replica = services.replicas.get(name)
    if "delete" not in replica.config.cleanup_policy:
        raise PolicyViolation(f"{name}: cleanup.policy has no 'delete', so its records cannot be deleted")
    high_watermark = replica.partition.high_watermark
    if before_offset > high_watermark or before_offset < HIGH_WATERMARK:
        raise OffsetOutOfRange(f"{name}: cannot delete up to {before_offset}; the high watermark is {high_watermark}")
    target = high_watermark if before_offset == HIGH_WATERMARK else before_offset
    if target > replica.log.log_start_offset:
        replica.log.advance_log_start(target)
    return replica.log.log_start_offset


API = Api(name="DeleteRecords", handle=handle, key=21, versions=(0, 2))
