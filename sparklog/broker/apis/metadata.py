"""Metadata: list the brokers, and the partitions of topics with their leaders (key 3, versions 0 to 13).

- No list of topics (None): all topics. An empty list: no topics, except in version 0, where it means all topics.
- A missing topic is created with the broker's defaults if the request allows it and auto.create.topics.enable is set;
  the response describes the new topic. Apache Kafka answers UNKNOWN_TOPIC_OR_PARTITION while it creates the topic, and
  clients retry; here they need not. Otherwise a missing topic gets UNKNOWN_TOPIC_OR_PARTITION, and an invalid name
  INVALID_TOPIC_EXCEPTION. Only brokers create internal topics.
- Topics may be named by id from version 12 on; an unknown id gets UNKNOWN_TOPIC_ID. Versions 10 and 11 have the field
  but do not support it: an id or a null name gets INVALID_REQUEST, as in Kafka.
- A partition gets LEADER_NOT_AVAILABLE and no leader if its leader is dead, was never elected, or is this broker with a
  failed log directory. Replicas on such brokers are listed as offline.
- The response shows what the controller has sent this broker, so it may lag behind other brokers for a moment. The
  controller id is -1 while no controller is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaError, LeaderNotAvailable
from sparklog.base.ids import INTERNAL_TOPICS, TopicPartition, check_topic
from sparklog.broker.api import Api
from sparklog.broker.topics import Topics
from sparklog.cluster.metadata_cache import NO_CONTROLLER, MetadataCache
from sparklog.cluster.model import BrokerInfo, PartitionInfo, Topic
from sparklog.replica.manager import ReplicaManager

NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQuery:
    """A topic by name, or by id if `name` is None; of its partitions, some in a row."""

    name: str | None = None
    topic_id: UUID | None = None
    first: int = 0
    """The first partition to describe. A topic that does not exist is left out unless this is 0."""
    count: int | None = None
    """How many partitions to describe; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest:
    """A request for some topics, or for all if `topics` is None."""

    topics: Sequence[TopicQuery] | None = None
    allow_auto_topic_creation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    partition: int
    error: KafkaError | None = None
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    in_sync_replicas: Sequence[int]
    offline_replicas: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """One topic. `name` is None for an unknown id, `topic_id` is None for an unknown name."""

    name: str | None
    topic_id: UUID | None = None
    error: KafkaError | None = None
    is_internal: bool = False
    partitions: Sequence[PartitionMetadata] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    cluster_id: str
    controller_id: int
    brokers: Sequence[BrokerInfo]
    topics: Sequence[TopicMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescriber:
    """Describes existing topics for clients."""

    info: BrokerInfo
    metadata: MetadataCache
    replicas: ReplicaManager

    def describe(self, topic: Topic, first: int = 0, count: int | None = None) -> TopicMetadata:
        """Describe a topic with its partitions from `first` on, at most `count` of them."""
        infos = topic.partitions[first : None if count is None else first + count]
        return TopicMetadata(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[self._partition(topic.name, number, info) for number, info in enumerate(infos, first)],
        )

    def _partition(self, topic: str, number: int, info: PartitionInfo) -> PartitionMetadata:
        name = TopicPartition(topic, number)
        offline = self._offline_replicas(name, info)
        is_led = info.leader in self.metadata.brokers and info.leader not in offline
        return PartitionMetadata(
            partition=number,
            error=None if is_led else LeaderNotAvailable(f"{name} has no leader at the moment"),
            leader=info.leader if is_led else NO_LEADER,
            leader_epoch=info.leader_epoch,
            replicas=info.replicas,
            in_sync_replicas=info.in_sync_replicas,
            offline_replicas=offline,
        )

    def _offline_replicas(self, name: TopicPartition, info: PartitionInfo) -> tuple[int, ...]:
        """Return the replicas on dead brokers, and this broker's replica if its log is unavailable."""
        here = self.info.broker_id
        return tuple(
            broker
            for broker in info.replicas
            if broker not in self.metadata.brokers or (broker == here and self.replicas.find(name) is None)
        )


async def handle(
    request: MetadataRequest,
    *,
    cluster_id: str,
    config: BrokerConfig,
    info: BrokerInfo,
    metadata: MetadataCache,
    replicas: ReplicaManager,
    topics: Topics,
) -> MetadataResponse:
    describer = TopicDescriber(info=info, metadata=metadata, replicas=replicas)

    async def find(query: TopicQuery) -> TopicMetadata | None:
        try:
            if query.name is None:
                topic = metadata.get_by_id(query.topic_id or UUID(int=0))
                return describer.describe(topic, query.first, query.count)
            if query.name not in metadata and not query.first:
                check_topic(query.name)
                if may_create and query.name not in INTERNAL_TOPICS:
                    await topics.create_if_missing(query.name)
            return describer.describe(metadata.get(query.name), query.first, query.count)
        except KafkaError as error:
            if query.first:
                return None
            return TopicMetadata(name=query.name, topic_id=None if query.name else query.topic_id, error=error)

    may_create = request.allow_auto_topic_creation and config.auto_create_topics_enable
    if request.topics is None:
        found = [describer.describe(topic) for topic in metadata]
    else:
        found = [topic for query in request.topics if (topic := await find(query))]
    return MetadataResponse(
        cluster_id=cluster_id,
        controller_id=metadata.controller_id if metadata.controller else NO_CONTROLLER,
        brokers=list(metadata.brokers.values()),
        topics=found,
    )


API = Api(name="Metadata", handle=handle, key=3, versions=(0, 13))
