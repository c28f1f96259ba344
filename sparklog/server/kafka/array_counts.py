"""Check of the number of array elements in a request, before memory is allocated for them.

A request of n bytes may have n/2 elements in its arrays. Each decoded element takes hundreds of bytes and several
microseconds. So the elements of a large request are counted first, in a pass over its bytes according to its schema.
The limit applies to all arrays together, including nested ones.

The native reader of `kio` allocates memory for the count of an array before it reads the elements. A count of 32 bits
would take 32 GB, and a failed allocation aborts the process: twenty bytes from any client could kill a broker. The
flexible versions of a message (KIP-482) encode counts as unsigned varints. A varint this large has five bytes, which a
regular expression finds quickly. The elements of a small request are counted only after a match, which may also be part
of a name or an id.
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
"""Several times the elements in requests of clients in the largest clusters."""
SMALL_BYTES = 64 << 10
"""Any request of up to this size is decoded in a few milliseconds."""
_LIKE_A_HUGE_COUNT = re.compile(rb"[\x80-\xff]{4}[\x08-\x7f]", re.DOTALL)
_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "timedelta_i32": 4, "int64": 8,
    "float64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class TooManyElements(InvalidRequest):
    """A request has more than `most` elements."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the request names more than {most} things at once: ask in several requests")


class ElementAllowance:
    """Number of elements that are still allowed."""

    def __init__(self, elements: int = MAX_ELEMENTS) -> None:
        self._most = self._left = elements

    def take(self, elements: int) -> None:
        """Subtract `elements`. Raises TooManyElements if not so many are left."""
        self._left -= max(0, elements)
        if self._left < 0:
            raise TooManyElements(self._most)


FieldSkipper = Callable[[memoryview, int, ElementAllowance], int]
"""Returns the end of the field at a position. Raises InvalidRequest for short data or too many elements."""


def check_array_counts(cls: Any, data: bytes | memoryview, most: int = MAX_ELEMENTS) -> None:
    """Raise InvalidRequest if a request of this class has too many elements for kio's reader.

    Takes up to a second for a large request; call it in a thread then.
    """
    if len(data) > SMALL_BYTES or (cls.__flexible__ and _LIKE_A_HUGE_COUNT.search(data)):
        skip_entity(cls)(memoryview(data), 0, ElementAllowance(most))


@cache
def skip_entity(cls: Any) -> FieldSkipper:
    """Return the skipper of a structure: its fields in order, then the tagged fields if the version is flexible."""
    fields = dataclasses.fields(cls)
    is_flexible: bool = cls.__flexible__
    steps = [_skip_field(field, is_flexible) for field in fields if "tag" not in field.metadata]
    tagged = {field.metadata["tag"]: _skip_field(field, is_flexible) for field in fields if "tag" in field.metadata}

    def skip(data: memoryview, at: int, room: ElementAllowance) -> int:
        for step in steps:
            at = step(data, at, room)
        return _skip_tagged(tagged, data, at, room) if is_flexible else at

    return skip


def _skip_tagged(tagged: Mapping[int, FieldSkipper], data: memoryview, at: int, room: ElementAllowance) -> int:
    count, at = read_varint(data, at)
    room.take(count)
    for _ in range(count):
        tag, at = read_varint(data, at)
        size, at = read_varint(data, at)
        end = _checked_end(data, at + size)
        if tag in tagged:
            tagged[tag](data[:end], at, room)
        at = end
    return at


def _skip_field(field: dataclasses.Field[Any], is_flexible: bool) -> FieldSkipper:
    kind: Any = field.type
    is_optional = False
    if get_origin(kind) in (Union, UnionType):
        [kind], is_optional = [each for each in get_args(kind) if each is not NoneType], True
    if get_origin(kind) is tuple:
        element: Any = get_args(kind)[0]
        is_entity = dataclasses.is_dataclass(element)
        return _array(skip_entity(element) if is_entity else _skip_value(field, is_flexible), is_flexible)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _optional(skip_entity(kind)) if is_optional else skip_entity(kind)
    return _skip_value(field, is_flexible)


def _skip_value(field: dataclasses.Field[Any], is_flexible: bool) -> FieldSkipper:
    kind = field.metadata["kafka_type"]
    if size := _SIZES.get(kind):
        return lambda data, at, _: _checked_end(data, at + size)
    if is_flexible:
        return _skip_compact
    return _skip_text if kind == "string" else _skip_bytes


def _skip_compact(data: memoryview, at: int, _: ElementAllowance) -> int:
    """Skip a compact string, bytes or records: the length plus 1, 0 for null, then the content."""
    size, at = read_varint(data, at)
    return _checked_end(data, at + max(0, size - 1))


def _skip_text(data: memoryview, at: int, _: ElementAllowance) -> int:
    """Skip a string: the length, -1 for null, then the content."""
    start = _checked_end(data, at + 2)
    return _checked_end(data, start + max(0, _INT16.unpack_from(data, at)[0]))


def _skip_bytes(data: memoryview, at: int, _: ElementAllowance) -> int:
    """Skip bytes or records: the length, -1 for null, then the content."""
    start = _checked_end(data, at + 4)
    return _checked_end(data, start + max(0, _INT32.unpack_from(data, at)[0]))


def _array(element: FieldSkipper, is_flexible: bool) -> FieldSkipper:
    def skip(data: memoryview, at: int, room: ElementAllowance) -> int:
        if is_flexible:
            count, at = read_varint(data, at)
            count -= 1
        else:
            start = _checked_end(data, at + 4)
            count, at = _INT32.unpack_from(data, at)[0], start
        if count > len(data) - at:
            raise InvalidRequest(f"an array of {count} elements at position {at}, of {len(data) - at} bytes")
        room.take(count)
        for _ in range(count):
            at = element(data, at, room)
        return at

    return skip


def _optional(entity: FieldSkipper) -> FieldSkipper:
    """Return the skipper of a nullable structure: a byte, -1 for null, then the structure."""

    def skip(data: memoryview, at: int, room: ElementAllowance) -> int:
        start = _checked_end(data, at + 1)
        return start if data[at] == 0xFF else entity(data, start, room)

    return skip


def _checked_end(data: memoryview, end: int) -> int:
    if end > len(data):
        raise InvalidRequest(f"the request ends at {len(data)}, a field of it at {end}")
    return end
