"""ListPartitionReassignments in Kafka's protocol."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import list_partition_reassignments
from sparklog.broker.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from sparklog.server.kafka.grouping import by_topic
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.text import message_of
from sparklog.server.kafka.translation import READ_PARTITIONS, KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    partitions = None
    if request.topics is not None:
        partitions = [
            TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes
        ]
    response = await call.broker.serve(
        list_partition_reassignments.API, ListPartitionReassignmentsRequest(partitions=partitions)
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


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, error_message=message_of(error), topics=[])


TRANSLATION = Translation(api=list_partition_reassignments.API, serve=serve, refuse=refuse, wide=READ_PARTITIONS)
