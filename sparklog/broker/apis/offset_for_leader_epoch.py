"""OffsetForLeaderEpoch: find where the records of a leader epoch end (key 23, versions 2 to 4; KIP-101, KIP-320).

- After a leader change, a consumer requests the end of its last record's epoch. If that epoch ends below the consumer's
  position, the log was truncated.
- The answer is the greatest epoch at or below the requested one, and its end offset; -1 and -1 for an epoch above the
  leader's own.
- Only the leader answers: NOT_LEADER_OR_FOLLOWER elsewhere. `current_leader_epoch` is compared with the leader's:
  FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import TOPIC, OnEach, OneOf, on_cluster, topic_of
from sparklog.replica.manager import ReplicaManager


class EpochQuery(Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    leader_epoch: int
    current_leader_epoch: int | None = None


class OffsetForLeaderEpochRequest(Struct, frozen=True, kw_only=True):
    partitions: Sequence[EpochQuery]


class PartitionEpochEnd(Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    error: KafkaError | None = None
    leader_epoch: int = -1
    end_offset: int = -1


class OffsetForLeaderEpochResponse(Struct, frozen=True, kw_only=True):
    partitions: Sequence[PartitionEpochEnd]


async def handle(request: OffsetForLeaderEpochRequest, *, replicas: ReplicaManager) -> OffsetForLeaderEpochResponse:
    """Return the epoch and its end offset, exclusive, or an error, for each partition in their order."""
    return OffsetForLeaderEpochResponse(partitions=[_answer(replicas, query) for query in request.partitions])


def _answer(replicas: ReplicaManager, query: EpochQuery) -> PartitionEpochEnd:
    try:
        replica = replicas.get_leader(TopicPartition(query.topic, query.partition))
        replica.partition.check_leader_epoch(query.current_leader_epoch)
    except KafkaError as error:
        return PartitionEpochEnd(topic=query.topic, partition=query.partition, error=error)
    end = replica.end_offset_for(query.leader_epoch)
    return PartitionEpochEnd(
        topic=query.topic, partition=query.partition, leader_epoch=end.epoch, end_offset=end.end_offset
    )


def _refused(part: EpochQuery, error: KafkaError) -> PartitionEpochEnd:
    return PartitionEpochEnd(topic=part.topic, partition=part.partition, error=error)


API = Api(
    name="OffsetForLeaderEpoch",
    handle=handle,
    rights=(
        OneOf(
            (on_cluster(AclOperation.CLUSTER_ACTION),),
            OnEach(AclOperation.DESCRIBE, TOPIC, "partitions", topic_of, _refused, "partitions"),
        ),
    ),
    key=23,
    versions=(2, 4),
)
