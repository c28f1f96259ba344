"""Bytes that members of a consumer group exchange: Kafka's ConsumerProtocol.

    subscription   from each member to the group leader, with JoinGroup: its topics and its present partitions
    assignment     from the group leader to each member, with SyncGroup: its new partitions

Both begin with a 16-bit version. A later version only adds fields at the end, so a reader of any version ignores the
fields after those it knows. Numbers are big-endian, strings have 16-bit lengths, bytes and arrays 32-bit lengths; -1 is
null. This module writes version 3, like Java's clients. (ConsumerProtocolSubscription.json,
ConsumerProtocolAssignment.json)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparklog.base.ids import TopicPartition

PROTOCOL_TYPE = "consumer"
VERSION = 3
NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Topics that a member subscribes to, and its last assignment."""

    topics: Sequence[str]
    user_data: bytes | None = None
    """Data of the assignor; see sparklog/client/assignors."""
    owned: Sequence[TopicPartition] = ()
    """Partitions that the member owns now: from version 1 on (KIP-429)."""
    generation: int = NO_GENERATION
    """The generation in which the member got them: from version 2 on."""
    rack: str | None = None
    """The member's rack: from version 3 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Partitions assigned to a member."""

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


def write_subscription(subscription: Subscription) -> bytes:
    """Return the bytes of a subscription, of version 3."""
    return b"".join(
        (
            _INT16.pack(VERSION),
            _INT32.pack(len(subscription.topics)),
            *map(_pack_string, subscription.topics),
            _pack_bytes(subscription.user_data),
            write_partitions(subscription.owned),
            _INT32.pack(subscription.generation),
            _pack_string(subscription.rack),
        )
    )


def read_subscription(data: bytes) -> Subscription:
    """Return the subscription in `data`, of any version. Raises ValueError if there is none."""
    reader = ProtocolReader(data)
    version = reader.int16()
    topics = [reader.string() or "" for _ in range(reader.count())]
    user_data = reader.data()
    return Subscription(
        topics=topics,
        user_data=user_data,
        owned=reader.partitions() if version >= 1 else (),
        generation=reader.int32() if version >= 2 else NO_GENERATION,
        rack=reader.string() if version >= 3 else None,
    )


def write_assignment(assignment: Assignment) -> bytes:
    """Return the bytes of an assignment, of version 3."""
    return _INT16.pack(VERSION) + write_partitions(assignment.partitions) + _pack_bytes(assignment.user_data)


def read_assignment(data: bytes) -> Assignment:
    """Return the assignment in `data`; empty `data` is an empty one. Raises ValueError if it is no assignment."""
    if not data:
        return Assignment(partitions=())
    reader = ProtocolReader(data)
    reader.int16()
    return Assignment(partitions=reader.partitions(), user_data=reader.data())


def write_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the bytes of an array of topics, each with an array of its partitions, sorted."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    parts = [_INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += (_pack_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)


class ProtocolReader:
    """Reads values one after the other. Raises ValueError if the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """The number of unread bytes."""
        return len(self._data) - self._at

    def int16(self) -> int:
        """Read a signed number of 16 bits."""
        return int.from_bytes(self._read_bytes(2), "big", signed=True)

    def int32(self) -> int:
        """Read a signed number of 32 bits."""
        return int.from_bytes(self._read_bytes(4), "big", signed=True)

    def count(self) -> int:
        """Read the length of an array; 0 for a null array. Raises ValueError if it is greater than `left`."""
        count = self.int32()
        if count > self.left:
            raise ValueError(f"{count} elements in {self.left} bytes")
        return max(count, 0)

    def string(self) -> str | None:
        """Read a string with a 16-bit length; None for null."""
        size = self.int16()
        return None if size < 0 else self._read_bytes(size).decode()

    def data(self) -> bytes | None:
        """Read bytes with a 32-bit length; None for null."""
        size = self.int32()
        return None if size < 0 else self._read_bytes(size)

    def partitions(self) -> list[TopicPartition]:
        """Read what `write_partitions` wrote, in its order."""
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.string() or ""
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return found

    def _read_bytes(self, size: int) -> bytes:
        if size > self.left:
            raise ValueError(f"{size} bytes wanted, {self.left} are left")
        self._at += size
        return self._data[self._at - size : self._at]


_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def _pack_string(value: str | None) -> bytes:
    if value is None:
        return _INT16.pack(-1)
    data = value.encode()
    return _INT16.pack(len(data)) + data


def _pack_bytes(value: bytes | None) -> bytes:
    return _INT32.pack(-1) if value is None else _INT32.pack(len(value)) + value
