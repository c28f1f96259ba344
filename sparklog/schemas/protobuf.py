"""Protobuf messages as typed values: what a reader knows of a schema, without Google's library.

`protobuf_descriptors` makes them of descriptors. They travel with plans, and name no message within itself: those are
refused, as Spark has no type for them.
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
    """Numbers with names. `symbols` has each number once, with the first of its names."""

    name: str
    symbols: tuple[tuple[int, str], ...]
    """In the order of the schema: the first is the default."""
    closed: bool
    """Other numbers count as unknown fields (proto2)."""


@dataclass(frozen=True, slots=True)
class ProtobufMessage:
    """Fields, in the order of the schema, but no messages without fields. `name` is the full name, as in enums."""

    name: str
    fields: tuple[ProtobufField, ...]
    is_entry: bool = False
    """It is the entry of a map: its fields are `key` and `value`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufField:
    """A field of a message."""

    name: str
    number: int
    kind: FieldKind
    repeated: bool = False
    presence: bool = True
    """A writer says whether it has the field: messages, `optional`, members of a oneof, proto2."""
    required: bool = False
    oneof: str | None = None
    """The oneof of which it is a member; None for `optional`, too."""
    default: bool | int | float | str | bytes | None = None
    """What the schema says of a field that is not there (proto2); an enum's symbol is its name."""
    message: ProtobufMessage | None = None
    enum: ProtobufEnum | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufReadOptions:
    """How fields become columns, with the names and defaults of the options of Spark's `from_protobuf`."""

    emit_default_values: bool = False
    """Fields without presence that are not there have the default of their type; else they are null."""
    enums_as_ints: bool = False
    upcast_unsigned_ints: bool = False
    """Unsigned numbers get a type that holds them all; else large ones are negative."""
    unwrap_primitive_wrapper_types: bool = False
    """`google.protobuf.Int64Value` and the like are the values that they wrap; else structs."""
