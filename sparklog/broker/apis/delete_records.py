"""DeleteRecords: advance the log start offset of partitions (key 21).

- Once the response has come, readers no longer see records before `before_offset`, and no live replica would bring them
  back as the leader: the answer, the low watermark, is the lowest log start offset of the live replicas. Followers
  advance theirs when they fetch. The next round of retention deletes segments that hold no other records.
  `before_offset` -1 means the high watermark: all committed records are deleted.
- The leader's log start offset is on disk before the answer, so a crash does not bring the records back. Apache Kafka
  writes it once a minute.
- REQUEST_TIMED_OUT if a follower has not advanced within `timeout_ms`; the leader's log start has still moved.
  NOT_LEADER_OR_FOLLOWER if another broker leads, or becomes the leader meanwhile.
- OFFSET_OUT_OF_RANGE for an offset above the high watermark, or a negative one other than -1. An offset below the log
  start changes nothing.
- POLICY_VIOLATION if the topic's cleanup.policy does not include "delete".
- Versions 0 to 2, as in Kafka 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.errors import KafkaError, OffsetOutOfRange, PolicyViolation, RequestTimedOut
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import TOPIC, OnEach, topic_of
from sparklog.log.directory.manager import LogManager
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.runtime.purgatory import Purgatory

HIGH_WATERMARK = -1
DEFAULT_TIMEOUT_MS = 30_000


class RecordsToDelete(Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    before_offset: int


class DeleteRecordsRequest(Struct, frozen=True, kw_only=True):
    partitions: Sequence[RecordsToDelete]
    timeout_ms: int = DEFAULT_TIMEOUT_MS


class RecordDeletionResult(Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    error: KafkaError | None = None
    log_start_offset: int = -1


class DeleteRecordsResponse(Struct, frozen=True, kw_only=True):
    partitions: Sequence[RecordDeletionResult]


async def handle(
    request: DeleteRecordsRequest,
    *,
    logs: LogManager,
    replicas: ReplicaManager,
    waiting: Purgatory[TopicPartition],
) -> DeleteRecordsResponse:
    """Return the low watermark or an error for each partition, in their order."""
    results = [_delete(replicas, part) for part in request.partitions]
    begun = [each for each in results if isinstance(each, _PendingDeletion)]
    if begun:
        names = [each.replica.partition.name for each in begun]
        for name in names:
            replicas.log_start_changed(name)  # answer waiting followers now, with the new log start
        await asyncio.to_thread(logs.tasks.checkpoint_log_starts)
        await waiting.wait(names, lambda: all(each.is_settled() for each in begun) or None, request.timeout_ms)
    return DeleteRecordsResponse(
        partitions=[each.answer() if isinstance(each, _PendingDeletion) else each for each in results]
    )


class _PendingDeletion(Struct, frozen=True):
    """A deletion in progress: the leader's log start has moved, and the followers have to advance theirs."""

    replicas: ReplicaManager
    part: RecordsToDelete
    replica: Replica
    target: int

    def is_settled(self) -> bool:
        if not self.replica.partition.is_leader:
            return True
        return self.replicas.low_watermark(self.replica) >= self.target

    def answer(self) -> RecordDeletionResult:
        name = self.replica.partition.name
        try:
            self.replicas.get_leader(name)
            if not self.is_settled():
                raise RequestTimedOut(f"{name}: a replica's log does not begin at {self.target} yet")
        except KafkaError as error:
            return _refused(self.part, error)
        return RecordDeletionResult(
            topic=name.topic,
            partition=name.partition,
            log_start_offset=self.replicas.low_watermark(self.replica),
        )


def _delete(replicas: ReplicaManager, part: RecordsToDelete) -> RecordDeletionResult | _PendingDeletion:
    try:
        replica = replicas.get_leader(TopicPartition(part.topic, part.partition))
        return _PendingDeletion(replicas, part, replica, _advance(replica, part.before_offset))
    except KafkaError as error:
        return _refused(part, error)


def _refused(part: RecordsToDelete, error: KafkaError) -> RecordDeletionResult:
    return RecordDeletionResult(topic=part.topic, partition=part.partition, error=error)


def _advance(replica: Replica, before_offset: int) -> int:
    """Advance the leader's log start. Return the offset that all replicas' log starts must reach."""
    name = replica.partition.name
    if "delete" not in replica.config.cleanup_policy:
        raise PolicyViolation(f"{name}: cleanup.policy has no 'delete', so its records cannot be deleted")
    high_watermark = replica.partition.high_watermark
    if before_offset > high_watermark or before_offset < HIGH_WATERMARK:
        raise OffsetOutOfRange(f"{name}: cannot delete up to {before_offset}; the high watermark is {high_watermark}")
    target = high_watermark if before_offset == HIGH_WATERMARK else before_offset
    if target > replica.log.log_start_offset:
        replica.log.advance_log_start(target)
    return target


API = Api(
    name="DeleteRecords",
    handle=handle,
    rights=(OnEach(AclOperation.DELETE, TOPIC, "partitions", topic_of, _refused, "partitions"),),
    key=21,
    versions=(0, 2),
)
