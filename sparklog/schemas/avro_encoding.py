"""Compiles the program that writes an Arrow column as Avro, by a given schema or by the one of the column's own type.

A column fits a type of a schema if no value changes:

    bool → boolean · int8, int16, int32 → int, long, double · int64 → long · float → float, double · double → double
    string → string, enum · binary → bytes, fixed · decimal → decimal of the same scale and as many digits or more
    date → date · timestamp with zone → timestamp-millis, -micros · without → local-timestamp-millis, -micros
    struct → record · list → array · map of strings → map · null → null

Timestamps in milliseconds lose their microseconds, as with Spark's `to_avro`. Fields are matched by name. A field of
the schema that the column lacks gets its default, or null; a field of the column that the schema lacks is refused.

For a union, null is written where the column is null, otherwise the first branch that the column fits. A struct of
member0, member1 …, which is how reads return a union, is written as the first member that is not null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.base.errors import SchemaError
from sparklog.schemas import encode_kernels as kernels
from sparklog.schemas.avro import (
    NO_DEFAULT,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroKind,
    AvroLogical,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    describe,
)
from sparklog.schemas.avro_defaults import encode_default
from sparklog.schemas.columns import join_path, merged, without_null
from sparklog.schemas.encoding import ColumnSource, Encoder, EncodingProgram

NULL = AvroPrimitive(AvroKind.NULL)
END_OF_BLOCKS = b"\0"
TOP_LEVEL = "topLevelRecord"
"""The name of the outermost record in schemas that Spark's `to_avro` derives."""

_OF_MOMENTS: dict[pa.DataType, dict[AvroLogical, int]] = {
    pa.timestamp("us", "UTC"): {AvroLogical.TIMESTAMP_MILLIS: 1000, AvroLogical.TIMESTAMP_MICROS: 1},
    pa.timestamp("us"): {AvroLogical.LOCAL_TIMESTAMP_MILLIS: 1000, AvroLogical.LOCAL_TIMESTAMP_MICROS: 1},
    pa.date32(): {AvroLogical.DATE: 1},
}
_MOMENTS = frozenset(each for logicals in _OF_MOMENTS.values() for each in logicals)
_OF_NUMBERS: dict[pa.DataType, frozenset[AvroKind]] = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32()), frozenset({AvroKind.INT, AvroKind.LONG, AvroKind.DOUBLE})),
    pa.int64(): frozenset({AvroKind.LONG}),
    pa.float32(): frozenset({AvroKind.FLOAT, AvroKind.DOUBLE}),
    pa.float64(): frozenset({AvroKind.DOUBLE}),
}


def avro_encoder(of: pa.DataType, schema: AvroType, *, frame: bytes = b"", bare_bytes: bool = False) -> Encoder:
    """Return the encoder of columns of a type as bodies of the schema.

    frame: bytes before each body
    bare_bytes: bodies of the schema `bytes` have no length before them

    Raises SchemaError, with the place and both types, if the column does not fit the schema.
    """
    encoding = EncodingProgram()
    if frame:
        encoding.literal(frame)
    compiler = _AvroCompiler(
        encoding, bare=bare_bytes and isinstance(schema, AvroPrimitive) and schema.kind is AvroKind.BYTES
    )
    try:
        compiler.value(of, schema, encoding.source(""), "")
    except ColumnMismatch as error:
        raise SchemaError(f"the column does not fit the schema: {error}") from None
    return Encoder(of, encoding)


class ColumnMismatch(Exception):
    """Values of the column cannot be written as the schema demands."""


