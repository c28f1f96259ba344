"""Compiles the program that reads values of a writer's schema as a reader's schema, by Avro's rules of resolution.

A field that the writer lacks gets the reader's default. A field that the reader lacks is skipped. Numbers are promoted
(int → long → float → double); string and bytes are interchangeable. Records, enums and fixed must have the same name,
without its namespace, or an alias. In a reader's union, a branch of the writer's own type comes before a branch to
which the value can be promoted.

Logical types count too, where the specification leaves it open: a timestamp is converted from the writer's unit,
decimals must have the same scale, and a date is no time. A number without a logical type takes the reader's.

A default value is kept as Avro bytes among the constants, and the same operations read it as any value.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from sparklog.base.errors import SchemaError
from sparklog.records.kernels import MAX_LONG
from sparklog.schemas import avro_kernels as kernels
from sparklog.schemas.avro import (
    NO_DEFAULT,
    AvroArray,
    AvroDecimal,
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
from sparklog.schemas.column_kernels import NO_MATCH
from sparklog.schemas.columns import Column, ColumnLayout, Storage, join_path, merged, without_null

MOST_OPERATIONS = 200_000
NULL = AvroPrimitive(AvroKind.NULL)

_PROMOTED: dict[AvroKind, frozenset[AvroKind]] = {
    AvroKind.INT: frozenset({AvroKind.LONG, AvroKind.FLOAT, AvroKind.DOUBLE}),
    AvroKind.LONG: frozenset({AvroKind.FLOAT, AvroKind.DOUBLE}),
    AvroKind.FLOAT: frozenset({AvroKind.DOUBLE}),
    AvroKind.STRING: frozenset({AvroKind.BYTES}),
    AvroKind.BYTES: frozenset({AvroKind.STRING}),
}
_MILLIS = frozenset({AvroLogical.TIME_MILLIS, AvroLogical.TIMESTAMP_MILLIS, AvroLogical.LOCAL_TIMESTAMP_MILLIS})
_TIMESTAMPS = frozenset(each for each in AvroLogical if "timestamp" in each)
_TIMES = frozenset({AvroLogical.TIME_MILLIS, AvroLogical.TIME_MICROS})


class SchemaMismatch(Exception):
    """Values of the writer's type cannot be read as the reader's."""


class ResolutionProgram:
    """The operations of all schemas that a decoder knows; each reads its rows into the same columns.

    The operations of a null row come first.
    """

    def __init__(self, reader: AvroType, layout: ColumnLayout) -> None:
        self.operations: list[list[int]] = []
        self.table: list[int] = []
        self.constants = bytearray()
        self.levels = 1
        """The deepest nesting of lists."""
        self._reader = reader
        self._layout = layout
        self._level = 0
        self._bare = False
        """Whether bodies of the schema `bytes`, which is being compiled, have no length before them."""
        self._nulls(layout.root)
        self._emit(kernels.END)

    def add(self, writer: AvroType, *, bare_bytes: bool = False) -> int:
        """Compile a writer's schema; return where its operations begin.

        bare_bytes: bodies of the schema `bytes` have no length before them

        Raises SchemaError, and changes nothing, if it cannot be read as the reader's schema.
        """
        start = len(self.operations)
        undo = self._mark()
        self._bare = bare_bytes and isinstance(writer, AvroPrimitive) and writer.kind is AvroKind.BYTES
        try:
            self._value(writer, self._reader, self._layout.root, "")
        except SchemaMismatch as error:
            undo()
            raise SchemaError(f"the writer's schema cannot be read as the reader's: {error}") from None
        except SchemaError:
            undo()
            raise
        self._emit(kernels.END)
        return start

    def _mark(self) -> Callable[[], None]:
        """Return a function that undoes all that is compiled from now on."""
        lengths, level = (len(self.operations), len(self.table), len(self.constants)), self._level

        def undo() -> None:
            del self.operations[lengths[0] :]
            del self.table[lengths[1] :]
            del self.constants[lengths[2] :]
            self._level = level

        return undo

    def _emit(self, op: int, column: Column | None = None, *operands: int) -> list[int]:
        if len(self.operations) >= MOST_OPERATIONS:
            raise SchemaError(f"the schemas need more than {MOST_OPERATIONS} operations: they are too large")
        where = (column.number, column.domain) if column else (-1, 0)
        operation = [op, *where, *operands]
        operation += [0] * (kernels.WIDTH - len(operation))
        self.operations.append(operation)
        return operation

    @property
    def _next(self) -> int:
        return len(self.operations)

    def _value(self, writer: AvroType, reader: AvroType, column: Column, path: str) -> None:
        if isinstance(writer, AvroUnion):
            self._branches(writer, reader, column, path)
            return
        branch = _choose(writer, reader, path)
        if branch == NULL:
            self._nulls(column)
            return
        if column.nullable:
            self._emit(kernels.SET_VALID, column)
        self._present(writer, reader, branch, column, path)

    def _present(self, writer: AvroType, reader: AvroType, branch: AvroType, column: Column, path: str) -> None:
        """Compile a value that is not null, whose validity bit is set; `branch` of the reader holds it."""
        if isinstance(reader, AvroUnion) and merged(members := without_null(reader)[0]) is None:
            for member, child in zip(members, column.children, strict=True):
                if member is branch:
                    self._value(writer, member, child, path)
                else:
                    self._nulls(child)
            return
        match writer, branch:
            case AvroRecord(), AvroRecord() if _same_name(writer, branch):
                self._record(writer, branch, column, path)
            case AvroArray(items), AvroArray(items_into):
                self._items(column, lambda: self._value(items, items_into, column.children[0], f"{path}[]"))
            case AvroMap(values), AvroMap(values_into):
                self._items(column, lambda: self._entry(values, values_into, column, path))
            case AvroEnum(), AvroEnum() if _same_name(writer, branch):
                self._enum(writer, branch, column)
            case AvroFixed(size=size), AvroFixed(size=expected) if size == expected and _same_name(writer, branch):
                self._bytes(writer, branch, column, path)
            case AvroPrimitive(kind), AvroPrimitive(into) if kind is into or into in _PROMOTED.get(kind, ()):
                self._simple(writer, branch, column, path)
            case _:
                raise _no_match(writer, branch, path)

    def _branches(self, writer: AvroUnion, reader: AvroType, column: Column, path: str) -> None:
        members, has_null = without_null(writer)
        if has_null and len(members) == 1 and len(writer.branches) == 2 and _takes_null(reader):
            branch = _choose(members[0], reader, path)
            optional = self._emit(kernels.OPTIONAL, column, writer.branches.index(NULL))
            self._present(members[0], reader, branch, column, path)
            if not _has_offsets(column):
                optional[kernels.B] = self._next
                return
            jump = self._emit(kernels.JUMP)
            optional[kernels.B] = self._next
            self._nulls(column)
            jump[kernels.A] = self._next
            return
        failures: list[SchemaMismatch] = []

        def read(branch: AvroType) -> None:
            undo = self._mark()
            try:
                self._value(branch, reader, column, path)
            except SchemaMismatch as error:
                undo()
                failures.append(error)
                self._emit(kernels.FAIL, None, NO_MATCH)

        self._union(writer, read)
        if len(failures) == len(writer.branches):
            raise failures[0]

    def _union(self, writer: AvroUnion, each: Callable[[AvroType], None]) -> None:
        """Compile a union; `each` compiles one branch."""
        start = len(self.table)
        self.table += [0] * len(writer.branches)
        self._emit(kernels.UNION, None, start, len(writer.branches))
        jumps = []
        for i, branch in enumerate(writer.branches):
            self.table[start + i] = self._next
            each(branch)
            jumps.append(self._emit(kernels.JUMP))
        for jump in jumps:
            jump[kernels.A] = self._next

    def _nulls(self, column: Column) -> None:
        """Compile a null: no validity bit, and offsets of an empty value."""
        if column.storage in (Storage.BYTES, Storage.ITEMS):
            self._emit(kernels.SET_NULL, column, column.items)
        elif column.storage is Storage.NOTHING:
            for child in column.children:
                self._nulls(child)

    def _record(self, writer: AvroRecord, reader: AvroRecord, column: Column, path: str) -> None:
        sources = _sources(writer, reader)
        children = {field.name: child for field, child in zip(reader.fields, column.children, strict=True)}
        for each in writer.fields:
            if (field := sources.pop(each.name, None)) is None:
                self._skip(each.type)
            else:
                self._value(each.type, field.type, children.pop(field.name), join_path(path, field.name))
        for field in reader.fields:
            if field.name in children:
                self._default(field, children[field.name], join_path(path, field.name))

    def _default(self, field: AvroField, column: Column, path: str) -> None:
        if field.default is NO_DEFAULT:
            raise SchemaMismatch(f"{path} is not in the writer's schema, and has no default")
        if field.default is None and _takes_null(field.type):
            self._nulls(column)
            return
        start = len(self.constants)
        self.constants += encode_default(field.type, field.default, path)
        self._emit(kernels.ENTER, None, start, len(self.constants))
        self._value(field.type, field.type, column, path)
        self._emit(kernels.LEAVE)

    def _items(self, column: Column | None, body: Callable[[], None]) -> None:
        """Compile the loop over a list or map whose items `body` compiles; no column: they are skipped."""
        domain = column.items if column else 0
        level, start = self._level, self._next
        self._level += 1
        self.levels = max(self.levels, self._level)
        loop = self._emit(kernels.ITEMS, column, domain, level, 0, column.bytes_of_item if column else 0)
        body()
        self._emit(kernels.NEXT, column, domain, level, start)
        loop[kernels.C] = self._next
        self._level = level

    def _entry(self, values: AvroType, into: AvroType, column: Column, path: str) -> None:
        key, value = column.children
        self._emit(kernels.BYTES, key, 1)
        self._value(values, into, value, f"{path}[]")

    def _enum(self, writer: AvroEnum, reader: AvroEnum, column: Column) -> None:
        start = len(self.table)
        for symbol in writer.symbols:
            known = symbol if symbol in reader.symbols else reader.default
            text = (known or "").encode()
            self.table += [-1 if known is None else len(self.constants), len(text)]
            self.constants += text
        self._emit(kernels.ENUM, column, start, len(writer.symbols))

    def _simple(self, writer: AvroPrimitive, reader: AvroPrimitive, column: Column, path: str) -> None:
        _check_meaning(writer.logical, reader.logical, path)
        match writer.kind:
            case AvroKind.BOOLEAN:
                self._emit(kernels.BOOLEAN, column)
            case AvroKind.INT | AvroKind.LONG:
                bits, factor = (
                    32 if writer.kind is AvroKind.INT else 64,
                    _factor(writer.logical, reader.logical, column),
                )
                self._emit(kernels.VARINT, column, bits, _stored(column), factor, MAX_LONG // factor)
            case AvroKind.FLOAT:
                self._emit(kernels.FLOAT, column, 0, _stored(column))
            case AvroKind.DOUBLE:
                self._emit(kernels.DOUBLE, column)
            case AvroKind.BYTES | AvroKind.STRING:
                self._bytes(writer, reader, column, path)

    def _bytes(
        self, writer: AvroPrimitive | AvroFixed, reader: AvroPrimitive | AvroFixed, column: Column, path: str
    ) -> None:
        size = writer.size if isinstance(writer, AvroFixed) else kernels.ALL_LEFT if self._bare else kernels.BY_LENGTH
        if reader.decimal is not None:
            if writer.decimal is not None and writer.decimal.scale != reader.decimal.scale:
                raise _no_match(writer, reader, path)
            self._emit(kernels.DECIMAL, column, size, len(self.table))
            self.table += _limit(reader.decimal)
        elif size >= 0:
            self._emit(kernels.FIXED, column, size)
        else:
            self._emit(kernels.BYTES, column, int(pa.types.is_string(column.type)), int(self._bare))

    def _skip(self, writer: AvroType) -> None:
        match writer:
            case AvroRecord(_, fields):
                for field in fields:
                    self._skip(field.type)
            case AvroUnion():
                self._union(writer, self._skip)
            case AvroArray(items):
                self._items(None, lambda: self._skip(items))
            case AvroMap(values):
                self._items(None, lambda: self._skip_entry(values))
            case AvroFixed(_, size):
                self._emit(kernels.SKIP_FIXED, None, size)
            case AvroEnum() | AvroPrimitive(AvroKind.INT | AvroKind.LONG):
                self._emit(kernels.SKIP_VARINT)
            case AvroPrimitive(AvroKind.BYTES | AvroKind.STRING):
                self._emit(kernels.SKIP_BYTES)
            case AvroPrimitive(kind):
                self._emit(kernels.SKIP_FIXED, None, _SIZES[kind])

    def _skip_entry(self, values: AvroType) -> None:
        self._emit(kernels.SKIP_BYTES)
        self._skip(values)


_SIZES = {AvroKind.NULL: 0, AvroKind.BOOLEAN: 1, AvroKind.FLOAT: 4, AvroKind.DOUBLE: 8}


def _choose(writer: AvroType, reader: AvroType, path: str) -> AvroType:
    """Return the branch of the reader's union that takes the writer's type, or the reader's type if it is no union."""
    branches = reader.branches if isinstance(reader, AvroUnion) else (reader,)
    if writer == NULL or branches == (NULL,):
        if writer == NULL and NULL in branches:
            return NULL
        raise _no_match(writer, reader, path)
    if not isinstance(reader, AvroUnion):
        return reader
    for suits in (_is_same, _is_promoted):
        for branch in branches:
            if suits(writer, branch):
                return branch
    raise _no_match(writer, reader, path)


