"""DescribeTopicPartitions in Kafka's protocol. Eligible leader replicas are not tracked, so the lists are empty."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

from sparklog.base.acls import AclResourceType
from sparklog.base.errors import KafkaError
from sparklog.broker.apis import describe_topic_partitions
from sparklog.broker.apis.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from sparklog.broker.apis.metadata import TopicMetadata
from sparklog.server.kafka.apis.metadata import partition_fields
from sparklog.server.kafka.messages import Message, write
from sparklog.server.kafka.translation import PARTITIONS, KafkaCall, Translation
from sparklog.server.kafka.wide_requests import join

PART = 100
"""Number of partitions described at once."""


async def serve(call: KafkaCall, request: Message) -> tuple[bytes]:
    """Return the page's bytes. A page of more than PART partitions is joined from smaller ones.

    Other requests are served between them.
    """
    cursor = request.cursor
    after = Cursor(topic=cursor.topic_name, partition=cursor.partition_index) if cursor else None
    names = [topic.name for topic in request.topics]
    left = max(0, min(request.response_partition_limit, describe_topic_partitions.MAX_PARTITIONS))
    answers = []
    while True:
        limit = min(left, PART)
        wanted = DescribeTopicPartitionsRequest(names=names, limit=limit, cursor=after)
        response = await call.serve(describe_topic_partitions.API, wanted)
        after = response.next_cursor
        answers.append(_page(call, response.topics, after))
        left -= limit
        if left == 0 or after is None:
            break
        await call.broker.slices.give_way()
    page = dataclasses.replace(join(answers, PARTITIONS.response_arrays), next_cursor=answers[-1].next_cursor)
    return (await asyncio.to_thread(write, page) if len(answers) > 1 else write(page),)


def _page(call: KafkaCall, topics: Sequence[TopicMetadata], after: Cursor | None) -> Message:
    return call.answer(
        throttle_time=0,
        topics=[_topic(call, topic) for topic in topics],
        next_cursor={"topic_name": after.topic, "partition_index": after.partition} if after else None,
    )


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each topic, of at most PART topics."""
    return call.answer(
        throttle_time=0,
        topics=[_topic(call, TopicMetadata(name=topic.name, error=error)) for topic in request.topics[:PART]],
    )


def _topic(call: KafkaCall, topic: TopicMetadata) -> dict[str, Any]:
    return {
        "error_code": topic.error,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "topic_authorized_operations": call.operations(
            AclResourceType.TOPIC, topic.name or "", is_asked=topic.error is None
        ),
        "partitions": [
            {**partition_fields(part), "eligible_leader_replicas": (), "last_known_elr": ()}
            for part in topic.partitions
        ],
    }


TRANSLATION = Translation(api=describe_topic_partitions.API, serve=serve, refuse=refuse)
