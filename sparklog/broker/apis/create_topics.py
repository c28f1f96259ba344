"""CreateTopics: new topics, each with its own partitions, replication factor and configuration.

- What is left out is the broker's num.partitions and default.replication.factor.
- A topic exists for every later request once the response is there. `validate_only` checks the same and changes
  nothing.
- A topic named twice in one request is refused (INVALID_REQUEST), both times.
- No manual replica assignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.broker.api import Api
from sparklog.broker.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """None: the broker's default."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequest:
    topics: Sequence[NewTopic]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """What became of one topic; `partitions` is how many it has, 0 where there is an error."""

    name: str
    error: KafkaError | None = None
    partitions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponse:
    topics: Sequence[TopicResult]


async def handle(services: Services, request: CreateTopicsRequest) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=[
            await _create(services, topic, validate_only=request.validate_only)
            if times[topic.name] == 1
            else TopicResult(name=topic.name, error=InvalidRequest(f"topic {topic.name!r} is named twice"))
            for topic in request.topics
        ]
    )


async def _create(services: Services, topic: NewTopic, *, validate_only: bool) -> TopicResult:
    try:
        created = await services.topics.create(
            topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            overrides=topic.configs,
            validate_only=validate_only,
        )
    except KafkaError as error:
        return TopicResult(name=topic.name, error=error)
    return TopicResult(name=topic.name, partitions=len(created.partitions))


API = Api(name="CreateTopics", handle=handle)
