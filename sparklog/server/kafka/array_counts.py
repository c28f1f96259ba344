"""Refuses a request in which a compact array says that it has more elements than there are bytes.

The native reader of `kio` makes room for as many elements as an array says it has. A count of 32 bits stands for 32 GB,
and where they cannot be had the process is aborted: twenty bytes of anybody would end a broker. Counts are compact in
the flexible versions of a message (KIP-482), as unsigned varints. One of more than 31 bits has five bytes, which a
search finds at once; only where there is something like it, be it in a name or an id, the request is walked through.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from sparklog.base.errors import InvalidRequest
from sparklog.server.kafka.packing import read_varint

_LIKE_A_HUGE_COUNT = re.compile(rb"[\x80-\xff]{4}[\x08-\x7f]", re.DOTALL)
_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "timedelta_i32": 4, "int64": 8,
    "float64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip
Skip = Callable[[memoryview, int], int]
"""Where what begins at a position ends; raises InvalidRequest where the data ends before."""


def check_array_counts(cls: Any, data: bytes | memoryview) -> None:
    """Raises InvalidRequest where the request, of this class of kio's, is not one that its reader may see."""
    if cls.__flexible__ and _LIKE_A_HUGE_COUNT.search(data):
        skip_entity(cls)(memoryview(data), 0)


@cache
def skip_entity(cls: Any) -> Skip:
    """A structure in a flexible version: its fields in their order, then the tagged ones."""
    fields = dataclasses.fields(cls)
    steps = [_skip_field(field) for field in fields if "tag" not in field.metadata]
    tagged = {field.metadata["tag"]: _skip_field(field) for field in fields if "tag" in field.metadata}

    def skip(data: memoryview, at: int) -> int:
        for step in steps:
            at = step(data, at)
        count, at = read_varint(data, at)
        for _ in range(count):
            tag, at = read_varint(data, at)
            size, at = read_varint(data, at)
            end = _within(data, at + size)
            if tag in tagged:
                tagged[tag](data[:end], at)
            at = end
        return at

    return skip


def _skip_field(field: dataclasses.Field[Any]) -> Skip:
    kind: Any = field.type
    is_optional = False
    if get_origin(kind) in (Union, UnionType):
        [kind], is_optional = [each for each in get_args(kind) if each is not NoneType], True
    if get_origin(kind) is tuple:
        element: Any = get_args(kind)[0]
        return _array(skip_entity(element) if hasattr(element, "__dataclass_fields__") else _skip_value(field))
    if hasattr(kind, "__dataclass_fields__"):
        return _optional(skip_entity(kind)) if is_optional else skip_entity(kind)
    return _skip_value(field)


def _skip_value(field: dataclasses.Field[Any]) -> Skip:
    size = _SIZES.get(field.metadata["kafka_type"])
    return _skip_bytes if size is None else lambda data, at: _within(data, at + size)


def _skip_bytes(data: memoryview, at: int) -> int:
    """A string, bytes or records: the length, one more than it is, 0 for null."""
    size, at = read_varint(data, at)
    return _within(data, at + max(0, size - 1))


def _array(element: Skip) -> Skip:
    def skip(data: memoryview, at: int) -> int:
        count, at = read_varint(data, at)
        if count - 1 > len(data) - at:
            raise InvalidRequest(f"an array of {count - 1} elements at position {at}, of {len(data) - at} bytes")
        for _ in range(count - 1):
            at = element(data, at)
        return at

    return skip


def _optional(entity: Skip) -> Skip:
    """A structure behind a byte that is -1 where there is none."""

    def skip(data: memoryview, at: int) -> int:
        start = _within(data, at + 1)
        return start if data[at] == 0xFF else entity(data, start)

    return skip


def _within(data: memoryview, end: int) -> int:
    if end > len(data):
        raise InvalidRequest(f"the request ends at {len(data)}, a field of it at {end}")
    return end
