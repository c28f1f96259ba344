"""DescribeTopics: describe the partitions, leaders, replicas, offsets and configuration overrides of topics.

- No names: all topics. A missing topic gets UNKNOWN_TOPIC_OR_PARTITION; with `allow_auto_topic_creation` and
  auto.create.topics.enable it is created with the broker's defaults.
- Offsets and size are the leader's: they are set if this broker leads, else the offsets are -1 and the size 0.
- A partition without a leader has LEADER_NOT_AVAILABLE, one in a failed log directory of this broker
  KAFKA_STORAGE_ERROR; both have no leader and no offsets.
- `include_unsure` asks the cluster store which topics it had lost, or changes of them.
- Combines Kafka's Metadata and DescribeTopicPartitions with the offsets that Kafka's tools request separately.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from sparklog.base.acls import AclOperation
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaError, LeaderNotAvailable, StoreError, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api, Operation
from sparklog.broker.rights import TOPIC, Either, OnEach, OnShown, itself, to_create
from sparklog.broker.topics import Topics
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo, PartitionInfo, Topic
from sparklog.replica.manager import ReplicaManager
from sparklog.runtime.slices import in_parts

DESCRIBED_TOGETHER = 200
"""Partitions described in one go: a few milliseconds of work."""
logger = logging.getLogger(__name__)


class DescribeTopicsRequest(Struct, frozen=True, kw_only=True):
    names: Sequence[str] = ()
    allow_auto_topic_creation: bool = False
    omits_missing: bool = False
    """Whether missing topics are left out of the response."""
    include_unsure: bool = False
    """Whether the cluster store is asked for `is_unsure` of each topic."""


class PartitionDescription(Struct, frozen=True, kw_only=True):
    """One partition. `leader` is -1 if there is an error; the offsets are also -1 if this broker is not the leader."""

    partition: int
    error: KafkaError | None = None
    leader: int = -1
    leader_epoch: int
    replicas: Sequence[int]
    in_sync_replicas: Sequence[int]
    log_start_offset: int = -1
    high_watermark: int = -1
    log_end_offset: int = -1
    size_bytes: int = 0


class TopicDescription(Struct, frozen=True, kw_only=True):
    name: str
    error: KafkaError | None = None
    is_internal: bool = False
    partitions: Sequence[PartitionDescription] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    topic_id: UUID | None = None
    is_unsure: bool | None = None
    """Whether the cluster store had lost the topic, or changes of it: its assignment may be older than its replicas.
    None: the store was not asked, or did not answer."""


class DescribeTopicsResponse(Struct, frozen=True, kw_only=True):
    topics: Sequence[TopicDescription]


class DescribeTopics(Struct, frozen=True, kw_only=True, eq=False):
    """Describes topics from this broker's metadata and its own replicas."""

    config: BrokerConfig
    info: BrokerInfo
    metadata: MetadataCache
    replicas: ReplicaManager
    topics: Topics

    async def __call__(self, request: DescribeTopicsRequest) -> DescribeTopicsResponse:
        names = request.names or [topic.name for topic in self.metadata]
        create = request.allow_auto_topic_creation and self.config.auto_create_topics_enable
        found = [await self._describe(name, create=create) for name in names]
        if request.omits_missing:
            found = [topic for topic in found if not isinstance(topic.error, UnknownTopicOrPartition)]
        return DescribeTopicsResponse(topics=await self._with_unsure(found) if request.include_unsure else found)

    async def _with_unsure(self, found: list[TopicDescription]) -> list[TopicDescription]:
        try:
            unsure = await self.topics.find_unsure([topic.name for topic in found if topic.error is None])
        except StoreError as error:
            logger.info("it is not known which topics are unsure: %s", error)
            return found
        return [topic if topic.error else replace(topic, is_unsure=topic.name in unsure) for topic in found]

    async def _describe(self, name: str, *, create: bool) -> TopicDescription:
        try:
            if create and name not in self.metadata:
                await self.topics.create_if_missing(name)
            topic = self.metadata.get(name)
        except KafkaError as error:
            return TopicDescription(name=name, error=error)
        return TopicDescription(
            name=name,
            is_internal=topic.is_internal,
            partitions=[self._partition(topic, number) for number in range(len(topic.partitions))],
            configs=topic.overrides,
            topic_id=topic.topic_id,
        )

    def _partition(self, topic: Topic, number: int) -> PartitionDescription:
        info: PartitionInfo = topic.partitions[number]
        name = TopicPartition(topic.name, number)
        try:
            if info.leader not in self.metadata.brokers:
                raise LeaderNotAvailable(self._why_not_led(name, info))
            if info.leader != self.info.broker_id:
                return PartitionDescription(
                    partition=number,
                    leader=info.leader,
                    leader_epoch=info.leader_epoch,
                    replicas=info.replicas,
                    in_sync_replicas=info.in_sync_replicas,
                )
            replica = self.replicas.get(name)
        except KafkaError as error:
            return PartitionDescription(
                partition=number,
                error=error,
                leader_epoch=info.leader_epoch,
                replicas=info.replicas,
                in_sync_replicas=info.in_sync_replicas,
            )
        return PartitionDescription(
            partition=number,
            leader=info.leader,
            leader_epoch=info.leader_epoch,
            replicas=info.replicas,
            in_sync_replicas=info.in_sync_replicas,
            log_start_offset=replica.log.log_start_offset,
            high_watermark=replica.partition.high_watermark,
            log_end_offset=replica.partition.log_end_offset,
            size_bytes=replica.log.size_bytes,
        )

    def _why_not_led(self, name: TopicPartition, info: PartitionInfo) -> str:
        if not info.is_restored:
            return f"{name} has no leader at the moment"
        away = [broker for broker in info.replicas if broker not in self.metadata.brokers]
        return (
            f"{name} has no leader: the cluster store had lost who was in sync, and the replicas are compared first; "
            + (f"start broker {' and '.join(map(str, away))}" if away else "all their brokers run")
        )


async def split(request: DescribeTopicsRequest, *, metadata: MetadataCache) -> list[DescribeTopicsRequest]:
    """Return requests for parts of the topics, so that topics with many partitions do not block other requests."""

    def weigh(name: str) -> int:
        topic = metadata.find(name)
        return len(topic.partitions) if topic else 1

    names = request.names or [topic.name for topic in metadata]
    omits_missing = request.omits_missing or not request.names  # a topic may be deleted before it is described
    return [
        replace(request, names=part, omits_missing=omits_missing) for part in in_parts(names, weigh, DESCRIBED_TOGETHER)
    ]


def _refused(name: str, error: KafkaError) -> TopicDescription:
    return TopicDescription(name=name, error=error)


def _nothing(_: DescribeTopicsRequest) -> DescribeTopicsResponse:
    return DescribeTopicsResponse(topics=())


SPLIT = Operation(handle=split, rights=())
API = Api(
    name="DescribeTopics",
    handle=DescribeTopics,
    rights=(
        Either(
            lambda request: not request.names or request.omits_missing,
            OnShown(AclOperation.DESCRIBE, TOPIC, "topics", lambda topic, access: topic.name),
            OnEach(
                AclOperation.DESCRIBE,
                TOPIC,
                "names",
                itself,
                _refused,
                "topics",
                _nothing,
            ),
        ),
        to_create("names", lambda name: name, _refused, "topics", _nothing),
    ),
)
