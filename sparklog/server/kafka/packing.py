"""The primitives of Kafka's protocol as bytes, for what is read and packed by hand: headers, Produce and Fetch.

Each exists in two forms: as it has always been, and compact, in the flexible versions of a message (KIP-482), where
lengths are unsigned varints, one more than the length so that 0 says null.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from sparklog.base.errors import InvalidRequest

NO_TAGS = b"\0"
NULL_COMPACT = b"\0"
_SHORT_VARINTS = tuple(bytes((value,)) for value in range(128))
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
NULL_STRING = _INT16.pack(-1)
NULL_ARRAY = _INT32.pack(-1)


def varint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 0x80:
        return _SHORT_VARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """The unsigned varint at `at`, and where it ends; raises InvalidRequest beyond five bytes or the data's end."""
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise InvalidRequest(f"there is no varint that ends at position {at}")


def skip_tags(data: memoryview, at: int) -> int:
    """Where the tagged fields at `at` end; raises InvalidRequest where the data ends before."""
    count, at = read_varint(data, at)
    for _ in range(count):
        _, at = read_varint(data, at)
        size, at = read_varint(data, at)
        at += size
        if at > len(data):
            raise InvalidRequest("tagged fields longer than the request")
    return at


def string(text: str | None, *, flexible: bool) -> bytes:
    """A text, or null."""
    if text is None:
        return NULL_COMPACT if flexible else NULL_STRING
    data = text.encode()
    return (varint(len(data) + 1) if flexible else _INT16.pack(len(data))) + data


def array(count: int, *, flexible: bool) -> bytes:
    """What precedes the `count` elements of an array."""
    return varint(count + 1) if flexible else _INT32.pack(count)


def tags(fields: Mapping[int, bytes]) -> bytes:
    """Tagged fields by their numbers, in that order."""
    return varint(len(fields)) + b"".join(
        varint(number) + varint(len(data)) + data for number, data in sorted(fields.items())
    )
