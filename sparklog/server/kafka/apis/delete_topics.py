"""DeleteTopics in Kafka's protocol: names up to version 5, names or ids from version 6 on.

Versions below 3 have no TOPIC_DELETION_DISABLED; they get INVALID_REQUEST instead, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from sparklog.base.errors import InvalidRequest, KafkaError, TopicDeletionDisabled
from sparklog.broker.apis import delete_topics
from sparklog.broker.apis.delete_topics import DeleteTopicsRequest, TopicDeletionResult, TopicToDelete
from sparklog.server.kafka.messages import Message, whole_ms
from sparklog.server.kafka.responses import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, WideArrays

FIRST_WITH_DISABLED = 3
FIRST_WITH_QUOTA_ERROR = 5
FIRST_WITH_IDS = 6


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the error of each topic, or none."""
    wanted = DeleteTopicsRequest(
        topics=_topics(call, request),
        timeout_ms=whole_ms(request.timeout),
        mutate=call.mutation_quota(strict_from=FIRST_WITH_QUOTA_ERROR),
    )
    response = await call.serve(delete_topics.API, wanted)
    return call.answer(responses=[_result(call, topic) for topic in response.topics])


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each topic."""
    topics = _topics(call, request)
    return call.answer(
        responses=[
            _result(call, TopicDeletionResult(name=topic.name, topic_id=topic.topic_id, error=error))
            for topic in topics
        ]
    )


def _topics(call: KafkaCall, request: Message) -> list[TopicToDelete]:
    if call.version < FIRST_WITH_IDS:
        return [TopicToDelete(name=name) for name in request.topic_names]
    return [TopicToDelete(name=topic.name, topic_id=topic.topic_id) for topic in request.topics]


def _result(call: KafkaCall, topic: TopicDeletionResult) -> dict[str, Any]:
    error = topic.error
    if call.version < FIRST_WITH_DISABLED and isinstance(error, TopicDeletionDisabled):
        error = InvalidRequest(str(error))
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": error,
        "error_message": message_of(error),
    }


TRANSLATION = Translation(
    api=delete_topics.API,
    serve=serve,
    refuse=refuse,
    wide=WideArrays(("topics", "topic_names"), ("responses",), part=10),
)
