"""DescribeTopicPartitions on Kafka's wire. Eligible leader replicas are not kept, so there are none."""

from __future__ import annotations

from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import describe_topic_partitions
from sparklog.broker.apis.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from sparklog.broker.apis.metadata import TopicMetadata
from sparklog.server.kafka import operations
from sparklog.server.kafka.apis.metadata import partition_fields
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import Call, Translation


async def serve(call: Call, request: Message) -> Message:
    cursor = request.cursor
    wanted = DescribeTopicPartitionsRequest(
        names=[topic.name for topic in request.topics],
        limit=request.response_partition_limit,
        cursor=Cursor(topic=cursor.topic_name, partition=cursor.partition_index) if cursor else None,
    )
    response = await call.serve(describe_topic_partitions.API, wanted)
    after = response.next_cursor
    return call.answer(
        throttle_time=0,
        topics=[_topic(topic) for topic in response.topics],
        next_cursor={"topic_name": after.topic, "partition_index": after.partition} if after else None,
    )


def refuse(call: Call, request: Message, error: KafkaError) -> Message:
    return call.answer(
        throttle_time=0,
        topics=[_topic(TopicMetadata(name=topic.name, error=error)) for topic in request.topics],
    )


def _topic(topic: TopicMetadata) -> dict[str, Any]:
    return {
        "error_code": topic.error,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "topic_authorized_operations": operations.ON_TOPIC,
        "partitions": [
            {**partition_fields(part), "eligible_leader_replicas": (), "last_known_elr": ()}
            for part in topic.partitions
        ],
    }


TRANSLATION = Translation(api=describe_topic_partitions.API, serve=serve, refuse=refuse)
