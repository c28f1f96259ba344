"""OffsetDelete: delete committed offsets of a group (key 47).

- A missing topic is refused (UNKNOWN_TOPIC_OR_PARTITION): its offsets were deleted with it.
- Version 0, as in Kafka 4.
"""

from __future__ import annotations

from msgspec import structs

from sparklog.base.acls import AclOperation
from sparklog.base.errors import UnknownTopicOrPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import TOPIC, OnEachKey, on_group, topic_of
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import OffsetDelete, OffsetDeleteResponse


async def handle(request: OffsetDelete, *, groups: GroupCoordinator, metadata: MetadataCache) -> OffsetDeleteResponse:
    """Return the error of the whole group, or else an error, or None, for each partition."""
    known = [partition for partition in request.partitions if partition.topic in metadata]
    response = await groups.delete_offsets(structs.replace(request, partitions=known))
    if response.error:
        return response
    missing = {
        partition: UnknownTopicOrPartition(f"topic {partition.topic!r} does not exist")
        for partition in request.partitions
        if partition.topic not in metadata
    }
    return OffsetDeleteResponse(errors={**response.errors, **missing})


API = Api(
    name="OffsetDelete",
    handle=handle,
    rights=(
        on_group(AclOperation.DELETE),
        OnEachKey(AclOperation.READ, TOPIC, "partitions", topic_of),
    ),
    key=47,
    versions=(0, 0),
)
