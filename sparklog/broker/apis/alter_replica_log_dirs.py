"""AlterReplicaLogDirs: move this broker's replicas to other log directories (key 34).

- Each broker answers for its own replicas. It answers once the moves have begun; DescribeLogDirs shows their progress,
  and the new directory when they are done. Replicas stay readable and writable.
- A new request for a moving replica replaces the first one; a request for the replica's present directory ends the
  move.
- LOG_DIR_NOT_FOUND for a path that is not in log.dirs. KAFKA_STORAGE_ERROR if the replica or any of the directories is
  offline, or the target is full. INVALID_REPLICA_ASSIGNMENT for a broker that is cordoned. INVALID_TOPIC_EXCEPTION if
  the name is so long that that of the copy's folder would have more than 255 characters.
- REPLICA_NOT_AVAILABLE if this broker has no replica. If the cluster has the partition, the broker remembers the
  directory until it restarts: a replica that it gets later is created there.
- A move that a restart interrupts begins again, with a new copy; Kafka's continues with the partial copy.
- replica.alter.log.dirs.io.max.bytes.per.second limits the copying.
- Versions 1 and 2, as in Kafka 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import InvalidReplicaAssignment, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.resources import CORDONED
from sparklog.broker.rights import on_cluster
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.log.directory.manager import LogManager


class ReplicaLogDir(Struct, frozen=True, kw_only=True):
    """The target directory of a replica of this broker."""

    topic: str
    partition: int
    path: str
    """The absolute path of a log directory."""


class AlterReplicaLogDirsRequest(Struct, frozen=True, kw_only=True):
    replicas: Sequence[ReplicaLogDir]


class AlterReplicaLogDirsResponse(Struct, frozen=True, kw_only=True):
    errors: Mapping[TopicPartition, KafkaError | None]
    """In the order of the request."""


async def handle(
    request: AlterReplicaLogDirsRequest, *, config: BrokerConfig, logs: LogManager, metadata: MetadataCache
) -> AlterReplicaLogDirsResponse:
    """Begin the moves, in a thread; return an error, or None, for each replica."""
    wanted = {TopicPartition(each.topic, each.partition): each.path for each in request.replicas}
    if config.broker_id in metadata.brokers_with(CORDONED):
        cordoned = InvalidReplicaAssignment(
            f"broker {config.broker_id} is cordoned: it keeps its replicas where they are"
        )
        return AlterReplicaLogDirsResponse(errors=dict.fromkeys(wanted, cordoned))
    known = {name for name in wanted if metadata.has(name)}

    def begin_all() -> dict[TopicPartition, KafkaError | None]:
        return {name: _begin(logs, name, path, is_known=name in known) for name, path in wanted.items()}

    return AlterReplicaLogDirsResponse(errors=await asyncio.to_thread(begin_all))


def _begin(logs: LogManager, name: TopicPartition, path: str, *, is_known: bool) -> KafkaError | None:
    try:
        logs.moves.begin(name, path, is_known=is_known)
    except KafkaError as error:
        return error
    return None


API = Api(name="AlterReplicaLogDirs", handle=handle, rights=(on_cluster(AclOperation.ALTER),), key=34, versions=(1, 2))
