"""The APIs that move partitions to other brokers, and list the moves under way.

AlterPartitionReassignments (key 45, versions 0 and 1):

- Any broker accepts the request and forwards it to the controller. Once it is answered, the reassignment is under way
  and this broker shows it in ListPartitionReassignments. Its duration depends on the brokers that copy.
- A new target replaces the partition's previous target. No target cancels the move and restores the previous replicas
  (NO_REASSIGNMENT_IN_PROGRESS if there was no move).
- INVALID_REPLICA_ASSIGNMENT: a target is empty, names a broker twice, or adds a dead broker.
  INVALID_REPLICATION_FACTOR: a target has another number of replicas, and the request forbids that (KIP-860).
  UNKNOWN_TOPIC_OR_PARTITION, also for a topic that is being deleted.

ListPartitionReassignments (key 46, version 0, as in Kafka 4):

- Any broker answers from what the controller has sent it, so it may lag for a moment. Apache Kafka asks its controller.
- Named partitions that are not moving, or do not exist, are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct, structs

from sparklog.base.acls import AclOperation
from sparklog.base.clock import Clock
from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.peers import ask_controller
from sparklog.broker.rights import on_cluster
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import PartitionInfo
from sparklog.cluster.peers import Peers
from sparklog.controller.controller import Controller

SHOWN_WITHIN_MS = 5_000
"""Longest time that an answer waits for this broker to learn of the move; the move is under way in any case."""
Targets = Mapping[TopicPartition, tuple[int, ...] | None]


class AlterPartitionReassignmentsRequest(Struct, frozen=True, kw_only=True):
    targets: Targets
    """The new replicas of each partition, in order of preference; None: cancel the move."""
    may_resize: bool = True
    """Whether a target may have another number of replicas than the partition."""
    timeout_ms: int = 60_000
    is_for_controller: bool = False
    """Forwarded by a broker: only the controller accepts it."""


class AlterPartitionReassignmentsResponse(Struct, frozen=True, kw_only=True):
    errors: Mapping[TopicPartition, KafkaError | None]


class ListPartitionReassignmentsRequest(Struct, frozen=True, kw_only=True):
    partitions: Collection[TopicPartition] | None = None
    """Partitions to look at; None: all of them."""


class ListPartitionReassignmentsResponse(Struct, frozen=True, kw_only=True):
    moving: Mapping[TopicPartition, PartitionInfo]


async def alter(
    request: AlterPartitionReassignmentsRequest,
    *,
    clock: Clock,
    controller: Controller,
    metadata: MetadataCache,
    peers: Peers,
) -> AlterPartitionReassignmentsResponse:
    """Return an error, or None, for each partition. Raises as `ask_controller` does.

    With `is_for_controller`, begin or cancel the moves; raises NotController if this broker is not the controller.
    """
    if request.is_for_controller:
        errors = await controller.ask(
            lambda active: active.operations.reassign(request.targets, may_resize=request.may_resize)
        )
        return AlterPartitionReassignmentsResponse(errors=errors)
    forwarded = structs.replace(request, is_for_controller=True)
    response: AlterPartitionReassignmentsResponse = await ask_controller(
        forwarded, clock=clock, metadata=metadata, peers=peers, timeout_ms=request.timeout_ms
    )
    started = {name: target for name, target in request.targets.items() if response.errors.get(name) is None}
    await metadata.wait_until(lambda: _shows(metadata, started), min(request.timeout_ms, SHOWN_WITHIN_MS))
    return response


def _shows(metadata: MetadataCache, started: Targets) -> bool:
    """Return whether this broker shows every move, under way or complete; deleted partitions do not count."""
    for name, target in started.items():
        info = metadata.find_partition(name)
        if info is None:
            continue
        is_shown = not info.adding and not info.removing
        if target is not None:
            is_shown = tuple(broker for broker in info.replicas if broker not in info.removing) == target
        if not is_shown:
            return False
    return True


async def list_moving(
    request: ListPartitionReassignmentsRequest, *, metadata: MetadataCache
) -> ListPartitionReassignmentsResponse:
    """Return the partitions that have replicas to add or to remove; no list of partitions (None): of all topics."""
    wanted = None if request.partitions is None else set(request.partitions)
    moving = {}
    for topic in metadata:
        for number, info in enumerate(topic.partitions):
            name = TopicPartition(topic.name, number)
            if (info.adding or info.removing) and (wanted is None or name in wanted):
                moving[name] = info
    return ListPartitionReassignmentsResponse(moving=moving)


ALTER_PARTITION_REASSIGNMENTS = Api(
    name="AlterPartitionReassignments",
    summary="move partitions to other brokers, or cancel moves",
    handle=alter,
    rights=(on_cluster(AclOperation.ALTER),),
    key=45,
    versions=(0, 1),
)
LIST_PARTITION_REASSIGNMENTS = Api(
    name="ListPartitionReassignments",
    summary="list the partitions that are moving to other brokers",
    handle=list_moving,
    rights=(on_cluster(AclOperation.DESCRIBE),),
    key=46,
    versions=(0, 0),
)
