"""Hand-written encoding and decoding of committed offsets.

Nearly every record of the offsets topic is one, and the schema-driven reader and writer (schemas.py) take several times
as long.

    key, version 1      int16 1 · string group · string topic · int32 partition
    value, version 4    int16 4 · int64 offset · int32 leader epoch · compact string metadata · int64 commit timestamp ·
                        tagged fields: none, or 0: topic id

Strings are UTF-8 after an int16 length, compact strings after a varint of their length plus one. Bytes of any other
layout are left to the schema-driven reader.
"""

from __future__ import annotations

import struct
from uuid import UUID

from sparklog.base.schemas import ZERO_ID

_KIND_AND_LENGTH = struct.Struct(">hh")
_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_VALUE_START = struct.Struct(">hqi")
_TIMESTAMP = struct.Struct(">q")
_KEY_VERSION, _VALUE_VERSION = 1, 4
_NO_TAGS = b"\0"
_TOPIC_ID_TAG = b"\x01\x00\x10"  # one field: number 0, of 16 bytes
_ONE_BYTE_VARINT = 0x80
Value = tuple[int, int, str, int, UUID]
"""Offset, leader epoch, metadata, commit timestamp, topic id."""


def write_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of a commit, in version 1 of OffsetCommitKey."""
    group, name = group_id.encode(), topic.encode()
    return b"".join(
        (
            _KIND_AND_LENGTH.pack(_KEY_VERSION, len(group)),
            group,
            _LENGTH.pack(len(name)),
            name,
            _PARTITION.pack(partition),
        )
    )


def read_key(data: bytes) -> tuple[str, str, int] | None:
    """Return group, topic and partition; None if the bytes are not a whole key of this version."""
    if len(data) < _KIND_AND_LENGTH.size:
        return None
    kind, size = _KIND_AND_LENGTH.unpack_from(data)
    group_end = _KIND_AND_LENGTH.size + size
    if kind != _KEY_VERSION or size < 0 or len(data) < group_end + _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack_from(data, group_end)
    topic_end = group_end + _LENGTH.size + size
    if size < 0 or len(data) < topic_end + _PARTITION.size:
        return None
    group = data[_KIND_AND_LENGTH.size : group_end].decode()
    topic = data[group_end + _LENGTH.size : topic_end].decode()
    return group, topic, _PARTITION.unpack_from(data, topic_end)[0]


def write_value(value: Value) -> bytes:
    """Return the value of a commit, in version 4 of OffsetCommitValue."""
    offset, leader_epoch, metadata, timestamp_ms, topic_id = value
    text = metadata.encode()
    return b"".join(
        (
            _VALUE_START.pack(_VALUE_VERSION, offset, leader_epoch),
            _varint(len(text) + 1),
            text,
            _TIMESTAMP.pack(timestamp_ms),
            _NO_TAGS if topic_id == ZERO_ID else _TOPIC_ID_TAG + topic_id.bytes,
        )
    )


def read_value(data: bytes) -> Value | None:
    """Return the value; None if it is incomplete, of another version, has long metadata or unknown tagged fields."""
    start = _VALUE_START.size
    if len(data) <= start or not 0 < data[start] < _ONE_BYTE_VARINT:
        return None
    version, offset, leader_epoch = _VALUE_START.unpack_from(data)
    text_end = start + data[start]  # the length byte is one too large, and the text starts one byte after it
    tags = data[text_end + _TIMESTAMP.size :]
    if tags == _NO_TAGS:
        topic_id = ZERO_ID
    elif len(tags) == len(_TOPIC_ID_TAG) + 16 and tags.startswith(_TOPIC_ID_TAG):
        topic_id = UUID(bytes=tags[len(_TOPIC_ID_TAG) :])
    else:
        return None
    if version != _VALUE_VERSION:
        return None
    (timestamp_ms,) = _TIMESTAMP.unpack_from(data, text_end)
    return offset, leader_epoch, data[start + 1 : text_end].decode(), timestamp_ms, topic_id


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= _ONE_BYTE_VARINT:
        out.append((number & 0x7F) | _ONE_BYTE_VARINT)
        number >>= 7
    out.append(number)
    return bytes(out)
