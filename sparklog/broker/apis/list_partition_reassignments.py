"""ListPartitionReassignments: list the partitions that are moving to other brokers (key 46).

- Any broker answers from what the controller has sent it, so it may lag for a moment. Apache Kafka asks its controller.
- Named partitions that are not moving, or do not exist, are left out. Version 0, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import PartitionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsRequest:
    partitions: Collection[TopicPartition] | None = None
    """Partitions to look at; None: all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsResponse:
    moving: Mapping[TopicPartition, PartitionInfo]


async def handle(
    request: ListPartitionReassignmentsRequest, *, metadata: MetadataCache
) -> ListPartitionReassignmentsResponse:
    wanted = None if request.partitions is None else set(request.partitions)
    moving = {}
    for topic in metadata:
        for number, info in enumerate(topic.partitions):
            name = TopicPartition(topic.name, number)
            if (info.adding or info.removing) and (wanted is None or name in wanted):
                moving[name] = info
    return ListPartitionReassignmentsResponse(moving=moving)


API = Api(name="ListPartitionReassignments", handle=handle, key=46, versions=(0, 0))
