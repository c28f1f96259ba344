"""OffsetDelete in Kafka's protocol. If the group has an error, the response has no partitions."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import offset_delete
from sparklog.group.requests import OffsetDelete
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import by_topic
from sparklog.server.kafka.translation import PARTITIONS, KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the error of each partition, or none. Raises the group's error."""
    wanted = OffsetDelete(
        group_id=request.group_id,
        partitions=[
            TopicPartition(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
        ],
    )
    response = await call.serve(offset_delete.API, wanted)
    if response.error:
        raise response.error
    topics = by_topic(
        (partition.topic, {"partition_index": partition.partition, "error_code": error})
        for partition, error in response.errors.items()
    )
    return call.answer(topics=[{"name": name, "partitions": parts} for name, parts in topics.items()])


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error and without partitions."""
    return call.answer(error_code=error, topics=[])


TRANSLATION = Translation(api=offset_delete.API, serve=serve, refuse=refuse, wide=PARTITIONS)