def _is_same(writer: AvroType, branch: AvroType) -> bool:
    match writer, branch:
        case AvroPrimitive(kind), AvroPrimitive(other):
            return kind is other
        case ((AvroRecord() | AvroEnum() | AvroFixed()), (AvroRecord() | AvroEnum() | AvroFixed())):
            return type(writer) is type(branch) and _same_name(writer, branch)
        case _:
            return type(writer) is type(branch)


def _is_promoted(writer: AvroType, branch: AvroType) -> bool:
    if not isinstance(writer, AvroPrimitive) or not isinstance(branch, AvroPrimitive):
        return False
    return branch.kind in _PROMOTED.get(writer.kind, ())


def _same_name(writer: AvroRecord | AvroEnum | AvroFixed, reader: AvroRecord | AvroEnum | AvroFixed) -> bool:
    names = {each.rpartition(".")[2] for each in (reader.name, *reader.aliases)}
    return writer.name.rpartition(".")[2] in names


def _sources(writer: AvroRecord, reader: AvroRecord) -> dict[str, AvroField]:
    """Return the reader's field for each of the writer's fields that it reads."""
    names = {field.name for field in writer.fields}
    found: dict[str, AvroField] = {}
    for field in reader.fields:
        candidates = [each for each in (field.name, *field.aliases) if each in names and each not in found]
        if candidates:
            found[candidates[0]] = field
    return found


