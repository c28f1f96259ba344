"""Produce requests, read by hand: records stay where they came in, are stamped there, and written from there.

    ProduceRequest   transactional id, nullable │ acks i16 │ timeout ms i32 │ array of topics │ flexible: tags
    topic            name, v13: id │ array of partitions │ tags
    partition        number i32 │ records, nullable bytes │ tags

Flexible from version 9 on. kio would read this as fast, but copies the records out of the request.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from sparklog.base.errors import InvalidRequest
from sparklog.server.kafka.packing import read_varint

FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_IDS = 13
ID_SIZE = 16
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")


class Produced(NamedTuple):
    """What is to be appended to one partition; `records` is None where the client sent null."""

    partition: int
    records: memoryview | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProduced:
    """`key` is how the request names the topic, in bytes that the response can repeat."""

    key: bytes
    name: str
    """Empty where the topic is named by its id."""
    topic_id: UUID | None
    partitions: list[Produced]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireProduceRequest:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicProduced]


def read_produce_request(version: int, data: memoryview) -> WireProduceRequest:
    """Raises InvalidRequest where `data` does not hold a whole request of this version."""
    try:
        return _Reader(version, data).request()
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"not a Produce request of version {version}: {error}") from None


class _Reader:
    """Walks over a request; `_at` is where it is."""

    __slots__ = ("_at", "_data", "_flexible", "_has_ids")

    def __init__(self, version: int, data: memoryview) -> None:
        self._data = data
        self._at = 0
        self._flexible = version >= FIRST_FLEXIBLE
        self._has_ids = version >= FIRST_WITH_TOPIC_IDS

    def request(self) -> WireProduceRequest:
        transactional_id = self._text()
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(self._data, self._at)
        self._at += _ACKS_AND_TIMEOUT.size
        topics = [self._topic() for _ in range(self._count())]
        return WireProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topics=topics
        )  # what follows are tags that mean nothing yet

    def _topic(self) -> TopicProduced:
        began = self._at
        name, topic_id = "", None
        if self._has_ids:
            topic_id = UUID(bytes=bytes(self._take(ID_SIZE)))
        else:
            name = self._text() or ""
        key = bytes(self._data[began : self._at])
        partitions = [self._partition() for _ in range(self._count())]
        self._skip_tags()
        return TopicProduced(key=key, name=name, topic_id=topic_id, partitions=partitions)

    def _partition(self) -> Produced:
        (partition,) = _INT32.unpack_from(self._data, self._at)
        self._at += 4
        size = self._compact_length() if self._flexible else self._int(_INT32)
        records = None if size < 0 else self._take(size)
        self._skip_tags()
        return Produced(partition, records)

    def _text(self) -> str | None:
        size = self._compact_length() if self._flexible else self._int(_INT16)
        return None if size < 0 else str(self._take(size), "utf-8")

    def _count(self) -> int:
        return self._compact_length() if self._flexible else self._int(_INT32)

    def _take(self, size: int) -> memoryview:
        end = self._at + size
        if end > len(self._data):
            raise IndexError(f"{size} bytes at position {self._at}, of {len(self._data)} in all")
        part = self._data[self._at : end]
        self._at = end
        return part

    def _int(self, form: struct.Struct) -> int:
        value: int = form.unpack_from(self._data, self._at)[0]
        self._at += form.size
        return value

    def _compact_length(self) -> int:
        """-1 for null."""
        value, self._at = read_varint(self._data, self._at)
        return value - 1

    def _skip_tags(self) -> None:
        if not self._flexible:
            return
        count, self._at = read_varint(self._data, self._at)
        for _ in range(count):
            _, self._at = read_varint(self._data, self._at)
            size, self._at = read_varint(self._data, self._at)
            self._take(size)
