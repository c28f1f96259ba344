"""ListTopics: list the topics in name order, with their numbers of partitions.

Internal topics are listed only on request. Kafka has no such API: its clients request the metadata of all topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.base.acls import AclOperation
from sparklog.broker.api import Api
from sparklog.broker.rights import TOPIC, Shown
from sparklog.cluster.metadata_cache import MetadataCache


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTopicsRequest:
    include_internal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    name: str
    partitions: int
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTopicsResponse:
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
    rights=(Shown(AclOperation.DESCRIBE, TOPIC, "topics", lambda topic, access: topic.name),),
)
