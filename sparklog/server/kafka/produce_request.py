"""Decoding of Produce requests without copies of the records, which are modified and written in the buffer.

    ProduceRequest   transactional id, nullable │ acks i16 │ timeout ms i32 │ array of topics │ flexible: tags
    topic            name, v13: id │ array of partitions │ tags
    partition        number i32 │ records, nullable bytes │ tags

Flexible from version 9 on. kio would decode this as fast, but copies the records.

A request of 1 MiB, the default maximum of producers, has room for 15,000 batches of one record each. A request with
more than `MAX_PARTITIONS` is refused, because decoding blocks other requests, which appending does not. Tagged fields
of topics and partitions count as partitions.

Most requests have one topic and one partition. So short lengths are read in place, without a call. A slice beyond the
end of the request is shorter, without an error, so the end of the last field is compared with the request's size.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from sparklog.base.errors import InvalidRequest
from sparklog.server.kafka.array_counts import TooManyElements
from sparklog.server.kafka.packing import read_varint, skip_tags

FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_IDS = 13
ID_SIZE = 16
MAX_PARTITIONS = 10_000
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_ACKS_TIMEOUT_AND_COUNT = struct.Struct(">hii")
_PARTITION = struct.Struct(">ii")


class WirePartition(NamedTuple):
    """The records for one partition; None if the client sent null."""

    partition: int
    records: memoryview | None


class WireTopic(NamedTuple):
    """The partitions of one topic. `key` is the topic's name or id as encoded in the request, for the response."""

    key: bytes
    name: str
    """Empty if the request has the topic's id."""
    topic_id: UUID | None
    partitions: list[WirePartition]


class WireProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[WireTopic]


def read_produce_request(version: int, data: memoryview) -> WireProduceRequest:
    """Return the request in `data`. Raises InvalidRequest if it is not a complete request of this version."""
    try:
        request, end = _read_flexible(version, data) if version >= FIRST_FLEXIBLE else _read(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"not a Produce request of version {version}: {error}") from None
    if end > len(data):
        raise InvalidRequest(f"not a Produce request of version {version}: {len(data)} bytes, not {end}")
    return request


def _read(data: memoryview) -> tuple[WireProduceRequest, int]:
    """Decode an original version. Return the request and its end."""
    transactional_id, at = _text(data, 0)
    acks, timeout_ms, count = _ACKS_TIMEOUT_AND_COUNT.unpack_from(data, at)
    at += _ACKS_TIMEOUT_AND_COUNT.size
    topics = []
    left = MAX_PARTITIONS - max(0, count)
    if left < 0:
        raise TooManyElements(MAX_PARTITIONS)
    for _ in range(count):
        began = at
        name, at = _text(data, at)
        key = bytes(data[began:at])
        (count,) = _INT32.unpack_from(data, at)
        at += 4
        left -= max(0, count)
        if left < 0:
            raise TooManyElements(MAX_PARTITIONS)
        partitions = []
        for _ in range(count):
            partition, size = _PARTITION.unpack_from(data, at)
            at += _PARTITION.size
            records = None
            if size >= 0:
                records = data[at : at + size]
                at += size
            partitions.append(WirePartition(partition, records))
        topics.append(WireTopic(key, name or "", None, partitions))
    return WireProduceRequest(transactional_id, acks, timeout_ms, topics), at


def _read_flexible(version: int, data: memoryview) -> tuple[WireProduceRequest, int]:
    """Decode a flexible version. Return the request and its end, which is that of its topics.

    The tagged fields after the topics are not defined yet and are ignored.
    """
    transactional_id, at = _compact_text(data, 0) if data[0] else (None, 1)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(data, at)
    at += _ACKS_AND_TIMEOUT.size
    count, at = (data[at], at + 1) if data[at] < 0x80 else read_varint(data, at)
    topics = []
    left = MAX_PARTITIONS - max(0, count - 1)
    if left < 0:
        raise TooManyElements(MAX_PARTITIONS)
    for _ in range(count - 1):
        began, name, topic_id = at, "", None
        if version >= FIRST_WITH_TOPIC_IDS:
            at += ID_SIZE
            topic_id = _topic_id(bytes(data[began:at]))
        else:
            text, at = _compact_text(data, at)
            name = text or ""
        key = bytes(data[began:at])
        count, at = (data[at], at + 1) if data[at] < 0x80 else read_varint(data, at)
        left -= max(0, count - 1)
        if left < 0:
            raise TooManyElements(MAX_PARTITIONS)
        partitions = []
        for _ in range(count - 1):
            (partition,) = _INT32.unpack_from(data, at)
            at += 4
            size = data[at]
            if size < 0x80:
                at += 1
            elif data[at + 1] < 0x80:
                size, at = size & 0x7F | data[at + 1] << 7, at + 2
            else:
                size, at = read_varint(data, at)
            records = None
            if size:
                records = data[at : at + size - 1]
                at += size - 1
            at, left = (at + 1, left) if not data[at] else _skip_tags(data, at, left)
            partitions.append(WirePartition(partition, records))
        at, left = (at + 1, left) if not data[at] else _skip_tags(data, at, left)
        topics.append(WireTopic(key, name, topic_id, partitions))
    return WireProduceRequest(transactional_id, acks, timeout_ms, topics), at


@lru_cache(1024)
def _topic_id(data: bytes) -> UUID:
    if len(data) < ID_SIZE:
        raise IndexError(f"a topic id of {len(data)} bytes")
    return UUID(bytes=data)


def _skip_tags(data: memoryview, at: int, left: int) -> tuple[int, int]:
    """Return the end of the tagged fields at `at`, and the number of elements that may follow."""
    count, _ = read_varint(data, at)
    if count > left:
        raise TooManyElements(MAX_PARTITIONS)
    return skip_tags(data, at), left - count


def _text(data: memoryview, at: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(data, at)
    at += 2
    return (None, at) if size < 0 else (str(data[at : at + size], "utf-8"), at + size)


def _compact_text(data: memoryview, at: int) -> tuple[str | None, int]:
    size, at = (data[at], at + 1) if data[at] < 0x80 else read_varint(data, at)
    return (None, at) if size == 0 else (str(data[at : at + size - 1], "utf-8"), at + size - 1)
