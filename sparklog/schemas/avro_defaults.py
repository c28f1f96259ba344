"""Encodes the default values of a schema's fields, from JSON to Avro's bytes.

As the specification says, bytes and fixed are texts of the characters U+0000 to U+00FF, and the default of a union is
of the first branch that it fits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from sparklog.base.errors import SchemaError
from sparklog.schemas.avro import (
    NO_DEFAULT,
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroKind,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    describe,
)


def encode_default(of: AvroType, value: Any, path: str) -> bytes:
    """Return the Avro body of a default value. Raises SchemaError, with the field's path, if it is not of its type."""
    try:
        return _encode(of, value)
    except (ValueError, TypeError, OverflowError, struct.error):
        raise SchemaError(f"{path}: the default {value!r} is no {describe(of)}") from None


def _encode(of: AvroType, value: Any) -> bytes:  # noqa: PLR0911 - a case for each type
    match of:
        case AvroPrimitive(kind):
            return _SIMPLE[kind](value)
        case AvroUnion(branches):
            return _in_union(branches, value)
        case AvroFixed(_, size):
            return _check_size(value.encode("latin-1") if isinstance(value, str) else b"", size)
        case AvroEnum(_, symbols):
            return _long(symbols.index(value))
        case AvroArray(items):
            return _block(_check_type(value, list), lambda each: _encode(items, each))
        case AvroMap(values):
            return _block(_check_type(value, dict).items(), lambda each: _text(each[0]) + _encode(values, each[1]))
        case AvroRecord(_, fields):
            given = _check_type(value, dict)
            parts = [(field.type, given.get(field.name, field.default)) for field in fields]
            if any(part is NO_DEFAULT for _, part in parts):
                raise ValueError(value)
            return b"".join(_encode(each, part) for each, part in parts)


def _in_union(branches: tuple[AvroType, ...], value: Any) -> bytes:
    for position, branch in enumerate(branches):
        try:
            return _long(position) + _encode(branch, value)
        except (ValueError, TypeError, OverflowError, struct.error):
            continue
    raise ValueError(value)


def _block(parts: Any, encode: Callable[[Any], bytes]) -> bytes:
    return (_long(len(parts)) + b"".join(map(encode, parts)) if parts else b"") + b"\0"


def _check_type(value: Any, expected: Any) -> Any:
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise TypeError(value)
    return value


def _check_size(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise ValueError(value)
    return value


def _long(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    body = bytearray()
    while number > 127:
        body.append(number & 127 | 128)
        number >>= 7
    body.append(number)
    return bytes(body)


def _number(bits: int) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        if not -(2 ** (bits - 1)) <= _check_type(value, int) < 2 ** (bits - 1):
            raise OverflowError(value)
        return _long(value)

    return encode


def _text(value: str) -> bytes:
    body = _check_type(value, str).encode()
    return _long(len(body)) + bytes(body)


def _bytes(value: str) -> bytes:
    body = _check_type(value, str).encode("latin-1")
    return _long(len(body)) + bytes(body)


def _null(value: None) -> bytes:
    _check_type(value, type(None))
    return b""


_SIMPLE: dict[AvroKind, Callable[[Any], bytes]] = {
    AvroKind.NULL: _null,
    AvroKind.BOOLEAN: lambda value: bytes([_check_type(value, bool)]),
    AvroKind.INT: _number(32),
    AvroKind.LONG: _number(64),
    AvroKind.FLOAT: lambda value: struct.pack("<f", _check_type(value, (int, float))),
    AvroKind.DOUBLE: lambda value: struct.pack("<d", _check_type(value, (int, float))),
    AvroKind.BYTES: _bytes,
    AvroKind.STRING: _text,
}
