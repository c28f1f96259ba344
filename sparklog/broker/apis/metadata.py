"""Metadata: the brokers, and the partitions of topics with who leads them (key 3, versions 0 to 13).

- No topics named (None): every topic. An empty list: none, but in version 0, where it means every topic.
- A name that does not exist is created with the broker's defaults if the request allows it and
  auto.create.topics.enable is set, and is answered as it then is. Apache Kafka answers UNKNOWN_TOPIC_OR_PARTITION
  while it creates; clients ask again in that case, here they need not. Otherwise UNKNOWN_TOPIC_OR_PARTITION, and
  INVALID_TOPIC_EXCEPTION for a name that no topic can have. Internal topics are created by brokers only.
- By topic id from version 12 on; an id that no topic has gets UNKNOWN_TOPIC_ID. In versions 10 and 11, which have the
  field but not the meaning, an id or a null name is refused with INVALID_REQUEST, as Kafka does.
- A partition whose leader is dead or was never elected, or is this broker with a log directory that has failed, has
  LEADER_NOT_AVAILABLE and no leader. Its replicas on such brokers are among the offline.
- All is as the controller has told this broker: it may be behind what others know by a moment. While no controller is
  known, its id is -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sparklog.base.errors import KafkaError, LeaderNotAvailable
from sparklog.base.ids import INTERNAL_TOPICS, TopicPartition, check_topic
from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.cluster.metadata_cache import NO_CONTROLLER
from sparklog.cluster.model import BrokerInfo, PartitionInfo, Topic

NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQuery:
    """A topic by its name, or by its id where `name` is None."""

    name: str | None = None
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest:
    """`topics` None: all."""

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
    """`name` is None for an id, and `topic_id` None for a name, that no topic has."""

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


async def handle(services: Services, request: MetadataRequest) -> MetadataResponse:
    if request.topics is None:
        topics = [describe(services, topic) for topic in services.metadata]
    else:
        create = request.allow_auto_topic_creation and services.config.auto_create_topics_enable
        topics = [await _find(services, query, create=create) for query in request.topics]
    return MetadataResponse(
        cluster_id=services.cluster_id,
        controller_id=services.metadata.controller_id if services.metadata.controller else NO_CONTROLLER,
        brokers=list(services.metadata.brokers.values()),
        topics=topics,
    )


def describe(services: Services, topic: Topic) -> TopicMetadata:
    """A topic that exists."""
    return TopicMetadata(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(services, topic.name, number, info) for number, info in enumerate(topic.partitions)],
    )


async def _find(services: Services, query: TopicQuery, *, create: bool) -> TopicMetadata:
    try:
        if query.name is None:
            return describe(services, services.metadata.get_by_id(query.topic_id or UUID(int=0)))
        if query.name not in services.metadata:
            check_topic(query.name)
            if create and query.name not in INTERNAL_TOPICS:
                await services.topics.create_if_missing(query.name)
        return describe(services, services.metadata.get(query.name))
    except KafkaError as error:
        return TopicMetadata(name=query.name, topic_id=None if query.name else query.topic_id, error=error)


def _partition(services: Services, topic: str, number: int, info: PartitionInfo) -> PartitionMetadata:
    name = TopicPartition(topic, number)
    offline = offline_replicas(services, name, info)
    is_led = info.leader in services.metadata.brokers and info.leader not in offline
    return PartitionMetadata(
        partition=number,
        error=None if is_led else LeaderNotAvailable(f"{name} has no leader at the moment"),
        leader=info.leader if is_led else NO_LEADER,
        leader_epoch=info.leader_epoch,
        replicas=info.replicas,
        in_sync_replicas=info.in_sync_replicas,
        offline_replicas=offline,
    )


def offline_replicas(services: Services, name: TopicPartition, info: PartitionInfo) -> tuple[int, ...]:
    """Those on brokers that are dead, and the one here if it does not work."""
    here = services.info.broker_id
    return tuple(
        broker
        for broker in info.replicas
        if broker not in services.metadata.brokers or (broker == here and services.replicas.find(name) is None)
    )


API = Api(name="Metadata", handle=handle, key=3, versions=(0, 13))
