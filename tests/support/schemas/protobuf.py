"""Protobuf schemas and messages for tests, with Google's library as judge: what it writes, and what it reads."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_tools import protoc
from hypothesis import strategies as st

from sparklog.schemas.protobuf import ProtobufMessage, ProtobufReadOptions
from sparklog.schemas.protobuf_decoding import ProtobufDecoder
from sparklog.schemas.protobuf_descriptors import from_descriptor_set

File = descriptor_pb2.FileDescriptorProto
FieldProto = descriptor_pb2.FieldDescriptorProto
Of = FieldDescriptor

NUMBERS = {
    Of.TYPE_INT32: (-(2**31), 2**31 - 1),
    Of.TYPE_SINT32: (-(2**31), 2**31 - 1),
    Of.TYPE_SFIXED32: (-(2**31), 2**31 - 1),
    Of.TYPE_INT64: (-(2**63), 2**63 - 1),
    Of.TYPE_SINT64: (-(2**63), 2**63 - 1),
    Of.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
    Of.TYPE_UINT32: (0, 2**32 - 1),
    Of.TYPE_FIXED32: (0, 2**32 - 1),
    Of.TYPE_UINT64: (0, 2**64 - 1),
    Of.TYPE_FIXED64: (0, 2**64 - 1),
}
UNSIGNED = {Of.TYPE_UINT32: 32, Of.TYPE_FIXED32: 32, Of.TYPE_UINT64: 64, Of.TYPE_FIXED64: 64}
SCALARS = (*NUMBERS, Of.TYPE_FLOAT, Of.TYPE_DOUBLE, Of.TYPE_BOOL, Of.TYPE_STRING, Of.TYPE_BYTES, Of.TYPE_ENUM)
KEYS = (*NUMBERS, Of.TYPE_BOOL, Of.TYPE_STRING)
COLORS = {"RED": 0, "GREEN": 1, "BLUE": -7, "SKY": 1000}
SPARKS = ProtobufReadOptions()


@dataclass(frozen=True)
class Schema:
    """A file, and the class of its message `M`."""

    file: Any
    of: Any

    @property
    def content(self) -> bytes:
        """As `protoc --descriptor_set_out` writes it."""
        return descriptor_pb2.FileDescriptorSet(file=[self.file]).SerializeToString()

    def message(self, name: str | None = None) -> ProtobufMessage:
        return from_descriptor_set(self.content).message(name or "test.M")


def schema(file: Any) -> Schema:
    pool = DescriptorPool()
    for name in ("timestamp", "duration", "wrappers", "any", "empty"):
        module = __import__(f"google.protobuf.{name}_pb2", fromlist=["DESCRIPTOR"])
        pool.Add(File.FromString(module.DESCRIPTOR.serialized_pb))
    pool.Add(file)
    return Schema(file, message_factory.GetMessageClass(pool.FindMessageTypeByName("test.M")))


def without(of: Schema, names: set[str]) -> Schema:
    """The same message without some of its fields."""
    file = File()
    file.CopyFrom(of.file)
    for message in _all(file.message_type):
        if not message.options.map_entry:
            kept = [each for each in message.field if each.name not in names]
            del message.field[:]
            message.field.extend(kept)
            used = [decl for i, decl in enumerate(message.oneof_decl) if any(_is_in(each, i) for each in kept)]
            places = {decl.name: i for i, decl in enumerate(used)}
            for each in message.field:
                if each.HasField("oneof_index"):
                    each.oneof_index = places[message.oneof_decl[each.oneof_index].name]
            decls = [descriptor_pb2.OneofDescriptorProto(name=decl.name) for decl in used]
            del message.oneof_decl[:]
            message.oneof_decl.extend(decls)
    return schema(file)


def _all(messages: Any) -> Iterator[Any]:
    for each in messages:
        yield each
        yield from _all(each.nested_type)


def _is_in(field: Any, oneof: int) -> bool:
    return bool(field.HasField("oneof_index") and field.oneof_index == oneof)


def file_of(syntax: str = "proto3") -> Any:
    """A file with an enum and no messages."""
    file = File(name="test.proto", package="test", syntax=syntax)
    file.dependency.extend(f"google/protobuf/{each}.proto" for each in ("timestamp", "duration", "wrappers"))
    color = file.enum_type.add(name="Color")
    for name, number in COLORS.items():
        color.value.add(name=name, number=number)
    return file


def type_names(kind: int, message: str = "") -> dict[str, str]:
    """What else a field of the kind has."""
    if kind == Of.TYPE_ENUM:
        return {"type_name": ".test.Color"}
    return {"type_name": message} if kind == Of.TYPE_MESSAGE else {}


# Schemas.


@st.composite
def schemas(draw: st.DrawFn, syntax: str = "proto3") -> Schema:
    """A schema of all kinds of fields, with messages in messages."""
    file = file_of(syntax)
    file.message_type.append(draw(messages("M", ".test.M", 2, syntax)))
    return schema(file)


@st.composite
def messages(draw: st.DrawFn, name: str, full: str, depth: int, syntax: str) -> Any:  # noqa: PLR0912 - the forms
    made = descriptor_pb2.DescriptorProto(name=name)
    numbers = draw(st.lists(st.integers(1, 20) | st.integers(15_000, 16_500), min_size=1, max_size=6, unique=True))
    forms = ["single", "single", "optional", "repeated", "unpacked", "map", "oneof"]
    for position, number in enumerate(numbers):
        form = draw(st.sampled_from(forms))
        kinds = [*SCALARS, *([Of.TYPE_MESSAGE] * 4 if depth else [])]
        field = made.field.add(name=f"f{position}", number=number, label=FieldProto.LABEL_OPTIONAL)
        if form == "map":
            field.label, field.type = FieldProto.LABEL_REPEATED, Of.TYPE_MESSAGE
            field.type_name = f"{full}.F{position}Entry"
            entry = made.nested_type.add(name=f"F{position}Entry")
            entry.options.map_entry = True
            key = draw(st.sampled_from(KEYS))
            entry.field.add(name="key", number=1, type=key, label=FieldProto.LABEL_OPTIONAL)
            field, kind = (
                entry.field.add(name="value", number=2, label=FieldProto.LABEL_OPTIONAL),
                draw(st.sampled_from(kinds)),
            )
        else:
            kind = draw(st.sampled_from(kinds))
        field.type = kind
        if kind == Of.TYPE_MESSAGE:
            inner = f"N{position}"
            known = draw(st.sampled_from([None, None, "Timestamp", "Duration", "StringValue", "UInt64Value"]))
            if known is None:
                made.nested_type.append(draw(messages(inner, f"{full}.{inner}", depth - 1, syntax)))
            field.type_name = f".google.protobuf.{known}" if known else f"{full}.{inner}"
        elif kind == Of.TYPE_ENUM:
            field.type_name = ".test.Color"
        if form in ("repeated", "unpacked"):
            field.label = FieldProto.LABEL_REPEATED
            if kind not in (Of.TYPE_STRING, Of.TYPE_BYTES, Of.TYPE_MESSAGE):
                field.options.packed = form == "repeated"
        elif form == "oneof":
            if not made.oneof_decl:
                made.oneof_decl.add(name="choice")
            field.oneof_index = 0
        elif form == "optional" and syntax == "proto3":
            field.proto3_optional = True
    for field in made.field:  # the oneofs of `optional` stand behind the others
        if field.proto3_optional:
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field.name}")
    return made


# Values.


def values(kind: int) -> st.SearchStrategy[Any]:
    """Values of a kind that is no message."""
    if kind in NUMBERS:
        low, high = NUMBERS[kind]
        return st.integers(low, high) | st.integers(max(low, -2), 2)
    return {
        Of.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
        Of.TYPE_DOUBLE: st.floats(allow_nan=False),
        Of.TYPE_BOOL: st.booleans(),
        Of.TYPE_STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        Of.TYPE_BYTES: st.binary(max_size=4),
        Of.TYPE_ENUM: st.sampled_from(list(COLORS.values())),
    }[kind]


@st.composite
def filled(draw: st.DrawFn, of: Any) -> Any:
    """A message of the class, with some of its fields."""
    made = of()
    draw(filling(made))
    return made


@st.composite
def filling(draw: st.DrawFn, made: Any) -> None:  # noqa: PLR0912 - the forms
    """Set some fields of a message."""
    of = made.DESCRIPTOR
    if of.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        made.seconds = draw(st.integers(-62135596800, 253402300799))
        made.nanos = draw(st.integers(0, 999_999_999)) * (-1 if "Duration" in of.full_name and made.seconds < 0 else 1)
        return
    for field in of.fields:
        if not draw(st.integers(0, 3)):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _, value = field.message_type.fields
            entries = getattr(made, field.name)
            for key in draw(st.lists(values(field.message_type.fields[0].type), max_size=2)):
                if value.message_type is not None:
                    draw(filling(entries[key]))
                else:
                    entries[key] = draw(values(value.type))
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 3))):
                if field.message_type is not None:
                    draw(filling(getattr(made, field.name).add()))
                else:
                    getattr(made, field.name).append(draw(values(field.type)))
        elif field.message_type is not None:
            getattr(made, field.name).SetInParent()
            draw(filling(getattr(made, field.name)))
        else:
            setattr(made, field.name, draw(values(field.type)))


# What Google's library reads, as Arrow shows it.


def shown(message: Any, options: ProtobufReadOptions) -> dict[str, Any]:
    """Return a message as `to_pylist` shows what the decoder has read."""
    return {field.name: _field(message, field, options) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any, options: ProtobufReadOptions) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, of = field.message_type.fields
        return {_value(each, key, options): _value(value[each], of, options) for each in value}
    if field.is_repeated:
        return [_value(each, field, options) for each in value]
    if field.has_presence:
        there = message.HasField(field.name) or field.has_default_value
    else:
        there = bool(value) or options.emit_default_values or (isinstance(value, float) and str(value) == "-0.0")
    return _value(value, field, options) if there else None


def _value(value: Any, field: Any, options: ProtobufReadOptions) -> Any:
    if field.message_type is not None:
        return _message(value, options)
    if field.type == Of.TYPE_ENUM:
        names = {number: name for name, number in COLORS.items()}
        return value if options.enums_as_ints else names.get(value, f"UNKNOWN_ENUM_VALUE_Color_{value}")
    if field.type in UNSIGNED and not options.upcast_unsigned_ints:
        bits = UNSIGNED[field.type]
        return value - 2**bits if value >= 2 ** (bits - 1) else value
    return value


def _message(value: Any, options: ProtobufReadOptions) -> Any:
    name = value.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return value.seconds * 10**6 + value.nanos // 1000
    if name == "google.protobuf.Duration":
        return value.seconds * 10**6 + int(value.nanos / 1000)
    if options.unwrap_primitive_wrapper_types and name.endswith("Value"):
        return _value(value.value, value.DESCRIPTOR.fields[0], options)
    return shown(value, options)


# Our reader.


def decoded(
    bodies: Sequence[bytes | None],
    message: ProtobufMessage,
    options: ProtobufReadOptions = SPARKS,
    *,
    limit_bytes: int | None = None,
) -> tuple[list[Any], list[int]]:
    """Return what the decoder reads, with times in microseconds and maps as dicts, and the fault of each body."""
    decoder = ProtobufDecoder(message, options, **({} if limit_bytes is None else {"limit_bytes": limit_bytes}))
    sizes = np.array([len(body or b"") for body in bodies], np.int64)
    ends = np.cumsum(sizes)
    faults = np.zeros(len(bodies), np.uint8)
    data = np.frombuffer(b"".join(body or b"" for body in bodies), np.uint8)
    rows: list[Any] = []
    is_null = np.array([body is None for body in bodies], bool)
    for array, before in decoder.decode(data, ends - sizes, ends, is_null, faults):
        assert before == len(rows)
        assert array.type == decoder.type
        array.validate(full=True)
        with warnings.catch_warnings(action="ignore"):  # keys that come twice: the last counts, as in Google's library
            rows += array.cast(_with_numbers(array.type)).to_pylist(maps_as_pydicts="lossy")
    assert len(rows) == len(bodies)
    return rows, faults.tolist()


def _with_numbers(of: pa.DataType) -> pa.DataType:
    """The type with times as numbers: Python has none beyond the year 9999, which hostile bytes may have."""
    if pa.types.is_timestamp(of) or pa.types.is_duration(of):
        return pa.int64()
    if pa.types.is_map(of):
        return pa.map_(of.key_type, _with_numbers(of.item_type))
    if pa.types.is_list(of):
        return pa.list_(of.value_field.with_type(_with_numbers(of.value_type)))
    if pa.types.is_struct(of):
        return pa.struct([field.with_type(_with_numbers(field.type)) for field in of])
    return of


def varint(number: int) -> bytes:
    """A varint of 64 bits."""
    number %= 2**64
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def tagged(number: int, value: int | bytes | float) -> bytes:
    """A field: a varint, bytes behind their size, or a double."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3) + varint(value)


def compiled(text: str, folder: Path, name: str = "orders.proto") -> bytes:
    """Return the descriptor set that protoc makes of the text of a .proto file, with what it imports."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    target = folder / f"{name}.desc"
    google = resources.files("grpc_tools") / "_proto"
    arguments = [f"-I{folder}", f"-I{google}", "--include_imports", f"--descriptor_set_out={target}", name]
    assert protoc.main(["protoc", *arguments]) == 0
    return target.read_bytes()


def classes(content: bytes) -> dict[str, Any]:
    """Return Google's classes of the messages in a descriptor set, by their full names."""
    return dict(message_factory.GetMessages(descriptor_pb2.FileDescriptorSet.FromString(content).file))
