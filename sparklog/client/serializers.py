"""Conversions to and from bytes for key_serializer, value_serializer, key_deserializer and value_deserializer.

    Producer(value_serializer=to_json)        Consumer(value_deserializer=from_json)

Any function can be used; it is not called for None.
"""

from __future__ import annotations

import json
import struct
from typing import Any

_LONG = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")
_encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def to_json(value: Any) -> bytes:
    """Return `value` as compact JSON in UTF-8."""
    return _encode_json(value).encode()


def from_json(data: bytes) -> Any:
    """Return the value of JSON text; raises ValueError if `data` is not JSON."""
    return json.loads(data)


def to_text(value: str) -> bytes:
    """Return `value` in UTF-8."""
    return value.encode()


def from_text(data: bytes) -> str:
    """Return UTF-8 data as text; raises UnicodeDecodeError if it is not UTF-8."""
    return data.decode()


def to_long(value: int) -> bytes:
    """Return eight bytes, big-endian (org.apache.kafka.common.serialization.LongSerializer)."""
    return _LONG.pack(value)


def from_long(data: bytes) -> int:
    """Return the integer of eight bytes, big-endian. Raises struct.error for another length."""
    value: int = _LONG.unpack(data)[0]
    return value


def to_double(value: float) -> bytes:
    """Return eight bytes, big-endian (org.apache.kafka.common.serialization.DoubleSerializer)."""
    return _DOUBLE.pack(value)


def from_double(data: bytes) -> float:
    """Return the number of eight bytes, big-endian. Raises struct.error for another length."""
    value: float = _DOUBLE.unpack(data)[0]
    return value
