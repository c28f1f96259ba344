"""Protobuf's wire format, to insert and extract fields of bytes without parsing the rest of a message.

A message is a sequence of fields. A field is a tag (number << 3 | wire type, as a varint) and a content: a varint (0),
8 bytes (1), a length and that many bytes (2), or 4 bytes (5).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sparklog.base.errors import InvalidRequest


class WireField(NamedTuple):
    number: int
    whole: memoryview
    """The field with its tag."""
    content: memoryview
    """The content of a field of bytes or of a message; empty for other fields."""

    @property
    def has_length(self) -> bool:
        """Whether it is a field of bytes or of a message (wire type 2)."""
        return self.whole[0] & 7 == 2


def fields_of(view: memoryview) -> Iterator[WireField]:
    """Yield the fields of a message. Raises InvalidRequest if the bytes are not a message."""
    position = 0
    while position < len(view):
        start = position
        tag, position = _read_varint(view, position)
        content = view[:0]
        match tag & 7:
            case 0:
                _, position = _read_varint(view, position)
            case 1:
                position += 8
            case 5:
                position += 4
            case 2:
                size, position = _read_varint(view, position)
                content = view[position : position + size]
                position += size
            case kind:
                raise InvalidRequest(f"no protobuf message: wire type {kind}")
        yield WireField(tag >> 3, view[start:position], content)
    if position > len(view):
        raise InvalidRequest("no protobuf message: a field goes beyond its end")


def varint(value: int) -> bytes:
    """Return a number as a varint: 7 bits in each byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def bytes_tag(number: int) -> bytes:
    """Return the tag of a field of bytes or of a message (wire type 2); the length follows it."""
    return varint(number << 3 | 2)


def bytes_field(number: int, content: bytes | bytearray) -> bytes:
    """Return a whole field of bytes or of a message."""
    return b"".join((bytes_tag(number), varint(len(content)), content))


def _read_varint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(view):
            break
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise InvalidRequest("no protobuf message: a number goes on too long")
