"""OffsetCommit: store the offsets that a group has processed (key 8).

- A missing partition is refused (UNKNOWN_TOPIC_OR_PARTITION), and never reaches the coordinator.
- Versions 2 to 10, as in Kafka 4.
"""

from __future__ import annotations

from msgspec import structs

from sparklog.base.acls import AclOperation
from sparklog.base.errors import KafkaError, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import OFFSETS, on_group
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import OffsetCommit, OffsetCommitResponse


async def handle(request: OffsetCommit, *, groups: GroupCoordinator, metadata: MetadataCache) -> OffsetCommitResponse:
    """Return an error, or None, for each partition."""
    known = [each for each in request.offsets if metadata.has(each.partition)]
    errors: dict[TopicPartition, KafkaError | None] = {
        each.partition: UnknownTopicOrPartition(f"partition {each.partition} does not exist")
        for each in request.offsets
        if not metadata.has(each.partition)
    }
    if known or not request.offsets:
        errors |= (await groups.commit(structs.replace(request, offsets=known))).errors
    return OffsetCommitResponse(errors=errors)


API = Api(
    name="OffsetCommit",
    handle=handle,
    rights=(
        on_group(AclOperation.READ),
        OFFSETS,
    ),
    key=8,
    versions=(2, 10),
)
