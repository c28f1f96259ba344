"""ListTopics: list the topics in name order, with their numbers of partitions.

Internal topics are listed only on request. Kafka has no such API: its clients request the metadata of all topics.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.broker.api import Api
from sparklog.broker.rights import TOPIC, OnShown
from sparklog.cluster.metadata_cache import MetadataCache


class ListTopicsRequest(Struct, frozen=True, kw_only=True):
    include_internal: bool = False


class TopicListing(Struct, frozen=True, kw_only=True):
    name: str
    partitions: int
    is_internal: bool


class ListTopicsResponse(Struct, frozen=True, kw_only=True):
    topics: Sequence[TopicListing]


async def handle(request: ListTopicsRequest, *, metadata: MetadataCache) -> ListTopicsResponse:
    """Return the topics that this broker knows of."""
    return ListTopicsResponse(
        topics=[
            TopicListing(name=topic.name, partitions=len(topic.partitions), is_internal=topic.is_internal)
            for topic in metadata
            if request.include_internal or not topic.is_internal
        ]
    )


API = Api(
    name="ListTopics",
    handle=handle,
    rights=(OnShown(AclOperation.DESCRIBE, TOPIC, "topics", lambda topic, access: topic.name),),
)
