"""Records of Kafka's internal topics: schemas of their layout, a reader and a writer.

A key begins with a 16-bit record type, a value with its 16-bit version. The rest follows the schema of that version,
encoded as in Kafka's protocol: big-endian numbers, and strings and arrays after their lengths. In flexible versions,
lengths are varints of the length plus one, and each structure ends with tagged fields, left out if they have their
default.

A structure is a dict keyed by the names of Kafka's schemas, in the order of the bytes. Bytes are `bytes` and ids are
`UUID`. A tagged field with its default value is missing, and one with an unknown number is skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sparklog.base.config_keys import MAX_INT
from sparklog.base.errors import InvalidRequest

ALWAYS = 1 << 15
_NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
}
ZERO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """A field of a structure, present from version `since` to `until`, both included."""

    name: str
    type: str | tuple[FieldSchema, ...]
    """A number type ("int8", "int16", "int32", "int64"), "string", "bytes" or "uuid"; a tuple is a structure."""
    is_array: bool = False
    since: int = 0
    until: int = ALWAYS
    tag: int | None = None
    default: Any = None
    """The default of a tagged field, which is left out."""


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """A versioned structure; the fields are in the order of the bytes and of the JSON."""

    fields: tuple[FieldSchema, ...]
    versions: int
    """The highest known version."""
    flexible_since: int = ALWAYS


def array_of(name: str, kind: str | tuple[FieldSchema, ...], **how: Any) -> FieldSchema:
    """Return the schema of a field that holds any number of values of one type."""
    return FieldSchema(name, kind, is_array=True, **how)


Kinds = dict[int, tuple[tuple[FieldSchema, ...], MessageSchema]]
"""The key's fields and the value's message, by record type (the number that a key begins with)."""

Fields = Mapping[str, Any]


def read_key(data: bytes, known: Kinds) -> tuple[int, dict[str, Any] | None]:
    """Return a key's record type, and its fields or None for an unknown type.

    Raises ValueError or struct.error if the key is cut off.
    """
    reader = _Reader(data)
    kind = reader.number("int16")
    return kind, reader.structure(known[kind][0], 0, flexible=False) if kind in known else None


def write_key(kind: int, fields: Fields, known: Kinds) -> bytes:
    """Return the bytes of a key of a known record type."""
    writer = _Writer()
    writer.number("int16", kind)
    writer.structure(known[kind][0], fields, 0, flexible=False)
    return bytes(writer.data)


def read_value(data: bytes, message: MessageSchema) -> tuple[int, dict[str, Any]]:
    """Return a value's version and fields. Raises ValueError or struct.error if it is cut off or of unknown version."""
    reader = _Reader(data)
    version = reader.number("int16")
    if not 0 <= version <= message.versions:
        raise ValueError(f"version {version} is not known")
    return version, reader.structure(message.fields, version, flexible=version >= message.flexible_since)


def write_value(version: int, fields: Fields, message: MessageSchema) -> bytes:
    """Return the bytes of a value of a known version."""
    writer = _Writer()
    writer.number("int16", version)
    writer.structure(message.fields, fields, version, flexible=version >= message.flexible_since)
    return bytes(writer.data)


