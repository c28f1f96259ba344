"""DescribeLogDirs in Kafka's protocol."""

from __future__ import annotations

import asyncio
from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import describe_log_dirs
from sparklog.broker.apis.describe_log_dirs import DescribeLogDirsRequest, LogDir
from sparklog.server.kafka.messages import Message, write
from sparklog.server.kafka.responses import by_topic
from sparklog.server.kafka.translation import KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> tuple[bytes]:
    """Return the answer's bytes, written in a thread: there may be many partitions."""
    topics = None
    if request.topics is not None:
        topics = {topic.topic: frozenset(topic.partitions) for topic in request.topics}
    response = await call.serve(describe_log_dirs.API, DescribeLogDirsRequest(topics=topics))
    return (
        await asyncio.to_thread(lambda: write(call.answer(results=[_log_dir(each) for each in response.log_dirs]))),
    )


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error and without directories."""
    return call.answer(error_code=error, results=[])


def _log_dir(log_dir: LogDir) -> dict[str, Any]:
    topics = by_topic(
        (
            part.topic,
            {
                "partition_index": part.partition,
                "partition_size": part.size_bytes,
                "offset_lag": part.offset_lag,
                "is_future_key": part.is_future,
            },
        )
        for part in log_dir.partitions
    )
    return {
        "error_code": log_dir.error,
        "log_dir": log_dir.path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": log_dir.total_bytes,
        "usable_bytes": log_dir.usable_bytes,
    }


TRANSLATION = Translation(api=describe_log_dirs.API, serve=serve, refuse=refuse)
