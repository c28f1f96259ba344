"""AlterPartitionReassignments in Kafka's protocol. Null replicas cancel a partition's reassignment."""

from __future__ import annotations

from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import alter_partition_reassignments
from sparklog.broker.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from sparklog.server.kafka.messages import Message, whole_ms
from sparklog.server.kafka.responses import by_topic, message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, Wide

PART = 1_000
"""Partitions that are moved together, in one round of the controller: about 10 ms of work if all are refused."""


async def serve(call: KafkaCall, request: Message) -> Message:
    may_resize = getattr(request, "allow_replication_factor_change", True)
    wanted = AlterPartitionReassignmentsRequest(
        targets={
            TopicPartition(topic.name, part.partition_index): None if part.replicas is None else tuple(part.replicas)
            for topic in request.topics
            for part in topic.partitions
        },
        may_resize=may_resize,
        timeout_ms=whole_ms(request.timeout),
    )
    response = await call.broker.serve(alter_partition_reassignments.API, wanted)
    topics = by_topic((name.topic, _result(name.partition, error)) for name, error in response.errors.items())
    return call.answer(
        allow_replication_factor_change=may_resize,
        error_message=None,
        responses=[{"name": name, "partitions": parts} for name, parts in topics.items()],
    )


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    topics = by_topic(
        (topic.name, _result(part.partition_index, error)) for topic in request.topics for part in topic.partitions
    )
    return call.answer(
        error_code=error,
        error_message=message_of(error),
        responses=[{"name": name, "partitions": parts} for name, parts in topics.items()],
    )


def _result(partition: int, error: KafkaError | None) -> dict[str, Any]:
    return {"partition_index": partition, "error_code": error, "error_message": message_of(error)}


TRANSLATION = Translation(
    api=alter_partition_reassignments.API,
    serve=serve,
    refuse=refuse,
    wide=Wide(("topics", "partitions"), ("responses", "partitions"), part=PART),
)