class _AvroCompiler:
    def __init__(self, encoding: EncodingProgram, *, bare: bool) -> None:
        self._encoding = encoding
        self._bare = bare

    def value(self, of: pa.DataType, schema: AvroType, source: ColumnSource, path: str) -> None:
        if isinstance(schema, AvroUnion):
            self._union(of, schema, source, path)
        elif schema == NULL and pa.types.is_null(of):
            pass
        elif pa.types.is_null(of):
            raise _no_fit(of, schema, path)
        else:
            self._encoding.emit(kernels.NOT_NULL, source)
            self._present(of, schema, source, path)

    def _union(self, of: pa.DataType, schema: AvroUnion, source: ColumnSource, path: str) -> None:
        members, has_null = without_null(schema)
        if pa.types.is_null(of):
            if not has_null:
                raise _no_fit(of, schema, path)
            self._encoding.literal(_branch(schema, NULL))
            return
        skip = self._encoding.skip_null(source, _branch(schema, NULL)) if has_null else None
        if skip is None:
            self._encoding.emit(kernels.NOT_NULL, source)
        if merged(members) is None and _is_of_members(of, members):
            self._members(of, schema, members, source, path)
        else:
            self._fitting(of, schema, members, source, path)
        if skip is not None:
            skip[kernels.C] = self._encoding.next

    def _fitting(
        self, of: pa.DataType, schema: AvroUnion, members: tuple[AvroType, ...], source: ColumnSource, path: str
    ) -> None:
        """Compile the first member that the column fits."""
        failures: list[ColumnMismatch] = []
        for member in members:
            undo = self._encoding.mark(source)
            self._encoding.literal(_branch(schema, member))
            try:
                self._present(of, member, source, path)
            except ColumnMismatch as error:
                undo()
                failures.append(error)
            else:
                return
        raise failures[0] if len(failures) == 1 else _no_fit(of, schema, path)

    def _members(
        self, of: pa.DataType, schema: AvroUnion, members: tuple[AvroType, ...], source: ColumnSource, path: str
    ) -> None:
        """Compile a struct of a union's members: the first that is not null."""
        encoding = self._encoding
        jumps = []
        for number, member in enumerate(members):
            part = encoding.source(join_path(path, f"member{number}"), source, number)
            skip = encoding.skip_null(part)
            encoding.literal(_branch(schema, member))
            self._present(of[number].type, member, part, part.path)
            jumps.append(encoding.emit(kernels.JUMP))
            skip[kernels.C] = encoding.next
        encoding.emit(kernels.FAIL, source, kernels.NO_MEMBER)
        for jump in jumps:
            jump[kernels.A] = encoding.next

    def _present(self, of: pa.DataType, schema: AvroType, source: ColumnSource, path: str) -> None:
        """Compile a value that is not null."""
        match schema:
            case AvroRecord() if pa.types.is_struct(of):
                self._record(of, schema, source, path)
            case AvroArray(items) if pa.types.is_list(of):
                self._list(source, lambda: self._part(of.value_type, items, source, 0, f"{path}[]"))
            case AvroMap(values) if pa.types.is_map(of) and pa.types.is_string(of.key_type):
                self._list(source, lambda: self._entry(of, values, source, path))
            case AvroEnum(_, symbols) if pa.types.is_string(of):
                source.read_as(SymbolIndexes(symbols))
                self._encoding.emit(kernels.SYMBOL, source)
            case AvroFixed(decimal=decimal) | AvroPrimitive(decimal=decimal) if decimal is not None:
                self._decimal(of, schema, source, path)
            case AvroFixed(_, size) if pa.types.is_binary(of):
                self._encoding.emit(kernels.FIXED, source, size)
            case AvroPrimitive():
                self._simple(of, schema, source, path)
            case _:
                raise _no_fit(of, schema, path)

    def _record(self, of: pa.DataType, schema: AvroRecord, source: ColumnSource, path: str) -> None:
        numbers = {field.name: number for number, field in enumerate(of)}
        names = {field.name for field in schema.fields}
        if unknown := next((name for name in numbers if name not in names), None):
            raise ColumnMismatch(f"{join_path(path, unknown)}: {describe(schema)} has no such field")
        for field in schema.fields:
            inner = join_path(path, field.name)
            if field.name in numbers:
                number = numbers[field.name]
                self._part(of[number].type, field.type, source, number, inner)
            else:
                self._encoding.literal(_missing(field, inner))

    def _part(self, of: pa.DataType, schema: AvroType, within: ColumnSource, number: int, path: str) -> None:
        self.value(of, schema, self._encoding.source(path, within, number), path)

    def _list(self, source: ColumnSource, body: Any) -> None:
        self._encoding.each(source, body, count=True)
        self._encoding.literal(END_OF_BLOCKS)

    def _entry(self, of: pa.DataType, values: AvroType, source: ColumnSource, path: str) -> None:
        self._encoding.emit(kernels.TEXT, self._encoding.source(f"{path} key", source, 0), 1)
        self._part(of.item_type, values, source, 1, f"{path}[]")

    def _decimal(self, of: pa.DataType, schema: AvroFixed | AvroPrimitive, source: ColumnSource, path: str) -> None:
        wanted = schema.decimal
        if wanted is None or not pa.types.is_decimal(of) or of.scale != wanted.scale or of.precision > wanted.precision:
            raise _no_fit(of, schema, path)
        size = schema.size if isinstance(schema, AvroFixed) else kernels.ALL if self._bare else kernels.BY_LENGTH
        self._encoding.emit(kernels.DECIMAL, source, size)

    def _simple(self, of: pa.DataType, schema: AvroPrimitive, source: ColumnSource, path: str) -> None:
        emit, kind = self._encoding.emit, schema.kind
        match of:
            case _ if of in _OF_MOMENTS and schema.logical in _OF_MOMENTS[of]:
                emit(kernels.VARINT, source, of.bit_width // 8, _OF_MOMENTS[of][schema.logical])
            case _ if of in _OF_NUMBERS and kind in _OF_NUMBERS[of] and schema.logical not in _MOMENTS:
                self._number(of, kind, source)
            case _ if pa.types.is_boolean(of) and kind is AvroKind.BOOLEAN:
                emit(kernels.BOOLEAN, source)
            case _ if pa.types.is_string(of) and kind is AvroKind.STRING:
                emit(kernels.TEXT, source, 1)
            case _ if pa.types.is_binary(of) and kind is AvroKind.BYTES:
                emit(kernels.TEXT, source, 0, int(self._bare))
            case _:
                raise _no_fit(of, schema, path)

    def _number(self, of: pa.DataType, kind: AvroKind, source: ColumnSource) -> None:
        if kind in (AvroKind.INT, AvroKind.LONG):
            self._encoding.emit(kernels.VARINT, source, of.bit_width // 8, 1)
        elif kind is AvroKind.DOUBLE and of != pa.float64():
            if of != pa.float32():
                source.read_as(_as_int32)
            self._encoding.emit(kernels.AS_DOUBLE, source, int(of == pa.float32()))
        else:
            self._encoding.emit(kernels.COPY, source, of.bit_width // 8)


@dataclass(frozen=True, slots=True)
class SymbolIndexes:
    """Numbers of an enum's symbols, for their texts; -1 for another text."""

    symbols: tuple[str, ...]

    def __call__(self, array: pa.Array) -> pa.Array:
        numbers = pc.index_in(array, value_set=pa.array(self.symbols, pa.string()))
        return pc.if_else(array.is_valid(), pc.fill_null(numbers, -1), pa.scalar(None, pa.int32()))


def _as_int32(array: pa.Array) -> pa.Array:
    return array.cast(pa.int32())


def _is_of_members(of: pa.DataType, members: tuple[AvroType, ...]) -> bool:
    return pa.types.is_struct(of) and [each.name for each in of] == [f"member{i}" for i in range(len(members))]


def _branch(schema: AvroUnion, branch: AvroType) -> bytes:
    """Return the bytes before a value of a branch: its number."""
    return encode_default(AvroPrimitive(AvroKind.INT), schema.branches.index(branch), "")


def _missing(field: AvroField, path: str) -> bytes:
    """Return the bytes of a field that the column lacks: its default, or null."""
    if field.default is not NO_DEFAULT:
        return encode_default(field.type, field.default, path)
    if field.type == NULL or (isinstance(field.type, AvroUnion) and NULL in field.type.branches):
        return encode_default(field.type, None, path)
    raise ColumnMismatch(f"{path}: the column has no such field, and the schema no default for it")


def _no_fit(of: pa.DataType, schema: AvroType, path: str) -> ColumnMismatch:
    return ColumnMismatch(f"{path or 'the value'}: {of} cannot be written as {describe(schema)}")


def derived_schema(of: pa.DataType, nullable: bool = False, name: str = TOP_LEVEL, namespace: str = "") -> Any:
    """Return the schema of a column as JSON values, with the names that Spark's `to_avro` gives.

    nullable: whether the column is. A whole key or value is not, because null is a tombstone
    name: of a record. Records within it have the names of their fields

    Raises SchemaError for types that Avro does not have.
    """
    found = _derived(of, name, namespace)
    return [found, "null"] if nullable and found != "null" else found


def _derived(of: pa.DataType, name: str, namespace: str) -> Any:
    if pa.types.is_struct(of):
        inner = f"{namespace}.{name}" if namespace else name
        fields = [
            {"name": each.name, "type": derived_schema(each.type, each.nullable, each.name, inner)} for each in of
        ]
        return {"type": "record", "name": name, **({"namespace": namespace} if namespace else {}), "fields": fields}
    if pa.types.is_list(of):
        items = of.value_field
        return {"type": "array", "items": derived_schema(items.type, items.nullable, name, namespace)}
    if pa.types.is_map(of) and pa.types.is_string(of.key_type):
        values = of.item_field
        return {"type": "map", "values": derived_schema(values.type, values.nullable, name, namespace)}
    if pa.types.is_decimal(of):
        full = f"{namespace}.{name}.fixed" if namespace else f"{name}.fixed"
        logical = {"logicalType": "decimal", "precision": of.precision, "scale": of.scale}
        return {"type": "fixed", "name": full, "size": _bytes_of_digits(of.precision), **logical}
    if of not in _DERIVED:
        raise SchemaError(f"{namespace and namespace + '.'}{name}: Avro has no {of}; cast it to another type")
    return _DERIVED[of]


def _bytes_of_digits(precision: int) -> int:
    """Return the smallest number of bytes that holds all numbers of `precision` digits."""
    return int(10**precision - 1).bit_length() // 8 + 1


_DERIVED: dict[pa.DataType, Any] = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}
