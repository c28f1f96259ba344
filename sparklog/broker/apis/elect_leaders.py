"""ElectLeaders: give partitions their preferred leader, or any that is left (key 43, versions 0 to 2).

- Any broker takes it, and has the controller do it; it answers once it sees the new leaders itself, and
  REQUEST_TIMED_OUT for partitions where that takes longer than the request allows.
- PREFERRED: the first of the replicas leads, if it is alive and in sync; PREFERRED_LEADER_NOT_AVAILABLE if not.
- UNCLEAN, where nobody leads: any live replica does, even one that is not in sync: what it has not copied is lost.
  ELIGIBLE_LEADERS_NOT_AVAILABLE where none lives.
- ELECTION_NOT_NEEDED where the leader is that one already, or (UNCLEAN) where there is one. Without a list of
  partitions, only those are in the answer that an election was needed for, as in Kafka.
- UNKNOWN_TOPIC_OR_PARTITION; INVALID_TOPIC_EXCEPTION for one whose topic is being deleted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparklog.base.clock import Clock
from sparklog.base.errors import ElectionNotNeeded, KafkaError, RequestTimedOut
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.controller_calls import ask_controller
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.peers import Peers
from sparklog.controller.controller import Controller


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersRequest:
    partitions: Sequence[TopicPartition] | None
    """None: all of them."""
    is_unclean: bool = False
    timeout_ms: int = 60_000
    is_for_controller: bool = False
    """It comes from another broker: who is not the controller refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersResponse:
    errors: Mapping[TopicPartition, KafkaError | None]
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Who was elected."""


async def handle(
    request: ElectLeadersRequest, *, clock: Clock, controller: Controller, metadata: MetadataCache, peers: Peers
) -> ElectLeadersResponse:
    if request.is_for_controller:
        return await _elect(controller, request)
    deadline_ms = clock.monotonic_ms() + request.timeout_ms
    response: ElectLeadersResponse = await ask_controller(
        dataclasses.replace(request, is_for_controller=True),
        clock=clock,
        metadata=metadata,
        peers=peers,
        timeout_ms=request.timeout_ms,
    )
    leaders = response.leaders
    left_ms = max(deadline_ms - clock.monotonic_ms(), 0)
    await metadata.wait_until(lambda: not _unseen(metadata, leaders), left_ms)
    late = RequestTimedOut("the new leader is elected, but this broker has not been told of it yet")
    return dataclasses.replace(response, errors={**response.errors, **dict.fromkeys(_unseen(metadata, leaders), late)})


async def _elect(controller: Controller, request: ElectLeadersRequest) -> ElectLeadersResponse:
    elected = await controller.ask(
        lambda active: active.operations.elect_leaders(request.partitions, is_unclean=request.is_unclean)
    )
    if request.partitions is None:
        elected = {name: each for name, each in elected.items() if not isinstance(each, ElectionNotNeeded)}
    return ElectLeadersResponse(
        errors={name: each if isinstance(each, KafkaError) else None for name, each in elected.items()},
        leaders={name: each for name, each in elected.items() if not isinstance(each, KafkaError)},
    )


def _unseen(metadata: MetadataCache, leaders: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Partitions for which this broker still tells clients of another leader; one that is gone is not waited for."""
    return [
        name
        for name, leader in leaders.items()
        if (info := metadata.find_partition(name)) is not None and info.leader != leader
    ]


API = Api(name="ElectLeaders", handle=handle, key=43, versions=(0, 2))
