"""OffsetForLeaderEpoch in Kafka's protocol."""

from __future__ import annotations

from itertools import groupby

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import offset_for_leader_epoch
from sparklog.broker.apis.offset_for_leader_epoch import EpochQuery, OffsetForLeaderEpochRequest, PartitionEpochEnd
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import READ_PARTITIONS, KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the epoch and its end offset, or the error, of each partition."""
    queries = [
        EpochQuery(
            topic=topic.topic,
            partition=part.partition,
            leader_epoch=part.leader_epoch,
            current_leader_epoch=part.current_leader_epoch if part.current_leader_epoch >= 0 else None,
        )
        for topic in request.topics
        for part in topic.partitions
    ]
    response = await call.serve(offset_for_leader_epoch.API, OffsetForLeaderEpochRequest(partitions=queries))
    return _answer(call, list(response.partitions))


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each partition."""
    return _answer(
        call,
        [
            PartitionEpochEnd(topic=topic.topic, partition=part.partition, error=error)
            for topic in request.topics
            for part in topic.partitions
        ],
    )


def _answer(call: KafkaCall, found: list[PartitionEpochEnd]) -> Message:
    return call.answer(
        throttle_time=0,
        topics=[
            {
                "topic": name,
                "partitions": [
                    {
                        "error_code": part.error,
                        "partition": part.partition,
                        "leader_epoch": part.leader_epoch,
                        "end_offset": part.end_offset,
                    }
                    for part in parts
                ],
            }
            for name, parts in groupby(found, lambda part: part.topic)
        ],
    )


TRANSLATION = Translation(api=offset_for_leader_epoch.API, serve=serve, refuse=refuse, wide=READ_PARTITIONS)
