"""CreatePartitions in Kafka's protocol."""

from __future__ import annotations

from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import create_partitions
from sparklog.broker.apis.create_partitions import CreatePartitionsRequest, NewPartitions, PartitionCreationResult
from sparklog.server.kafka.messages import Message, whole_ms
from sparklog.server.kafka.responses import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, WideArrays

FIRST_WITH_QUOTA_ERROR = 3


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the error of each topic, or none."""
    wanted = CreatePartitionsRequest(
        topics=[_count(topic) for topic in request.topics],
        validate_only=request.validate_only,
        timeout_ms=whole_ms(request.timeout),
        mutate=call.mutation_quota(strict_from=FIRST_WITH_QUOTA_ERROR),
    )
    response = await call.serve(create_partitions.API, wanted)
    return call.answer(results=[_result(topic) for topic in response.topics])


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each topic."""
    return call.answer(
        results=[_result(PartitionCreationResult(name=topic.name, error=error)) for topic in request.topics]
    )


def _count(topic: Message) -> NewPartitions:
    by_hand = topic.assignments
    return NewPartitions(
        name=topic.name,
        total=topic.count,
        assignments=None if by_hand is None else [assignment.broker_ids for assignment in by_hand],
    )


def _result(topic: PartitionCreationResult) -> dict[str, Any]:
    return {"name": topic.name, "error_code": topic.error, "error_message": message_of(topic.error)}


TRANSLATION = Translation(
    api=create_partitions.API, serve=serve, refuse=refuse, wide=WideArrays(("topics",), ("results",), part=10)
)
