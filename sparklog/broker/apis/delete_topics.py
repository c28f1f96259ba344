"""DeleteTopics: remove topics and their records.

- The topic is gone for every later request once the response is there; fetches that wait for it are answered with
  UNKNOWN_TOPIC_OR_PARTITION. Its files go after file.delete.delay.ms.
- Refused with TOPIC_DELETION_DISABLED where delete.topic.enable is false.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.base.errors import KafkaError
from sparklog.broker.api import Api
from sparklog.broker.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsRequest:
    names: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    name: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponse:
    topics: Sequence[TopicDeleted]


async def handle(services: Services, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(topics=[await _delete(services, name) for name in request.names])


async def _delete(services: Services, name: str) -> TopicDeleted:
    try:
        await services.topics.delete(name)
    except KafkaError as error:
        return TopicDeleted(name=name, error=error)
    return TopicDeleted(name=name)


API = Api(name="DeleteTopics", handle=handle)
