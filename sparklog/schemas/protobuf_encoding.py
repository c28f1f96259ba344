"""Compiles the program that writes an Arrow column of structs as Protobuf messages.

A column fits a field of a message if no value changes:

    bool → bool · int8, int16, int32 → all signed numbers · int64 → those of 64 bits · float → float, double
    double → double · string → string, enum · int32 → enum · binary → bytes · struct → message · list → repeated
    map → map · timestamp with zone → Timestamp · duration → Duration · the type in a wrapper → the wrapper
    int32 → uint32, fixed32 · int64 → uint64, fixed64      as they are read: large numbers are negative
    int64 → uint32, fixed32 · decimal(20, 0) → uint64, fixed64      as they are read with upcast.unsigned.ints

Fields are matched by name. A field that is null, or that the column lacks, is left out, unless it is required. A field
that the message lacks is refused. Zeros are written, so that reads tell them from null. Lists of numbers are packed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.base.errors import SchemaError
from sparklog.schemas import encode_kernels as kernels
from sparklog.schemas.columns import join_path
from sparklog.schemas.encoding import ColumnSource, Encoder, EncodingProgram
from sparklog.schemas.protobuf import FieldKind, ProtobufField, ProtobufMessage
from sparklog.schemas.protobuf_program import TIMES, WRAPPERS

_NO_SYMBOL = -(2**63)
_WIRE = {
    **dict.fromkeys((FieldKind.DOUBLE, FieldKind.FIXED64, FieldKind.SFIXED64), 1),
    **dict.fromkeys((FieldKind.STRING, FieldKind.BYTES, FieldKind.MESSAGE), 2),
    **dict.fromkeys((FieldKind.FLOAT, FieldKind.FIXED32, FieldKind.SFIXED32), 5),
}
"""The wire types of kinds; other kinds have 0."""
_SMALL = frozenset({pa.int8(), pa.int16(), pa.int32()})
_WHOLE = _SMALL | {pa.int64()}
_IN_64 = frozenset({FieldKind.INT64, FieldKind.SINT64, FieldKind.SFIXED64, FieldKind.UINT64, FieldKind.FIXED64})
_IN_32 = frozenset({FieldKind.INT32, FieldKind.SINT32, FieldKind.SFIXED32, FieldKind.UINT32, FieldKind.FIXED32})
_UNSIGNED = frozenset({FieldKind.UINT32, FieldKind.FIXED32, FieldKind.UINT64, FieldKind.FIXED64})
_VARINT_BYTES = {FieldKind.INT32: 8, FieldKind.INT64: 8, FieldKind.UINT32: 4, FieldKind.UINT64: 8}
"""Bytes of the number in a varint without zigzag."""


def protobuf_encoder(of: pa.DataType, message: ProtobufMessage, *, frame: bytes = b"") -> Encoder:
    """Return the encoder of columns of a type as a message.

    frame: bytes before each body
    Raises SchemaError, with the place and both types, if the column does not fit the message.
    """
    encoding = EncodingProgram()
    if frame:
        encoding.literal(frame)
    if not pa.types.is_struct(of):
        raise SchemaError(f"message {message.name} needs a struct of its fields, not {of}")
    _ProtobufCompiler(encoding).message(of, message, encoding.source(""))
    return Encoder(of, encoding)


@dataclass(frozen=True, slots=True)
class NumberCast:
    """Casts numbers to another width."""

    to: pa.DataType

    def __call__(self, array: pa.Array) -> pa.Array:
        return array.cast(self.to)


@dataclass(frozen=True, slots=True)
class SymbolNumbers:
    """Numbers of an enum's symbols, for their texts."""

    symbols: tuple[tuple[int, str], ...]

    def __call__(self, array: pa.Array) -> pa.Array:
        places = pc.index_in(array, value_set=pa.array([name for _, name in self.symbols], pa.string()))
        found = pa.array([number for number, _ in self.symbols], pa.int64()).take(places)
        return pc.if_else(array.is_valid(), pc.fill_null(found, _NO_SYMBOL), pa.scalar(None, pa.int64()))


