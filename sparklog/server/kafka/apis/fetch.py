"""Fetch on Kafka's wire."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import fetch
from sparklog.broker.apis.fetch import FetchRequest, PartitionFetch, PartitionFetched
from sparklog.log.slice import LogSlice
from sparklog.server.kafka import packing
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import Call, Pieces, Translation

FIRST_FLEXIBLE = 12
FIRST_WITH_LOG_START = 5
FIRST_WITH_SESSIONS = 7
FIRST_WITH_PREFERRED_REPLICA = 11
FIRST_WITH_TOPIC_IDS = 13
_INT32 = struct.Struct(">i")
_SESSION = struct.Struct(">hi")
_RESULT = struct.Struct(">ihqq")
_LOG_START = struct.Struct(">q")


async def serve(call: Call, request: Message) -> Pieces:
    version = call.version
    asked: list[PartitionFetch] = []
    keys: dict[str, bytes] = {}
    refused: list[tuple[bytes, list[PartitionFetched]]] = []
    for topic in request.topics:
        try:
            if version >= FIRST_WITH_TOPIC_IDS:
                key = topic.topic_id.bytes
                name = call.broker.services.metadata.get_by_id(topic.topic_id).name
            else:
                name = topic.topic
                key = packing.string(name, flexible=version >= FIRST_FLEXIBLE)
        except KafkaError as error:
            refused.append(
                (
                    key,
                    [
                        PartitionFetched(
                            topic="", partition=p.partition, fetch_offset=p.fetch_offset, next_offset=-1, error=error
                        )
                        for p in topic.partitions
                    ],
                )
            )
            continue
        keys[name] = key
        for part in topic.partitions:
            epoch = getattr(part, "current_leader_epoch", -1)
            asked.append(
                PartitionFetch(
                    topic=name,
                    partition=part.partition,
                    fetch_offset=part.fetch_offset,
                    max_bytes=part.partition_max_bytes,
                    current_leader_epoch=epoch if epoch >= 0 else None,
                )
            )
    wait = 0 if refused else int(request.max_wait.total_seconds() * 1000)
    response = await call.serve(
        fetch.API,
        FetchRequest(max_wait_ms=wait, min_bytes=request.min_bytes, max_bytes=request.max_bytes, partitions=asked),
    )
    topics = [(keys[name], list(parts)) for name, parts in groupby(response.partitions, lambda part: part.topic)]
    return _pack(version, topics + refused)


def _pack(version: int, topics: Sequence[tuple[bytes, Sequence[PartitionFetched]]]) -> Pieces:
    flexible = version >= FIRST_FLEXIBLE
    tags = packing.NO_TAGS if flexible else b""
    pieces: list[bytes | LogSlice] = []
    head = [_INT32.pack(0)]
    if version >= FIRST_WITH_SESSIONS:
        head.append(_SESSION.pack(0, 0))
    head.append(packing.array(len(topics), flexible=flexible))
    for key, results in topics:
        head += (key, packing.array(len(results), flexible=flexible))
        for part in results:
            head.append(
                _RESULT.pack(
                    part.partition, part.error.code if part.error else 0, part.high_watermark, part.last_stable_offset
                )
            )
            if version >= FIRST_WITH_LOG_START:
                head.append(_LOG_START.pack(part.log_start_offset))
            head.append(packing.NULL_COMPACT if flexible else packing.NULL_ARRAY)
            if version >= FIRST_WITH_PREFERRED_REPLICA:
                head.append(_INT32.pack(-1))
            size = part.slice.size if part.slice else 0
            head.append(packing.varint(size + 1) if flexible else _INT32.pack(size))
            if part.slice:
                pieces += (b"".join(head), part.slice)
                head = []
            head.append(tags)
        head.append(tags)
    head.append(tags)
    pieces.append(b"".join(head))
    return pieces


TRANSLATION = Translation(api=fetch.API, serve=serve)
