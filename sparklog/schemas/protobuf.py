"""Protobuf schemas as typed values, without Google's library. Plans bring them to tasks.

`protobuf_descriptors` makes them from descriptors. It refuses a message that contains itself: Spark has no type for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MOST_DEPTH = 64
"""Levels of messages within messages."""


class FieldKind(StrEnum):
    """The types of fields, as .proto files name them."""

    DOUBLE = "double"
    FLOAT = "float"
    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    SINT32 = "sint32"
    SINT64 = "sint64"
    FIXED32 = "fixed32"
    FIXED64 = "fixed64"
    SFIXED32 = "sfixed32"
    SFIXED64 = "sfixed64"
    BOOL = "bool"
    STRING = "string"
    BYTES = "bytes"
    ENUM = "enum"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class ProtobufEnum:
    """An enum. `symbols` has each number once, with the first of its names."""

    name: str
    symbols: tuple[tuple[int, str], ...]
    """In the order of the schema: the first is the default."""
    closed: bool
    """Whether other numbers count as unknown fields (proto2)."""


@dataclass(frozen=True, slots=True)
class ProtobufMessage:
    """A message. Its fields are in the order of the schema, without messages that have no fields.

    `name` is the full name, as in enums.
    """

    name: str
    fields: tuple[ProtobufField, ...]
    is_entry: bool = False
    """Whether it is the entry of a map, with the fields `key` and `value`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufField:
    """A field of a message."""

    name: str
    number: int
    kind: FieldKind
    repeated: bool = False
    presence: bool = True
    """Whether readers can tell an absent field from its default: messages, `optional`, members of a oneof, proto2."""
    required: bool = False
    oneof: str | None = None
    """The oneof of which it is a member; None for `optional` too."""
    default: bool | int | float | str | bytes | None = None
    """The schema's default of an absent field (proto2); of an enum, the name of a symbol."""
    message: ProtobufMessage | None = None
    enum: ProtobufEnum | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufReadOptions:
    """How fields become columns, with the names and defaults of the options of Spark's `from_protobuf`."""

    emit_default_values: bool = False
    """Whether absent fields without presence have the default of their type; otherwise they are null."""
    enums_as_ints: bool = False
    upcast_unsigned_ints: bool = False
    """Whether unsigned numbers get a type that holds all of them; otherwise large numbers are negative."""
    unwrap_primitive_wrapper_types: bool = False
    """Whether `google.protobuf.Int64Value` and the like become the values that they wrap; otherwise structs."""
