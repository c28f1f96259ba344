"""ListOffsets on Kafka's wire."""

from __future__ import annotations

from itertools import groupby

from sparklog.broker.apis import list_offsets
from sparklog.broker.apis.list_offsets import ListOffsetsRequest, PartitionOffsetQuery
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import Call, Translation


async def serve(call: Call, request: Message) -> Message:
    queries = [
        PartitionOffsetQuery(topic=topic.name, partition=part.partition_index, position=part.timestamp)
        for topic in request.topics
        for part in topic.partitions
    ]
    response = await call.serve(list_offsets.API, ListOffsetsRequest(partitions=queries))
    return call.answer(
        throttle_time=0,
        topics=[
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": part.partition,
                        "error_code": part.error,
                        "timestamp": part.timestamp_ms,
                        "offset": part.offset,
                        "leader_epoch": part.leader_epoch,
                    }
                    for part in parts
                ],
            }
            for name, parts in groupby(response.partitions, lambda part: part.topic)
        ],
    )


TRANSLATION = Translation(api=list_offsets.API, serve=serve)
