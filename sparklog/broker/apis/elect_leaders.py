"""ElectLeaders: give partitions their preferred leader, or any that is left (key 43).

- A partition has one replica, and that leads: ELECTION_NOT_NEEDED. One that is offline or does not exist has its own
  error: there is nobody to elect.
- Without a list of partitions, only those are in the answer that an election would have been for, as in Kafka.
- Versions 0 to 2, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparklog.base.errors import ElectionNotNeeded, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.services import Services


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


async def handle(services: Services, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.partitions is not None:
        return ElectLeadersResponse(errors={name: _error(services, name) for name in request.partitions})
    every = [
        TopicPartition(topic.name, number) for topic in services.metadata for number in range(len(topic.partitions))
    ]
    errors = {name: _error(services, name) for name in every}
    return ElectLeadersResponse(
        errors={name: error for name, error in errors.items() if not isinstance(error, ElectionNotNeeded)}
    )


def _error(services: Services, name: TopicPartition) -> KafkaError:
    try:
        services.replicas.get(name)
    except KafkaError as error:
        return error
    return ElectionNotNeeded("Leader election not needed for topic partition.")


API = Api(name="ElectLeaders", handle=handle, key=43, versions=(0, 2))
