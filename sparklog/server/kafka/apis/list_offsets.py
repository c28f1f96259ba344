"""ListOffsets in Kafka's protocol.

A position that the request's version does not have gets UNSUPPORTED_VERSION. A duplicate partition gets one
INVALID_REQUEST. Both errors are in the partition's result, as in Apache Kafka. Before version 5, OFFSET_NOT_AVAILABLE
is sent as LEADER_NOT_AVAILABLE, which old clients know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import groupby

from msgspec.structs import replace

from sparklog.base.errors import InvalidRequest, KafkaError, LeaderNotAvailable, OffsetNotAvailable, UnsupportedVersion
from sparklog.broker.apis import list_offsets
from sparklog.broker.apis.list_offsets import ListOffsetsRequest, PartitionOffset, PartitionOffsetQuery
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import PARTITIONS, KafkaCall, Translation

FIRST_VERSION_WITH = {
    list_offsets.LATEST: 1,
    list_offsets.EARLIEST: 1,
    list_offsets.MAX_TIMESTAMP: 7,
    list_offsets.EARLIEST_LOCAL: 8,
    list_offsets.LATEST_TIERED: 9,
    list_offsets.EARLIEST_PENDING_UPLOAD: 11,
}
NEVER = 1 << 15
READ_COMMITTED = 1
FIRST_WITH_OFFSET_NOT_AVAILABLE = 5


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the offset or an error of each partition; duplicates are answered once."""
    queries = named = _queries(request)
    times: Mapping[tuple[str, int], int] = {}
    if len(named) > 1:
        times = Counter((query.topic, query.partition) for query in named)
        queries = list({(query.topic, query.partition): query for query in named}.values())
    refused = {
        number: PartitionOffset(topic=query.topic, partition=query.partition, error=error)
        for number, query in enumerate(queries)
        if (error := _error(call.version, query, times.get((query.topic, query.partition), 1)))
    }
    asked = [query for number, query in enumerate(queries) if number not in refused] if refused else queries
    wanted = ListOffsetsRequest(
        partitions=asked, is_read_committed=getattr(request, "isolation_level", 0) == READ_COMMITTED
    )
    found = iter((await call.serve(list_offsets.API, wanted)).partitions)
    return _answer(call, [refused.get(number) or next(found) for number in range(len(queries))])


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each partition."""
    failed = PartitionOffset(topic="", partition=-1, error=error)
    return _answer(call, [replace(failed, topic=each.topic, partition=each.partition) for each in _queries(request)])


def _queries(request: Message) -> list[PartitionOffsetQuery]:
    queries = []
    for topic in request.topics:
        for part in topic.partitions:
            epoch = getattr(part, "current_leader_epoch", -1)
            queries.append(
                PartitionOffsetQuery(
                    topic=topic.name,
                    partition=part.partition_index,
                    position=part.timestamp,
                    current_leader_epoch=epoch if epoch >= 0 else None,
                )
            )
    return queries


def _error(version: int, query: PartitionOffsetQuery, times: int) -> KafkaError | None:
    if times > 1:
        return InvalidRequest(f"{query.topic}-{query.partition} is named {times} times")
    if query.position < 0 and version < FIRST_VERSION_WITH.get(query.position, NEVER):
        return UnsupportedVersion(
            f"{query.topic}-{query.partition}: version {version} of ListOffsets has no position {query.position}"
        )
    return None


def _known_error(version: int, error: KafkaError | None) -> KafkaError | None:
    if isinstance(error, OffsetNotAvailable) and version < FIRST_WITH_OFFSET_NOT_AVAILABLE:
        return LeaderNotAvailable(str(error))
    return error


def _answer(call: KafkaCall, found: list[PartitionOffset]) -> Message:
    return call.answer(
        throttle_time=0,
        topics=[
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": part.partition,
                        "error_code": _known_error(call.version, part.error),
                        "timestamp": part.timestamp_ms,
                        "offset": part.offset,
                        "leader_epoch": part.leader_epoch,
                    }
                    for part in parts
                ],
            }
            for name, parts in groupby(found, lambda part: part.topic)
        ],
    )


TRANSLATION = Translation(api=list_offsets.API, serve=serve, refuse=refuse, wide=PARTITIONS)
