"""Produce on Kafka's wire."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import produce
from sparklog.broker.apis.produce import ACKS_NONE, PartitionProduce, PartitionProduced, ProduceRequest
from sparklog.server.kafka import packing
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import Call, Pieces, Translation

FIRST_FLEXIBLE = 9
FIRST_WITH_LOG_START = 5
FIRST_WITH_MESSAGES = 8
FIRST_WITH_TOPIC_IDS = 13
_INT32 = struct.Struct(">i")
_RESULT = struct.Struct(">ihqq")
_LOG_START = struct.Struct(">q")


async def serve(call: Call, request: Message) -> Pieces | None:
    wanted: list[PartitionProduce] = []
    topics: list[tuple[bytes, list[PartitionProduced | int]]] = []
    for topic in request.topic_data:
        results: list[PartitionProduced | int] = []
        topics.append((_topic_key(call.version, topic), results))
        try:
            name = topic.name if call.version < FIRST_WITH_TOPIC_IDS else _name(call, topic.topic_id)
        except KafkaError as error:
            results += [PartitionProduced(topic="", partition=part.index, error=error) for part in topic.partition_data]
            continue
        for part in topic.partition_data:
            results.append(len(wanted))
            wanted.append(PartitionProduce(topic=name, partition=part.index, data=bytearray(part.records or b"")))
    response = await call.serve(
        produce.API,
        ProduceRequest(acks=request.acks, timeout_ms=int(request.timeout.total_seconds() * 1000), partitions=wanted),
    )
    done = response.partitions
    if request.acks == ACKS_NONE:
        return None
    return [
        _pack(
            call.version,
            ((key, [done[each] if isinstance(each, int) else each for each in results]) for key, results in topics),
            len(topics),
        )
    ]


def _name(call: Call, topic_id):
    return call.broker.services.metadata.get_by_id(topic_id).name


def _topic_key(version: int, topic: Message) -> bytes:
    if version >= FIRST_WITH_TOPIC_IDS:
        return topic.topic_id.bytes if topic.topic_id else bytes(16)
    return packing.string(topic.name, flexible=version >= FIRST_FLEXIBLE)


def _pack(version: int, topics: Iterable[tuple[bytes, Sequence[PartitionProduced]]], count: int) -> bytes:
    flexible = version >= FIRST_FLEXIBLE
    tags = packing.NO_TAGS if flexible else b""
    parts = [packing.array(count, flexible=flexible)]
    for key, results in topics:
        parts += (key, packing.array(len(results), flexible=flexible))
        for result in results:
            parts.append(
                _RESULT.pack(
                    result.partition,
                    result.error.code if result.error else 0,
                    result.base_offset,
                    result.log_append_time_ms,
                )
            )
            if version >= FIRST_WITH_LOG_START:
                parts.append(_LOG_START.pack(result.log_start_offset))
            if version >= FIRST_WITH_MESSAGES:
                parts += (
                    packing.array(0, flexible=flexible),
                    packing.string(str(result.error) if result.error else None, flexible=flexible),
                )
            parts.append(tags)
        parts.append(tags)
    parts += (_INT32.pack(0), tags)
    return b"".join(parts)


TRANSLATION = Translation(api=produce.API, serve=serve)
