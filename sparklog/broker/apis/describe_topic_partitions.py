"""DescribeTopicPartitions: describe the partitions of topics, a page at a time (key 75, version 0; KIP-966).

- Topics come in name order, whatever the order of the request; no names: all topics.
- A page has at most `limit` partitions, and never more than `MAX_PARTITIONS`; if there are more, the cursor says where
  the next page begins. A request with a cursor skips the topics before it.
- A missing topic gets UNKNOWN_TOPIC_OR_PARTITION, an invalid name INVALID_TOPIC_EXCEPTION. No topic is created.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.base.ids import check_topic
from sparklog.broker.api import Api
from sparklog.broker.apis.metadata import TopicDescriber, TopicMetadata
from sparklog.broker.rights import TOPIC, Either, OnAnswers, OnShown
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo
from sparklog.replica.manager import ReplicaManager

MAX_PARTITIONS = 2000  # max.request.partition.size.limit


class Cursor(Struct, frozen=True, kw_only=True):
    topic: str
    partition: int


class DescribeTopicPartitionsRequest(Struct, frozen=True, kw_only=True):
    names: Sequence[str] = ()
    limit: int = MAX_PARTITIONS
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponse(Struct, frozen=True, kw_only=True):
    """One page; each topic has only its partitions on the page."""

    topics: Sequence[TopicMetadata]
    next_cursor: Cursor | None = None


async def handle(
    request: DescribeTopicPartitionsRequest, *, info: BrokerInfo, metadata: MetadataCache, replicas: ReplicaManager
) -> DescribeTopicPartitionsResponse:
    """Return one page. Raises InvalidRequest for a cursor at a partition below 0."""
    describer = TopicDescriber(info=info, metadata=metadata, replicas=replicas)
    cursor = request.cursor or Cursor(topic="", partition=0)
    if cursor.partition < 0:
        raise InvalidRequest(f"the cursor is at partition {cursor.partition}")
    names = sorted(set(request.names)) if request.names else [topic.name for topic in metadata]
    left = max(0, min(request.limit, MAX_PARTITIONS))
    found: list[TopicMetadata] = []
    for name in names:
        if name < cursor.topic:
            continue
        if left == 0:
            return DescribeTopicPartitionsResponse(topics=found, next_cursor=Cursor(topic=name, partition=0))
        first = cursor.partition if name == cursor.topic else 0
        topic = _describe(describer, name, first, left)
        found.append(topic)
        end = first + len(topic.partitions)
        left -= max(1, len(topic.partitions))  # a missing topic counts too, as it is work
        if (known := metadata.find(name)) and end < len(known.partitions):
            return DescribeTopicPartitionsResponse(topics=found, next_cursor=Cursor(topic=name, partition=end))
    return DescribeTopicPartitionsResponse(topics=found)


def _describe(describer: TopicDescriber, name: str, first: int, count: int) -> TopicMetadata:
    try:
        check_topic(name)
        return describer.describe(describer.metadata.get(name), first, count)
    except KafkaError as error:
        return TopicMetadata(name=name, error=error)


def _refused(topic: TopicMetadata, error: KafkaError) -> TopicMetadata:
    return TopicMetadata(name=topic.name, error=error)


API = Api(
    name="DescribeTopicPartitions",
    handle=handle,
    rights=(
        Either(
            lambda request: not request.names,
            OnShown(AclOperation.DESCRIBE, TOPIC, "topics", lambda topic, access: topic.name),
            OnAnswers(AclOperation.DESCRIBE, TOPIC, "topics", lambda topic, access: topic.name, _refused),
        ),
    ),
    key=75,
    versions=(0, 0),
)
