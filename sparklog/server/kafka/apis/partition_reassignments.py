"""AlterPartitionReassignments and ListPartitionReassignments in Kafka's protocol.

Null replicas cancel a partition's reassignment.
"""

from __future__ import annotations

from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import partition_reassignments
from sparklog.broker.apis.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
)
from sparklog.server.kafka.messages import Message, whole_ms
from sparklog.server.kafka.responses import by_topic, message_of
from sparklog.server.kafka.translation import READ_PARTITIONS, KafkaCall, Translation, WideArrays

PART = 1_000
"""Partitions in one request to the controller: about 10 ms of work if all are refused."""


async def _alter(call: KafkaCall, request: Message) -> Message:
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
    response = await call.serve(partition_reassignments.ALTER_PARTITION_REASSIGNMENTS, wanted)
    topics = by_topic((name.topic, _result(name.partition, error)) for name, error in response.errors.items())
    return call.answer(
        allow_replication_factor_change=may_resize,
        error_message=None,
        responses=[{"name": name, "partitions": parts} for name, parts in topics.items()],
    )


def _refuse_to_alter(call: KafkaCall, request: Message, error: KafkaError) -> Message:
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


async def _list(call: KafkaCall, request: Message) -> Message:
    partitions = None
    if request.topics is not None:
        partitions = [
            TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes
        ]
    response = await call.serve(
        partition_reassignments.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(partitions=partitions)
    )
    topics = by_topic(
        (
            name.topic,
            {
                "partition_index": name.partition,
                "replicas": info.replicas,
                "adding_replicas": info.adding,
                "removing_replicas": info.removing,
            },
        )
        for name, info in response.moving.items()
    )
    return call.answer(
        error_message=None, topics=[{"name": name, "partitions": parts} for name, parts in topics.items()]
    )


def _refuse_to_list(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, error_message=message_of(error), topics=[])


ALTER_PARTITION_REASSIGNMENTS = Translation(
    api=partition_reassignments.ALTER_PARTITION_REASSIGNMENTS,
    serve=_alter,
    refuse=_refuse_to_alter,
    wide=WideArrays(("topics", "partitions"), ("responses", "partitions"), part=PART),
)
LIST_PARTITION_REASSIGNMENTS = Translation(
    api=partition_reassignments.LIST_PARTITION_REASSIGNMENTS,
    serve=_list,
    refuse=_refuse_to_list,
    wide=READ_PARTITIONS,
)
