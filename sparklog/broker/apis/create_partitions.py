"""CreatePartitions: let topics grow.

- `total` is the new number of partitions; one that is not larger than the present is refused (INVALID_PARTITIONS): a
  topic never loses partitions.
- Keys are spread over all partitions from then on, so a key's later records may lie in another partition than its
  earlier ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.base.errors import KafkaError
from sparklog.broker.api import Api
from sparklog.broker.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCount:
    name: str
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsRequest:
    topics: Sequence[PartitionCount]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGrown:
    """`partitions` is how many the topic has now, 0 where there is an error."""

    name: str
    error: KafkaError | None = None
    partitions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsResponse:
    topics: Sequence[TopicGrown]


async def handle(services: Services, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        topics=[await _grow(services, topic, validate_only=request.validate_only) for topic in request.topics]
    )


async def _grow(services: Services, topic: PartitionCount, *, validate_only: bool) -> TopicGrown:
    try:
        grown = await services.topics.grow(topic.name, topic.total, validate_only=validate_only)
    except KafkaError as error:
        return TopicGrown(name=topic.name, error=error)
    return TopicGrown(name=topic.name, partitions=len(grown.partitions))


API = Api(name="CreatePartitions", handle=handle)
