"""DeleteTopics: delete topics and their records (key 20).

- Topics are given by name or by id. With an id, a newer topic of the same name stays.
- Once the response has come, the topic is gone for every later request to this broker; fetches that wait for it are
  answered with UNKNOWN_TOPIC_OR_PARTITION. Its files are deleted after file.delete.delay.ms; those on a dead broker
  once it is back.
- If that takes longer than `timeout_ms`, the answer is REQUEST_TIMED_OUT and the topic is still deleted.
- INVALID_REQUEST for a topic that is named twice, or has both a name and an id, or neither.
- TOPIC_DELETION_DISABLED if delete.topic.enable is false.
- Versions 1 to 6, as in Kafka 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.broker.api import Api
from sparklog.broker.rights import TOPIC, Access, OnEach
from sparklog.broker.topics import TIMEOUT_MS, Topics
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.security.quotas import Mutate, unlimited


class TopicToDelete(Struct, frozen=True, kw_only=True):
    """A topic, by name or by id."""

    name: str | None = None
    topic_id: UUID | None = None


class DeleteTopicsRequest(Struct, frozen=True, kw_only=True):
    topics: Sequence[TopicToDelete]
    timeout_ms: int = TIMEOUT_MS
    mutate: Mutate = unlimited
    """Counts the partitions against the client's controller_mutation_rate."""


class TopicDeletionResult(Struct, frozen=True, kw_only=True):
    """The result of one topic; `name` and `topic_id` are set as far as they are known."""

    name: str | None = None
    topic_id: UUID | None = None
    error: KafkaError | None = None


class DeleteTopicsResponse(Struct, frozen=True, kw_only=True):
    topics: Sequence[TopicDeletionResult]


async def handle(request: DeleteTopicsRequest, *, metadata: MetadataCache, topics: Topics) -> DeleteTopicsResponse:
    """Return an error, or None, for each topic, in their order. Topics are deleted one after the other."""
    names = [_name(metadata, topic) for topic in request.topics]
    times = Counter(names)
    return DeleteTopicsResponse(
        topics=[
            await _delete(metadata, topics, topic, request, is_alone=name is None or times[name] == 1)
            for topic, name in zip(request.topics, names, strict=True)
        ]
    )


def _name(metadata: MetadataCache, topic: TopicToDelete) -> str | None:
    """Return the topic's name; None if no topic has the id."""
    if topic.topic_id is None:
        return topic.name
    found = metadata.find_by_id(topic.topic_id)
    return found.name if found else None


async def _delete(
    metadata: MetadataCache, topics: Topics, topic: TopicToDelete, request: DeleteTopicsRequest, *, is_alone: bool
) -> TopicDeletionResult:
    try:
        if topic.name is not None and topic.topic_id is not None:
            raise InvalidRequest("You may not specify both topic name and topic id.")
        if not is_alone:
            raise InvalidRequest("Duplicate topic name or id.")
        if topic.topic_id is not None:
            found = metadata.get_by_id(topic.topic_id)
        elif topic.name is not None:
            found = metadata.get(topic.name)
        else:
            raise InvalidRequest("Neither topic name nor id were specified.")
        await topics.delete(found.name, request.timeout_ms, mutate=request.mutate)
    except KafkaError as error:
        return TopicDeletionResult(name=topic.name, topic_id=topic.topic_id, error=error)
    return TopicDeletionResult(name=found.name, topic_id=found.topic_id)


def _topic_name(topic: TopicToDelete, access: Access) -> str | None:
    return topic.name or (access.topics.find_name(topic.topic_id) if topic.topic_id else None)


def _refused(topic: TopicToDelete, error: KafkaError) -> TopicDeletionResult:
    if topic.name is None:  # a client without the right must not learn the name, not even from the message
        error = type(error)("the client may not delete this topic")
    return TopicDeletionResult(name=topic.name, topic_id=topic.topic_id, error=error)


API = Api(
    name="DeleteTopics",
    handle=handle,
    rights=(OnEach(AclOperation.DELETE, TOPIC, "topics", _topic_name, _refused, "topics"),),
    key=20,
    versions=(1, 6),
)
