"""ListPartitionReassignments: which partitions are moving to other brokers; none ever are (key 46).

- It is served because Kafka's tools ask before they describe topics or move anything. Version 0, as in Kafka 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.broker.api import Api
from sparklog.broker.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsRequest:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsResponse:
    pass


async def handle(services: Services, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse()


API = Api(name="ListPartitionReassignments", handle=handle, key=46, versions=(0, 0))