class _ProtobufCompiler:
    def __init__(self, encoding: EncodingProgram) -> None:
        self._encoding = encoding

    def message(self, of: pa.DataType, message: ProtobufMessage, source: ColumnSource) -> None:
        """Compile the fields of a message that is not null."""
        fields = {each.name: each for each in message.fields}
        if unknown := next((each.name for each in of if each.name not in fields), None):
            raise SchemaError(f"{join_path(source.path, unknown)}: message {message.name} has no such field")
        numbers = {each.name: number for number, each in enumerate(of)}
        missing = next((each.name for each in message.fields if each.required and each.name not in numbers), None)
        if missing is not None:
            raise SchemaError(f"{join_path(source.path, missing)}: the column has no such field, which is required")
        parts = {
            name: self._encoding.source(join_path(source.path, name), source, number)
            for name, number in numbers.items()
        }
        for oneof in dict.fromkeys(each.oneof for each in message.fields if each.oneof is not None):
            self._encoding.emit(kernels.NO_MEMBER_YET)
            for name, part in parts.items():
                if fields[name].oneof == oneof:
                    self._encoding.emit(kernels.MEMBER, part)
        for name, part in parts.items():
            self._field(of[numbers[name]].type, fields[name], part)

    def _field(self, of: pa.DataType, field: ProtobufField, source: ColumnSource) -> None:
        encoding = self._encoding
        if field.required:
            encoding.emit(kernels.NOT_NULL, source)
        skip = encoding.skip_null(source)
        if not field.repeated:
            encoding.literal(_tag(field))
            self._value(of, field, source)
        elif field.message is not None and field.message.is_entry:
            self._map(of, field, field.message, source)
        elif not pa.types.is_list(of):
            raise _no_fit(of, field, source)
        elif field.message is None and _WIRE.get(field.kind) != 2:
            empty = encoding.emit(kernels.SKIP_EMPTY, source, 0)
            encoding.literal(_tag(field, packed=True))
            encoding.with_size(source, lambda: self._items(of, field, source, tagged=False))
            empty[kernels.A] = encoding.next
        else:
            self._items(of, field, source, tagged=True)
        skip[kernels.C] = encoding.next

    def _items(self, of: pa.DataType, field: ProtobufField, source: ColumnSource, *, tagged: bool) -> None:
        def item() -> None:
            part = self._encoding.source(f"{source.path}[]", source)
            self._encoding.emit(kernels.NOT_NULL, part)
            if tagged:
                self._encoding.literal(_tag(field))
            self._value(of.value_type, field, part)

        self._encoding.each(source, item, count=False)

    def _map(self, of: pa.DataType, field: ProtobufField, entry: ProtobufMessage, source: ColumnSource) -> None:
        if not pa.types.is_map(of):
            raise _no_fit(of, field, source)
        key, value = entry.fields
        encoding = self._encoding

        def write() -> None:
            keys = encoding.source(f"{source.path} key", source, 0)
            values = encoding.source(f"{source.path}[]", source, 1)
            encoding.emit(kernels.NOT_NULL, values)
            encoding.literal(_tag(field))

            def parts() -> None:
                encoding.literal(_tag(key))
                self._value(of.key_type, key, keys)
                encoding.literal(_tag(value))
                self._value(of.item_type, value, values)

            encoding.with_size(keys, parts)

        encoding.each(source, write, count=False)

    def _value(self, of: pa.DataType, field: ProtobufField, source: ColumnSource) -> None:
        """Compile a value that is not null, behind its tag."""
        message, encoding = field.message, self._encoding
        if message is None:
            self._leaf(of, field, source)
        elif message.name in TIMES:
            if of != TIMES[message.name]:
                raise _no_fit(of, field, source)
            encoding.emit(kernels.TIME, source, int(pa.types.is_duration(of)))
        elif pa.types.is_struct(of):
            encoding.with_size(source, lambda: self.message(of, message, source))
        elif message.name in WRAPPERS:
            wrapped = message.fields[0]

            def inner() -> None:
                encoding.literal(_tag(wrapped))
                self._value(of, wrapped, source)

            encoding.with_size(source, inner)
        else:
            raise _no_fit(of, field, source)

    def _leaf(self, of: pa.DataType, field: ProtobufField, source: ColumnSource) -> None:
        emit, kind = self._encoding.emit, field.kind
        if kind is FieldKind.BOOL and pa.types.is_boolean(of):
            emit(kernels.BOOLEAN, source)
        elif kind is FieldKind.STRING and pa.types.is_string(of):
            emit(kernels.TEXT, source, 1, 0, 1)
        elif kind is FieldKind.BYTES and pa.types.is_binary(of):
            emit(kernels.TEXT, source, 0, 0, 1)
        elif kind is FieldKind.ENUM and pa.types.is_string(of) and field.enum is not None:
            source.read_as(SymbolNumbers(field.enum.symbols))
            emit(kernels.ENUM, source)
        elif kind is FieldKind.ENUM and of in _SMALL:
            source.read_as(NumberCast(pa.int64()))
            emit(kernels.ENUM, source)
        elif (kind is FieldKind.FLOAT and of == pa.float32()) or (
            kind is FieldKind.DOUBLE and pa.types.is_floating(of)
        ):
            source.read_as(NumberCast(pa.float32() if kind is FieldKind.FLOAT else pa.float64()))
            emit(kernels.COPY, source, 4 if kind is FieldKind.FLOAT else 8)
        elif kind in _UNSIGNED and of == _wide(kind):
            size = 8 if kind in _IN_64 else 4
            emit(kernels.WITHIN, source, size, int(_WIRE.get(kind, 0) == 0))
        elif (kind in _IN_32 and of in _SMALL) or (kind in _IN_64 and of in _WHOLE):
            self._number(of, kind, source)
        else:
            raise _no_fit(of, field, source)

    def _number(self, of: pa.DataType, kind: FieldKind, source: ColumnSource) -> None:
        size = 8 if kind in _IN_64 else 4
        source.read_as(NumberCast(pa.int64() if size == 8 else pa.int32()))
        if kind in (FieldKind.SINT32, FieldKind.SINT64):
            self._encoding.emit(kernels.VARINT, source, size, 1)
        elif kind in _VARINT_BYTES:
            self._encoding.emit(kernels.UNSIGNED, source, size, _VARINT_BYTES[kind])
        else:
            self._encoding.emit(kernels.COPY, source, size)


def _wide(kind: FieldKind) -> pa.DataType:
    """Return the type that holds all numbers of an unsigned kind."""
    return pa.decimal128(20, 0) if kind in _IN_64 else pa.int64()


def _tag(of: ProtobufField, *, packed: bool = False) -> bytes:
    left = of.number << 3 | (2 if packed else _WIRE.get(of.kind, 0))
    made = bytearray()
    while left > 127:
        made.append(left & 127 | 128)
        left >>= 7
    return bytes([*made, left])


def _no_fit(of: pa.DataType, field: ProtobufField, source: ColumnSource) -> SchemaError:
    kind = field.message.name if field.message is not None and not field.message.is_entry else field.kind
    form = "map" if field.message is not None and field.message.is_entry else kind
    return SchemaError(
        f"{source.path}: {of} cannot be written as {'repeated ' if field.repeated and form != 'map' else ''}{form}"
    )