def _takes_null(of: AvroType) -> bool:
    return of == NULL or (isinstance(of, AvroUnion) and NULL in of.branches)


def _has_offsets(column: Column) -> bool:
    """Return whether a null of this column must write offsets."""
    if column.storage is Storage.NOTHING:
        return any(map(_has_offsets, column.children))
    return column.storage in (Storage.BYTES, Storage.ITEMS)


def _stored(column: Column) -> int:
    if pa.types.is_floating(column.type):
        return kernels.AS_FLOAT64 if column.width == 8 else kernels.AS_FLOAT32
    return kernels.AS_INT64 if column.width == 8 else kernels.AS_INT32


def _factor(writer: AvroLogical | None, reader: AvroLogical | None, column: Column) -> int:
    """Return the factor for the writer's number: columns of timestamps are in microseconds."""
    if pa.types.is_timestamp(column.type):
        return 1000 if (writer or reader) in _MILLIS else 1
    return 1000 if (writer, reader) == (AvroLogical.TIME_MILLIS, AvroLogical.TIME_MICROS) else 1


def _check_meaning(writer: AvroLogical | None, reader: AvroLogical | None, path: str) -> None:
    if writer is None or reader is None or writer is reader:
        return
    if not any({writer, reader} <= family for family in (_TIMESTAMPS, _TIMES)):
        raise SchemaMismatch(f"{path or 'the value'}: {writer} cannot be read as {reader}")


def _limit(decimal: AvroDecimal) -> list[int]:
    """Return the first number with too many digits, as the signed high and low half of 128 bits."""
    number = 10**decimal.precision
    low = number & (2**64 - 1)
    return [number >> 64, low - 2**64 if low >= 2**63 else low]


def _no_match(writer: AvroType, reader: AvroType, path: str) -> SchemaMismatch:
    return SchemaMismatch(f"{path or 'the value'}: {describe(writer)} cannot be read as {describe(reader)}")
