"""AlterPartitionReassignments: move partitions to other brokers, or stop moving them (key 45, versions 0 and 1).

- Any broker takes it, and has the controller do it. Once it is answered the reassignment is under way, and this broker
  shows it in ListPartitionReassignments; how long it lasts is for the brokers to say that copy.
- A partition's target replaces the one it was moving to; none stops the move, and what was there before is again
  (NO_REASSIGNMENT_IN_PROGRESS where there was none).
- INVALID_REPLICA_ASSIGNMENT: a target that is empty, names a broker twice, or adds one that is not alive.
  INVALID_REPLICATION_FACTOR: another number of replicas, where the request says that this is not wanted (KIP-860).
  UNKNOWN_TOPIC_OR_PARTITION, also for a topic that is being deleted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.base.clock import Clock
from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.controller_calls import ask_controller
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.peers import Peers
from sparklog.controller.controller import Controller

SHOWN_WITHIN_MS = 5_000
"""How long an answer waits for this broker to be told of the move; it is under way, told or not."""
Targets = Mapping[TopicPartition, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest:
    targets: Targets
    """Who is to have each partition, in their order of preference; None: who had it before it was moved."""
    may_resize: bool = True
    """Whether a target may have more or fewer replicas than there are."""
    timeout_ms: int = 60_000
    is_for_controller: bool = False
    """It comes from another broker: who is not the controller refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse:
    errors: Mapping[TopicPartition, KafkaError | None]


async def handle(
    request: AlterPartitionReassignmentsRequest,
    *,
    clock: Clock,
    controller: Controller,
    metadata: MetadataCache,
    peers: Peers,
) -> AlterPartitionReassignmentsResponse:
    if request.is_for_controller:
        errors = await controller.ask(
            lambda active: active.operations.reassign(request.targets, may_resize=request.may_resize)
        )
        return AlterPartitionReassignmentsResponse(errors=errors)
    forwarded = dataclasses.replace(request, is_for_controller=True)
    response: AlterPartitionReassignmentsResponse = await ask_controller(
        forwarded, clock=clock, metadata=metadata, peers=peers, timeout_ms=request.timeout_ms
    )
    started = {name: target for name, target in request.targets.items() if response.errors.get(name) is None}
    await metadata.wait_until(lambda: _shows(metadata, started), min(request.timeout_ms, SHOWN_WITHIN_MS))
    return response


def _shows(metadata: MetadataCache, started: Targets) -> bool:
    """Whether every partition is on its way, or there; one that is gone meanwhile is not waited for."""
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


API = Api(name="AlterPartitionReassignments", handle=handle, key=45, versions=(0, 1))
