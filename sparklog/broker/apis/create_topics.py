"""CreateTopics: create topics, each with its own partitions, replication factor and configuration (key 19).

- Values left out default to the broker's num.partitions and default.replication.factor.
- Once the response has come, the topic exists, with leaders, for every later request to this broker. If that takes
  longer than `timeout_ms`, the answer is REQUEST_TIMED_OUT and the topic is still created. `validate_only` makes the
  same checks and changes nothing.
- Replicas are spread over the live brokers, and over their racks.
- A topic named twice in one request is refused (INVALID_REQUEST), both times.
- Replicas assigned by hand are checked, and replace both numbers; giving a number too is INVALID_REQUEST.
- A request for more than 10,000 partitions in all is refused (POLICY_VIOLATION), as in Kafka. A request for many topics
  is served in parts, and then the limit holds for each part.
- Versions 2 to 7, as in Kafka 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from sparklog.base.acls import AclOperation
from sparklog.base.config import BrokerConfig
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.errors import InvalidConfig, InvalidRequest, KafkaError, PolicyViolation
from sparklog.broker.api import Api
from sparklog.broker.assignments import Replicas, check_numbers, check_replicas
from sparklog.broker.config_entries import ConfigEntry, topic_entries
from sparklog.broker.rights import TOPIC, Access, OnAnswers, OnEach, OneOf, on_cluster
from sparklog.broker.topics import MAX_PARTITIONS_PER_REQUEST, TIMEOUT_MS, Topics
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.runtime.slices import Slices
from sparklog.security.quotas import Mutate, unlimited


class NewTopic(Struct, frozen=True, kw_only=True):
    """A topic to create. A number that is None is the broker's default."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Sequence[tuple[int, Replicas]] = ()
    """Partition numbers, each with its replicas; empty: the broker assigns them."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


class CreateTopicsRequest(Struct, frozen=True, kw_only=True):
    topics: Sequence[NewTopic]
    validate_only: bool = False
    timeout_ms: int = TIMEOUT_MS
    mutate: Mutate = unlimited
    """Counts the partitions against the client's controller_mutation_rate."""


class TopicCreationResult(Struct, frozen=True, kw_only=True):
    """The result of one topic; if there is an error, all other fields are empty."""

    name: str
    error: KafkaError | None = None
    partitions: int = 0
    replication_factor: int = 0
    topic_id: UUID | None = None
    configs: Sequence[ConfigEntry] = ()
    configs_error: KafkaError | None = None
    """Why `configs` is not shown, if it is not."""


class CreateTopicsResponse(Struct, frozen=True, kw_only=True):
    topics: Sequence[TopicCreationResult]


async def handle(
    request: CreateTopicsRequest, *, dynamic: DynamicConfig, metadata: MetadataCache, topics: Topics, slices: Slices
) -> CreateTopicsResponse:
    """Return a result for each topic, in their order. Topics are created one after the other."""
    if sum(_count(topic, dynamic.started_with) for topic in request.topics) > MAX_PARTITIONS_PER_REQUEST:
        error = PolicyViolation("Excessively large number of partitions per request.")
        return CreateTopicsResponse(
            topics=[TopicCreationResult(name=topic.name, error=error) for topic in request.topics]
        )
    times = Counter(topic.name for topic in request.topics)

    async def create(topic: NewTopic) -> TopicCreationResult:
        if times[topic.name] > 1:
            return TopicCreationResult(name=topic.name, error=InvalidRequest(f"topic {topic.name!r} is named twice"))
        return await _create(dynamic, metadata, topics, topic, request)

    return CreateTopicsResponse(topics=await slices.each(request.topics, create))


def _count(topic: NewTopic, config: BrokerConfig) -> int:
    count = config.num_partitions if topic.partitions is None else topic.partitions
    return len(topic.assignments) or max(0, count)


async def _create(
    dynamic: DynamicConfig, metadata: MetadataCache, topics: Topics, topic: NewTopic, request: CreateTopicsRequest
) -> TopicCreationResult:
    try:
        _check_assignments(topic, metadata.brokers)
        created = await topics.create(
            topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            assignments=[replicas for _, replicas in sorted(topic.assignments)],
            overrides=_overrides(topic),
            validate_only=request.validate_only,
            timeout_ms=request.timeout_ms,
            mutate=request.mutate,
        )
    except KafkaError as error:
        return TopicCreationResult(name=topic.name, error=error)
    return TopicCreationResult(
        name=topic.name,
        partitions=len(created.partitions),
        replication_factor=len(created.partitions[0].replicas),
        topic_id=created.topic_id,
        configs=topic_entries(created, dynamic),
    )


def _check_assignments(topic: NewTopic, brokers: Collection[int]) -> None:
    if not topic.assignments:
        return
    for what, given in ("replication factor", topic.replication_factor), ("numPartitions", topic.partitions):
        if given is not None:
            raise InvalidRequest(f"A manual partition assignment was specified, but {what} was not set to -1.")
    check_numbers([number for number, _ in topic.assignments])
    check_replicas([replicas for _, replicas in sorted(topic.assignments)], brokers)


def _overrides(topic: NewTopic) -> dict[str, str]:
    overrides = {name: value for name, value in topic.configs.items() if value is not None}
    if missing := topic.configs.keys() - overrides.keys():
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(sorted(missing))}")
    return overrides


def _name(topic: NewTopic | TopicCreationResult, access: Access) -> str:
    return topic.name


def _refused(topic: NewTopic, error: KafkaError) -> TopicCreationResult:
    return TopicCreationResult(name=topic.name, error=error)


def _without_configs(result: TopicCreationResult, error: KafkaError) -> TopicCreationResult:
    return replace(result, configs=(), configs_error=None if result.error else error)


API = Api(
    name="CreateTopics",
    handle=handle,
    rights=(
        OneOf(
            (on_cluster(AclOperation.CREATE),), OnEach(AclOperation.CREATE, TOPIC, "topics", _name, _refused, "topics")
        ),
        OnAnswers(AclOperation.DESCRIBE_CONFIGS, TOPIC, "topics", _name, _without_configs),
    ),
    key=19,
    versions=(2, 7),
)
