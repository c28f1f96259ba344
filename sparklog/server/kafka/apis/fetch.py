"""Fetch in Kafka's protocol. The response is encoded without kio, so that records go from the file to the socket.

    FetchResponse   throttle time i32 │ v7: error i16, session id i32 │ array of topics │ flexible: tags
    topic           name, v13: id │ array of partitions │ tags
    partition       index i32, error i16, high watermark i64, last stable offset i64 │ v5: log start offset i64
                    │ aborted transactions: for read_committed an array of producer id i64, first offset i64,
                    otherwise null
                    │ v11: preferred read replica i32 │ records: length, bytes │ v12: tags, as 0 the diverging epoch,
                    1 the current leader

Flexible from version 12 on. If a request is refused as a whole, the error is at the top of the response; before version
7, in each partition.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import groupby, islice
from typing import Any, TypeVar

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import fetch
from sparklog.broker.apis.fetch import FetchRequest, FetchResponse, PartitionFetch, PartitionFetchResult
from sparklog.broker.fetch_sessions import FINAL_EPOCH, NO_SESSION, Key
from sparklog.log.slice import LogSlice
from sparklog.runtime.slices import of_many
from sparklog.server.kafka import packing
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import current_leader, node_endpoints
from sparklog.server.kafka.topic_ids import TopicIds
from sparklog.server.kafka.translation import KafkaCall, Pieces, Translation

FIRST_WITH_LOG_START = 5
FIRST_WITH_SESSIONS = 7
FIRST_WITH_PREFERRED_REPLICA = 11
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_LEADERS = 16
READ_COMMITTED = 1
MILLISECOND = timedelta(milliseconds=1)
Item = TypeVar("Item")
NO_ID = bytes(16)
DIVERGING_EPOCH_TAG, CURRENT_LEADER_TAG = 0, 1
_INT32 = struct.Struct(">i")
_ERROR_AND_SESSION = struct.Struct(">hi")
_PARTITION = struct.Struct(">ihqq")
_LOG_START = struct.Struct(">q")
_ABORTED = struct.Struct(">qq")
_DIVERGING_EPOCH = struct.Struct(">iq")


async def serve(call: KafkaCall, request: Message) -> Pieces:
    """Return the pieces of the response. Many partitions are read and packed in slices of time."""
    size = 0
    for topic in request.topics:
        size += len(topic.partitions)
    asked = _requested_partitions(call, request)
    throttle = call.session.throttle
    wanted = FetchRequest(
        max_wait_ms=request.max_wait // MILLISECOND,
        min_bytes=request.min_bytes,
        max_bytes=throttle.fetch_bytes(request.max_bytes) if throttle else request.max_bytes,
        partitions=await _in_slices(call, asked) if size > fetch.TOGETHER else list(asked),
        session_id=getattr(request, "session_id", NO_SESSION),
        session_epoch=getattr(request, "session_epoch", FINAL_EPOCH),
        forgotten=_forgotten_partitions(call.version, request),
        uses_topic_ids=call.version >= FIRST_WITH_TOPIC_IDS,
        client_rack=request.rack_id if call.version >= FIRST_WITH_PREFERRED_REPLICA else None,
        is_read_committed=request.isolation_level == READ_COMMITTED,
        waits_beside_missing=True,
    )
    response = await call.serve(fetch.API, wanted)
    if len(response.partitions) <= fetch.TOGETHER:
        return _pack(call, response, is_read_committed=wanted.is_read_committed)
    return await _pack_in_slices(call, response, is_read_committed=wanted.is_read_committed)


def _with_throttle_time(pieces: Pieces, wait_ms: int) -> Pieces:
    """Set the throttle time at the start of the response."""
    first, *rest = pieces
    assert isinstance(first, bytes)
    return (_INT32.pack(wait_ms) + first[_INT32.size :], *rest)


async def _in_slices(call: KafkaCall, items: Iterator[Item]) -> list[Item]:
    """Return the items, made in slices of time; other requests are served between the slices."""
    made: list[Item] = []

    async def make(some: list[Item]) -> None:
        made.extend(some)

    await call.broker.slices.each(iter(lambda: list(islice(items, fetch.PART)), []), make)
    return made


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Pieces:
    """Return the answer to a request that was refused as a whole."""
    if call.version >= FIRST_WITH_SESSIONS:
        return _pack(call, FetchResponse(partitions=()), is_read_committed=False, error=error)
    failed = [
        PartitionFetchResult(topic=part.topic, partition=part.partition, fetch_offset=-1, next_offset=-1, error=error)
        for part in _requested_partitions(call, request)
    ]
    return _pack(call, FetchResponse(partitions=failed), is_read_committed=False)


def _requested_partitions(call: KafkaCall, request: Message) -> Iterator[PartitionFetch]:
    if call.version < FIRST_WITH_TOPIC_IDS:
        return (_partition(part, topic.topic, None) for topic in request.topics for part in topic.partitions)
    ids = TopicIds(call.broker)
    return (
        _partition(part, ids.find_name(topic.topic_id), topic.topic_id)
        for topic in request.topics
        for part in topic.partitions
    )


def _partition(part: Message, name: str | None, topic_id: Any) -> PartitionFetch:
    epoch = getattr(part, "current_leader_epoch", -1)
    last_epoch = getattr(part, "last_fetched_epoch", -1)
    return PartitionFetch(
        topic=name,
        topic_id=topic_id,
        partition=part.partition,
        fetch_offset=part.fetch_offset,
        max_bytes=part.partition_max_bytes,
        current_leader_epoch=epoch if epoch >= 0 else None,
        last_fetched_epoch=last_epoch if last_epoch >= 0 else None,
    )


def _forgotten_partitions(version: int, request: Message) -> list[Key]:
    if version < FIRST_WITH_SESSIONS or not request.forgotten_topics_data:
        return []
    by_id = version >= FIRST_WITH_TOPIC_IDS
    return [
        (topic.topic_id if by_id else topic.topic, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]


def _pack(
    call: KafkaCall, response: FetchResponse, *, is_read_committed: bool, error: KafkaError | None = None
) -> Pieces:
    packed = _ResponsePacker(call, response, is_read_committed=is_read_committed, error=error)
    for parts in packed.topics:
        packed.begin_topic(parts)
        packed.add(parts)
        packed.end_topic()
    return packed.end()


async def _pack_in_slices(call: KafkaCall, response: FetchResponse, *, is_read_committed: bool) -> Pieces:
    """Pack a response as `_pack` does, in slices of time; other requests are served between the slices."""
    packed = _ResponsePacker(call, response, is_read_committed=is_read_committed)

    async def add(parts: Sequence[PartitionFetchResult]) -> None:
        packed.add(parts)

    for parts in packed.topics:
        packed.begin_topic(parts)
        await call.broker.slices.each(of_many(parts, fetch.PART), add)
        packed.end_topic()
    return packed.end()


class _ResponsePacker:
    """A response under construction: its bytes, and its log slices."""

    def __init__(
        self, call: KafkaCall, response: FetchResponse, *, is_read_committed: bool, error: KafkaError | None = None
    ) -> None:
        self.topics = [list(parts) for _, parts in groupby(response.partitions, _topic_of)]
        self._call = call
        self._partitions = response.partitions
        self._is_read_committed = is_read_committed
        self._is_flexible = call.version >= FIRST_FLEXIBLE
        self._pieces: list[bytes | LogSlice] = []
        self._head = [_INT32.pack(0)]
        """The bytes before the next slice."""
        if call.version >= FIRST_WITH_SESSIONS:
            self._head.append(_ERROR_AND_SESSION.pack(error.code if error else 0, response.session_id))
        self._head.append(packing.array(len(self.topics), flexible=self._is_flexible))

    def begin_topic(self, parts: Sequence[PartitionFetchResult]) -> None:
        self._head += (_topic_key(self._call.version, parts[0]), packing.array(len(parts), flexible=self._is_flexible))

    def add(self, parts: Sequence[PartitionFetchResult]) -> None:
        version, is_flexible, is_read_committed = self._call.version, self._is_flexible, self._is_read_committed
        pieces, head = self._pieces, self._head
        for part in parts:
            head.append(_pack_partition(version, part, is_read_committed=is_read_committed))
            if part.slice:
                pieces += (b"".join(head), part.slice)
                head.clear()
            if is_flexible:
                head.append(_partition_tags(self._call, part) if part.error or part.diverging else packing.NO_TAGS)

    def end_topic(self) -> None:
        if self._is_flexible:
            self._head.append(packing.NO_TAGS)

    def end(self) -> Pieces:
        if self._is_flexible:
            self._head.append(_response_tags(self._call, self._partitions))
        self._pieces.append(b"".join(self._head))
        return self._pieces


def _topic_of(part: PartitionFetchResult) -> Any:
    return part.topic_id or part.topic


def _topic_key(version: int, part: PartitionFetchResult) -> bytes:
    if version >= FIRST_WITH_TOPIC_IDS:
        return part.topic_id.bytes if part.topic_id else NO_ID
    return packing.string(part.topic or "", flexible=version >= FIRST_FLEXIBLE)


def _pack_partition(version: int, part: PartitionFetchResult, *, is_read_committed: bool) -> bytes:
    """Return the bytes of a partition before its records."""
    flexible = version >= FIRST_FLEXIBLE
    size = part.slice.size if part.slice else 0
    packed = _PARTITION.pack(
        part.partition, part.error.code if part.error else 0, part.high_watermark, part.last_stable_offset
    )
    if version >= FIRST_WITH_LOG_START:
        packed += _LOG_START.pack(part.log_start_offset)
    if is_read_committed and part.error is None:
        packed += packing.array(len(part.aborted), flexible=flexible)
        end = packing.NO_TAGS if flexible else b""
        packed += b"".join(_ABORTED.pack(each.producer_id, each.first_offset) + end for each in part.aborted)
    else:
        packed += packing.NULL_COMPACT if flexible else packing.NULL_ARRAY
    if version >= FIRST_WITH_PREFERRED_REPLICA:
        packed += _INT32.pack(part.preferred_read_replica)
    return packed + (packing.varint(size + 1) if flexible else _INT32.pack(size))


def _partition_tags(call: KafkaCall, part: PartitionFetchResult) -> bytes:
    if part.diverging:
        data = _DIVERGING_EPOCH.pack(part.diverging.epoch, part.diverging.end_offset) + packing.NO_TAGS
        return packing.tags({DIVERGING_EPOCH_TAG: data})
    if call.version >= FIRST_WITH_LEADERS and part.is_told_leader:
        return packing.tags({CURRENT_LEADER_TAG: current_leader(call, part.current_leader)})
    return packing.NO_TAGS


def _response_tags(call: KafkaCall, parts: Iterable[PartitionFetchResult]) -> bytes:
    if call.version < FIRST_WITH_LEADERS:
        return packing.NO_TAGS
    leaders = [part.current_leader for part in parts if part.is_told_leader]
    return node_endpoints(call, leaders) if leaders else packing.NO_TAGS


TRANSLATION = Translation(
    api=fetch.API, serve=serve, refuse=refuse, throttled=_with_throttle_time, ends_with_connection=True
)