class _Reader:
    """Reader of values in Kafka's protocol encoding. Raises ValueError or struct.error if they are cut off."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def structure(self, fields: tuple[FieldSchema, ...], version: int, *, flexible: bool) -> dict[str, Any]:
        there = [field for field in fields if field.since <= version <= field.until]
        values = {field.name: self._field(field, version, flexible) for field in there if field.tag is None}
        if flexible:
            tags = {field.tag: field for field in there if field.tag is not None}
            for _ in range(self._varint()):
                tag, size = self._varint(), self._varint()
                content = self._read_bytes(size)
                if field := tags.get(tag):
                    values[field.name] = _Reader(content).tagged(field, version)
        return {field.name: values[field.name] for field in there if self._is_shown(field, values)}

    @staticmethod
    def _is_shown(field: FieldSchema, values: dict[str, Any]) -> bool:
        return field.name in values and (field.tag is None or values[field.name] != field.default)

    def tagged(self, field: FieldSchema, version: int) -> Any:
        if isinstance(field.type, tuple) and not field.is_array and self._varint() == 0:
            return None
        return self._field(field, version, flexible=True)

    def _field(self, field: FieldSchema, version: int, flexible: bool) -> Any:
        if not field.is_array:
            return self._value(field.type, version, flexible)
        count = self._varint() - 1 if flexible else self.number("int32")
        if count > len(self._data) - self._at:
            raise ValueError(f"{count} elements in {len(self._data) - self._at} bytes")
        return None if count < 0 else [self._value(field.type, version, flexible) for _ in range(count)]

    def _value(self, kind: str | tuple[FieldSchema, ...], version: int, flexible: bool) -> Any:
        if isinstance(kind, tuple):
            return self.structure(kind, version, flexible=flexible)
        if kind in _NUMBERS:
            return self.number(kind)
        if kind == "uuid":
            return UUID(bytes=self._read_bytes(16))
        size = self._varint() - 1 if flexible else self.number("int16" if kind == "string" else "int32")
        if size < 0:
            return None
        data = self._read_bytes(size)
        return data.decode() if kind == "string" else data

    def number(self, kind: str) -> int:
        layout = _NUMBERS[kind]
        (value,) = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return int(value)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._read_bytes(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 28:
                raise ValueError("a varint of more than five bytes")

    def _read_bytes(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise ValueError(f"{size} bytes wanted, {len(self._data) - self._at} are left")
        self._at += size
        return self._data[self._at - size : self._at]


_MAX_LENGTHS = {"int16": (1 << 15) - 1, "int32": MAX_INT}


class _Writer:
    """Writer of values in Kafka's protocol encoding, the counterpart of `_Reader`."""

    def __init__(self) -> None:
        self.data = bytearray()

    def structure(self, fields: tuple[FieldSchema, ...], values: Fields, version: int, *, flexible: bool) -> None:
        there = [field for field in fields if field.since <= version <= field.until]
        for field in there:
            if field.tag is None:
                self._field(field, values[field.name], version, flexible)
        if flexible:
            tagged = [field for field in there if field.tag is not None and field.name in values]
            tagged = [field for field in tagged if values[field.name] != field.default]
            self._varint(len(tagged))
            for field in sorted(tagged, key=lambda field: field.tag or 0):
                self._tagged(field, values[field.name], version)

    def number(self, kind: str, value: int) -> None:
        self.data += _NUMBERS[kind].pack(value)

    def _tagged(self, field: FieldSchema, value: Any, version: int) -> None:
        content = _Writer()
        is_structure = isinstance(field.type, tuple) and not field.is_array
        if is_structure:
            content._varint(0 if value is None else 1)
        if not is_structure or value is not None:
            content._field(field, value, version, flexible=True)
        self._varint(field.tag or 0)
        self._varint(len(content.data))
        self.data += content.data

    def _field(self, field: FieldSchema, value: Any, version: int, flexible: bool) -> None:
        if not field.is_array:
            self._value(field.type, value, version, flexible)
            return
        items: Sequence[Any] | None = value
        self._length(-1 if items is None else len(items), "int32", flexible)
        for item in items or ():
            self._value(field.type, item, version, flexible)

    def _value(self, kind: str | tuple[FieldSchema, ...], value: Any, version: int, flexible: bool) -> None:
        if isinstance(kind, tuple):
            self.structure(kind, value, version, flexible=flexible)
        elif kind in _NUMBERS:
            self.number(kind, value)
        elif kind == "uuid":
            self.data += value.bytes
        else:
            data = value.encode() if kind == "string" and value is not None else value
            self._length(-1 if data is None else len(data), "int16" if kind == "string" else "int32", flexible)
            self.data += data or b""

    def _length(self, length: int, kind: str, flexible: bool) -> None:
        """Write a length; -1 means null."""
        if flexible:
            self._varint(length + 1)
        elif length > _MAX_LENGTHS[kind]:
            raise InvalidRequest(f"a text of {length} bytes: at most {_MAX_LENGTHS[kind]} can be stored")
        else:
            self.number(kind, length)

    def _varint(self, value: int) -> None:
        while value > 0x7F:
            self.data.append((value & 0x7F) | 0x80)
            value >>= 7
        self.data.append(value)
