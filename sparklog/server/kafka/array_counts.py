"""Refuses a request that names more than a broker takes at once, before room is made for what it names.

A request of n bytes may have half as many elements in its arrays, each of which takes hundreds of bytes and several
microseconds once it is read. So the arrays of a large request are counted first, by walking through its bytes as its
schema says: a limit is for all of them together, nested ones included.

The native reader of `kio` makes room for as many elements as an array says it has. A count of 32 bits stands for 32 GB,
and where they cannot be had the process is aborted: twenty bytes of anybody would end a broker. Counts are compact in
the flexible versions of a message (KIP-482), as unsigned varints. One of more than 31 bits has five bytes, which a
search finds at once; only where there is something like it, be it in a name or an id, a small request is walked.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from sparklog.base.errors import InvalidRequest
from sparklog.server.kafka.packing import read_varint

MAX_ELEMENTS = 50_000
"""Several times what the clients of the largest clusters name at once."""
SMALL_BYTES = 64 << 10
"""A request of this size is read in a few milliseconds, whatever is in it."""
_LIKE_A_HUGE_COUNT = re.compile(rb"[\x80-\xff]{4}[\x08-\x7f]", re.DOTALL)
_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "timedelta_i32": 4, "int64": 8,
    "float64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class TooManyElements(InvalidRequest):
    """A request of more than `most` elements."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the request names more than {most} things at once: ask in several requests")


class Room:
    """For how many elements there is room yet."""

    def __init__(self, elements: int = MAX_ELEMENTS) -> None:
        self._most = self._left = elements

    def take(self, elements: int) -> None:
        self._left -= max(0, elements)
        if self._left < 0:
            raise TooManyElements(self._most)


Skip = Callable[[memoryview, int, Room], int]
"""Where what begins at a position ends; raises InvalidRequest where the data ends before, or there is no room."""


def check_array_counts(cls: Any, data: bytes | memoryview, most: int = MAX_ELEMENTS) -> None:
    """Raises InvalidRequest where the request, of this class of kio's, is not one that its reader may see.

    Takes up to a second for a large request: it is for a thread then.
    """
    if len(data) > SMALL_BYTES or (cls.__flexible__ and _LIKE_A_HUGE_COUNT.search(data)):
        skip_entity(cls)(memoryview(data), 0, Room(most))


@cache
def skip_entity(cls: Any) -> Skip:
    """A structure: its fields in their order, then the tagged ones where the version is flexible."""
    fields = dataclasses.fields(cls)
    is_flexible: bool = cls.__flexible__
    steps = [_skip_field(field, is_flexible) for field in fields if "tag" not in field.metadata]
    tagged = {field.metadata["tag"]: _skip_field(field, is_flexible) for field in fields if "tag" in field.metadata}

    def skip(data: memoryview, at: int, room: Room) -> int:
        for step in steps:
            at = step(data, at, room)
        return _skip_tagged(tagged, data, at, room) if is_flexible else at

    return skip


def _skip_tagged(tagged: Mapping[int, Skip], data: memoryview, at: int, room: Room) -> int:
    count, at = read_varint(data, at)
    room.take(count)
    for _ in range(count):
        tag, at = read_varint(data, at)
        size, at = read_varint(data, at)
        end = _within(data, at + size)
        if tag in tagged:
            tagged[tag](data[:end], at, room)
        at = end
    return at


def _skip_field(field: dataclasses.Field[Any], is_flexible: bool) -> Skip:
    kind: Any = field.type
    is_optional = False
    if get_origin(kind) in (Union, UnionType):
        [kind], is_optional = [each for each in get_args(kind) if each is not NoneType], True
    if get_origin(kind) is tuple:
        element: Any = get_args(kind)[0]
        is_entity = hasattr(element, "__dataclass_fields__")
        return _array(skip_entity(element) if is_entity else _skip_value(field, is_flexible), is_flexible)
    if hasattr(kind, "__dataclass_fields__"):
        return _optional(skip_entity(kind)) if is_optional else skip_entity(kind)
    return _skip_value(field, is_flexible)


def _skip_value(field: dataclasses.Field[Any], is_flexible: bool) -> Skip:
    kind = field.metadata["kafka_type"]
    if size := _SIZES.get(kind):
        return lambda data, at, _: _within(data, at + size)
    if is_flexible:
        return _skip_compact
    return _skip_text if kind == "string" else _skip_bytes


def _skip_compact(data: memoryview, at: int, _: Room) -> int:
    """A string, bytes or records: the length, one more than it is, 0 for null."""
    size, at = read_varint(data, at)
    return _within(data, at + max(0, size - 1))


def _skip_text(data: memoryview, at: int, _: Room) -> int:
    """A string: the length, -1 for null."""
    start = _within(data, at + 2)
    return _within(data, start + max(0, _INT16.unpack_from(data, at)[0]))


def _skip_bytes(data: memoryview, at: int, _: Room) -> int:
    """Bytes or records: the length, -1 for null."""
    start = _within(data, at + 4)
    return _within(data, start + max(0, _INT32.unpack_from(data, at)[0]))


def _array(element: Skip, is_flexible: bool) -> Skip:
    def skip(data: memoryview, at: int, room: Room) -> int:
        if is_flexible:
            count, at = read_varint(data, at)
            count -= 1
        else:
            start = _within(data, at + 4)
            count, at = _INT32.unpack_from(data, at)[0], start
        if count > len(data) - at:
            raise InvalidRequest(f"an array of {count} elements at position {at}, of {len(data) - at} bytes")
        room.take(count)
        for _ in range(count):
            at = element(data, at, room)
        return at

    return skip


def _optional(entity: Skip) -> Skip:
    """A structure behind a byte that is -1 where there is none."""

    def skip(data: memoryview, at: int, room: Room) -> int:
        start = _within(data, at + 1)
        return start if data[at] == 0xFF else entity(data, start, room)

    return skip


def _within(data: memoryview, end: int) -> int:
    if end > len(data):
        raise InvalidRequest(f"the request ends at {len(data)}, a field of it at {end}")
    return end
