"""The primitives of Kafka's protocol as bytes, for messages without kio: headers, Produce and Fetch.

Each has two forms: the original one, and the compact one of flexible versions (KIP-482). In the compact form, a length
is an unsigned varint of the length plus 1; 0 means null.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from sparklog.base.errors import InvalidRequest

NO_TAGS = b"\0"
MAX_TAGS = 100
"""Maximum number of tagged fields in one structure. Kafka's schemas define fewer than ten."""
NULL_COMPACT = b"\0"
_SHORT_VARINTS = tuple(bytes((value,)) for value in range(128))
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
NULL_STRING = _INT16.pack(-1)
NULL_ARRAY = _INT32.pack(-1)


def varint(value: int) -> bytes:
    """Return an unsigned varint."""
    if value < 0x80:
        return _SHORT_VARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the unsigned varint at `at` and its end. Raises InvalidRequest beyond five bytes or the end of `data`."""
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
    """Return the end of the tagged fields at `at`.

    Raises InvalidRequest if the data ends before it, or if there are more than `MAX_TAGS` fields.
    """
    count, at = read_varint(data, at)
    if count > MAX_TAGS:
        raise InvalidRequest(f"{count} tagged fields in one structure, where {MAX_TAGS} are allowed")
    for _ in range(count):
        _, at = read_varint(data, at)
        size, at = read_varint(data, at)
        at += size
        if at > len(data):
            raise InvalidRequest("tagged fields longer than the request")
    return at


def string(text: str | None, *, flexible: bool) -> bytes:
    """Return the bytes of a string, or of null."""
    if text is None:
        return NULL_COMPACT if flexible else NULL_STRING
    data = text.encode()
    return (varint(len(data) + 1) if flexible else _INT16.pack(len(data))) + data


def array(count: int, *, flexible: bool) -> bytes:
    """Return the bytes that precede the `count` elements of an array."""
    if not flexible:
        return _INT32.pack(count)
    return _SHORT_VARINTS[count + 1] if count < 0x7F else varint(count + 1)


def tags(fields: Mapping[int, bytes]) -> bytes:
    """Return the bytes of tagged fields, in the order of their numbers."""
    return varint(len(fields)) + b"".join(
        varint(number) + varint(len(data)) + data for number, data in sorted(fields.items())
    )
