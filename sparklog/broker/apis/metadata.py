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

from collections.abc import Iterator, Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.acls import AclOperation
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaError, LeaderNotAvailable, UnknownTopicId, UnknownTopicOrPartition
from sparklog.base.ids import INTERNAL_TOPICS, TopicPartition, check_topic
from sparklog.broker.api import Api, Operation
from sparklog.broker.rights import TOPIC, Access, Either, OnEach, OnShown, to_create
from sparklog.broker.topics import Topics
from sparklog.cluster.metadata_cache import NO_CONTROLLER, MetadataCache
from sparklog.cluster.model import BrokerInfo, PartitionInfo, Topic
from sparklog.replica.manager import ReplicaManager
from sparklog.runtime.slices import in_parts, of_many
from sparklog.security.authorizer import Authorizer

NO_LEADER = -1
PART = 200
"""Number of partitions described in one go: a few milliseconds of work."""


class TopicQuery(Struct, frozen=True, kw_only=True):
    """A topic by name, or by id if `name` is None; of its partitions, some in a row."""

    name: str | None = None
    topic_id: UUID | None = None
    first: int = 0
    """The first partition to describe. A topic that does not exist is left out unless this is 0."""
    count: int | None = None
    """How many partitions to describe; None: all."""


class MetadataRequest(Struct, frozen=True, kw_only=True):
    """A request for some topics, or for all if `topics` is None."""

    topics: Sequence[TopicQuery] | None = None
    allow_auto_topic_creation: bool = False
    omits_missing: bool = False
    """Whether missing topics are left out of the response."""


class PartitionMetadata(Struct, frozen=True, kw_only=True):
    partition: int
    error: KafkaError | None = None
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    in_sync_replicas: Sequence[int]
    offline_replicas: Sequence[int] = ()


class TopicMetadata(Struct, frozen=True, kw_only=True):
    """One topic. `name` is None for an unknown id, `topic_id` is None for an unknown name."""

    name: str | None
    topic_id: UUID | None = None
    error: KafkaError | None = None
    is_internal: bool = False
    partitions: Sequence[PartitionMetadata] = ()


class MetadataResponse(Struct, frozen=True, kw_only=True):
    cluster_id: str
    controller_id: int
    brokers: Sequence[BrokerInfo]
    topics: Sequence[TopicMetadata]


class TopicDescriber(Struct, frozen=True, kw_only=True):
    """Describes existing topics for clients."""

    info: BrokerInfo
    metadata: MetadataCache
    replicas: ReplicaManager

    def describe(self, topic: Topic, first: int = 0, count: int | None = None) -> TopicMetadata:
        """Return the topic with its partitions from `first` on, at most `count` of them; None: all."""
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
    """Return the brokers and the topics; a topic that cannot be described has an error.

    A query with `first` > 0 asks for a later part of a topic: it creates none, and a topic that is gone is left out.
    """
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
    if request.omits_missing:
        found = [topic for topic in found if not isinstance(topic.error, UnknownTopicOrPartition)]
    return MetadataResponse(
        cluster_id=cluster_id,
        controller_id=metadata.controller_id if metadata.controller else NO_CONTROLLER,
        brokers=list(metadata.brokers.values()),
        topics=found,
    )


async def split(request: MetadataRequest, *, metadata: MetadataCache) -> Iterator[MetadataRequest]:
    """Return at least one request, each for at most `PART` partitions. A larger topic is split, too.

    So topics with many partitions do not block other requests. The requests are made as they are asked for.
    """
    queries = request.topics
    if queries is None:  # a topic may be deleted before it is described
        queries = [TopicQuery(name=topic.name) for topic in metadata]
        request = replace(request, omits_missing=True)
    return (replace(request, topics=part) for part in _parts(metadata, queries))


def _parts(metadata: MetadataCache, queries: Sequence[TopicQuery]) -> Iterator[Sequence[TopicQuery]]:
    def count(query: TopicQuery) -> int:
        topic = metadata.find(query.name) if query.name else metadata.find_by_id(query.topic_id)
        return len(topic.partitions) if topic else 1

    def weigh(query: TopicQuery) -> int:
        return min(PART, count(query))

    for some in of_many(queries, PART) if queries else [()]:
        pieces = [piece for query in some for piece in _pieces(query, count(query))]
        yield from in_parts(pieces, weigh, PART)


def _pieces(query: TopicQuery, partitions: int) -> Sequence[TopicQuery]:
    if partitions <= PART:
        return (query,)
    return [replace(query, first=first, count=PART) for first in range(0, partitions, PART)]


def _name(query: TopicQuery, access: Access) -> str | None:
    return query.name or (access.topics.find_name(query.topic_id) if query.topic_id else None)


def _refused(query: TopicQuery, error: KafkaError) -> TopicMetadata:
    if query.name is None:  # a client without the right must not learn whether the topic exists
        return TopicMetadata(name=None, topic_id=query.topic_id, error=UnknownTopicId("there is no such topic"))
    return TopicMetadata(name=query.name, error=error)


def _generation(*, authorizer: Authorizer, metadata: MetadataCache, replicas: ReplicaManager) -> int:
    return authorizer.version + metadata.generation + replicas.generation


SPLIT = Operation(handle=split, rights=())
API = Api(
    name="Metadata",
    handle=handle,
    rights=(
        Either(
            lambda request: request.topics is None or request.omits_missing,
            OnShown(AclOperation.DESCRIBE, TOPIC, "topics", lambda topic, access: topic.name),
            OnEach(AclOperation.DESCRIBE, TOPIC, "topics", _name, _refused, "topics"),
        ),
        to_create("topics", lambda query: query.name, _refused, "topics"),
    ),
    key=3,
    versions=(0, 13),
    cached_by=_generation,
)
