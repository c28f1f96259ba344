"""Compiles how values of a writer's schema are read as those of a reader's schema, by Avro's rules of resolution.

A field that the writer lacks gets the reader's default. One that the reader lacks is skipped. Numbers are promoted (int
→ long → float → double), string and bytes are each other's. Records, enums and fixed have the same name, without its
namespace, or one that is an alias. Of a reader's union, a branch of the writer's own type goes before one that it can
be promoted to.

Logical types decide too, where the specification leaves it open: a timestamp is converted from the writer's unit,
decimals must agree in their scale, and a date is no time. A number without a logical type takes the reader's.

A default value is kept as Avro bytes among the constants and read from there, by the same operations as any value.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from sparklog.base.errors import SchemaError
from sparklog.records.kernels import MAX_LONG
from sparklog.schemas import avro_kernels as kernels
from sparklog.schemas.avro import (
    NO_DEFAULT,
    Array,
    Decimal,
    Enum,
    Field,
    Fixed,
    Kind,
    Logical,
    Map,
    Record,
    Simple,
    Type,
    Union,
    describe,
)
from sparklog.schemas.avro_defaults import encode_default
from sparklog.schemas.column_kernels import NO_MATCH
from sparklog.schemas.columns import Column, Layout, Storage, merged, without_null

MOST_OPERATIONS = 200_000
NULL = Simple(Kind.NULL)

_PROMOTED: dict[Kind, frozenset[Kind]] = {
    Kind.INT: frozenset({Kind.LONG, Kind.FLOAT, Kind.DOUBLE}),
    Kind.LONG: frozenset({Kind.FLOAT, Kind.DOUBLE}),
    Kind.FLOAT: frozenset({Kind.DOUBLE}),
    Kind.STRING: frozenset({Kind.BYTES}),
    Kind.BYTES: frozenset({Kind.STRING}),
}
_MILLIS = frozenset({Logical.TIME_MILLIS, Logical.TIMESTAMP_MILLIS, Logical.LOCAL_TIMESTAMP_MILLIS})
_TIMESTAMPS = frozenset(each for each in Logical if "timestamp" in each)
_TIMES = frozenset({Logical.TIME_MILLIS, Logical.TIME_MICROS})


class NoMatch(Exception):
    """Values of the writer's type cannot be read as the reader's."""


class Program:
    """The operations of all schemas that a decoder knows; each reads its rows into the same columns.

    The operations of a null row come first.
    """

    def __init__(self, reader: Type, layout: Layout) -> None:
        self.operations: list[list[int]] = []
        self.table: list[int] = []
        self.constants = bytearray()
        self.levels = 1
        """Most lists within lists."""
        self._reader = reader
        self._layout = layout
        self._level = 0
        self._bare = False
        """Whether the schema that is compiled is `bytes`, and bodies are these alone."""
        self._nulls(layout.root)
        self._emit(kernels.END)

    def add(self, writer: Type, *, bare_bytes: bool = False) -> int:
        """Compile a writer's schema; return where its operations begin.

        bare_bytes: bodies of the schema `bytes` have no length before them

        Raises SchemaError, and changes nothing, if it cannot be read as the reader's schema.
        """
        start = len(self.operations)
        undo = self._mark()
        self._bare = bare_bytes and isinstance(writer, Simple) and writer.kind is Kind.BYTES
        try:
            self._value(writer, self._reader, self._layout.root, "")
        except NoMatch as error:
            undo()
            raise SchemaError(f"the writer's schema cannot be read as the reader's: {error}") from None
        except SchemaError:
            undo()
            raise
        self._emit(kernels.END)
        return start

    def _mark(self) -> Callable[[], None]:
        """Return a function that forgets what was compiled since."""
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

    def _value(self, writer: Type, reader: Type, column: Column, path: str) -> None:
        if isinstance(writer, Union):
            self._branches(writer, reader, column, path)
            return
        branch = _choose(writer, reader, path)
        if branch == NULL:
            self._nulls(column)
            return
        if column.nullable:
            self._emit(kernels.SET_VALID, column)
        self._present(writer, reader, branch, column, path)

    def _present(self, writer: Type, reader: Type, branch: Type, column: Column, path: str) -> None:
        """Compile a value that is not null, whose validity bit is set; `branch` of the reader holds it."""
        if isinstance(reader, Union) and merged(members := without_null(reader)[0]) is None:
            for member, child in zip(members, column.children, strict=True):
                if member is branch:
                    self._value(writer, member, child, path)
                else:
                    self._nulls(child)
            return
        match writer, branch:
            case Record(), Record() if _same_name(writer, branch):
                self._record(writer, branch, column, path)
            case Array(items), Array(items_into):
                self._items(column, lambda: self._value(items, items_into, column.children[0], f"{path}[]"))
            case Map(values), Map(values_into):
                self._items(column, lambda: self._entry(values, values_into, column, path))
            case Enum(), Enum() if _same_name(writer, branch):
                self._enum(writer, branch, column)
            case Fixed(size=size), Fixed(size=expected) if size == expected and _same_name(writer, branch):
                self._bytes(writer, branch, column, path)
            case Simple(kind), Simple(into) if kind is into or into in _PROMOTED.get(kind, ()):
                self._simple(writer, branch, column, path)
            case _:
                raise _no_match(writer, branch, path)

    def _branches(self, writer: Union, reader: Type, column: Column, path: str) -> None:
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
        failures: list[NoMatch] = []

        def read(branch: Type) -> None:
            undo = self._mark()
            try:
                self._value(branch, reader, column, path)
            except NoMatch as error:
                undo()
                failures.append(error)
                self._emit(kernels.FAIL, None, NO_MATCH)

        self._union(writer, read)
        if len(failures) == len(writer.branches):
            raise failures[0]

    def _union(self, writer: Union, each: Callable[[Type], None]) -> None:
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
        """Compile a null: without a validity bit, and with offsets that say empty."""
        if column.storage in (Storage.BYTES, Storage.ITEMS):
            self._emit(kernels.SET_NULL, column, column.items)
        elif column.storage is Storage.NOTHING:
            for child in column.children:
                self._nulls(child)

    def _record(self, writer: Record, reader: Record, column: Column, path: str) -> None:
        sources = _sources(writer, reader)
        children = {field.name: child for field, child in zip(reader.fields, column.children, strict=True)}
        for each in writer.fields:
            if (field := sources.pop(each.name, None)) is None:
                self._skip(each.type)
            else:
                self._value(each.type, field.type, children.pop(field.name), _join(path, field.name))
        for field in reader.fields:
            if field.name in children:
                self._default(field, children[field.name], _join(path, field.name))

    def _default(self, field: Field, column: Column, path: str) -> None:
        if field.default is NO_DEFAULT:
            raise NoMatch(f"{path} is not in the writer's schema, and has no default")
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
        loop = self._emit(kernels.ITEMS, column, domain, level, 0, _bytes_per_item(column) if column else 0)
        body()
        self._emit(kernels.NEXT, column, domain, level, start)
        loop[kernels.C] = self._next
        self._level = level

    def _entry(self, values: Type, into: Type, column: Column, path: str) -> None:
        key, value = column.children
        self._emit(kernels.BYTES, key, 1)
        self._value(values, into, value, f"{path}[]")

    def _enum(self, writer: Enum, reader: Enum, column: Column) -> None:
        start = len(self.table)
        for symbol in writer.symbols:
            known = symbol if symbol in reader.symbols else reader.default
            text = (known or "").encode()
            self.table += [-1 if known is None else len(self.constants), len(text)]
            self.constants += text
        self._emit(kernels.ENUM, column, start, len(writer.symbols))

    def _simple(self, writer: Simple, reader: Simple, column: Column, path: str) -> None:
        _check_meaning(writer.logical, reader.logical, path)
        match writer.kind:
            case Kind.BOOLEAN:
                self._emit(kernels.BOOLEAN, column)
            case Kind.INT | Kind.LONG:
                bits, factor = 32 if writer.kind is Kind.INT else 64, _factor(writer.logical, reader.logical, column)
                self._emit(kernels.VARINT, column, bits, _stored(column), factor, MAX_LONG // factor)
            case Kind.FLOAT:
                self._emit(kernels.FLOAT, column, 0, _stored(column))
            case Kind.DOUBLE:
                self._emit(kernels.DOUBLE, column)
            case Kind.BYTES | Kind.STRING:
                self._bytes(writer, reader, column, path)

    def _bytes(self, writer: Simple | Fixed, reader: Simple | Fixed, column: Column, path: str) -> None:
        size = writer.size if isinstance(writer, Fixed) else kernels.ALL_LEFT if self._bare else kernels.BY_LENGTH
        if reader.decimal is not None:
            if writer.decimal is not None and writer.decimal.scale != reader.decimal.scale:
                raise _no_match(writer, reader, path)
            self._emit(kernels.DECIMAL, column, size, len(self.table))
            self.table += _limit(reader.decimal)
        elif size >= 0:
            self._emit(kernels.FIXED, column, size)
        else:
            self._emit(kernels.BYTES, column, int(pa.types.is_string(column.type)), int(self._bare))

    def _skip(self, writer: Type) -> None:
        match writer:
            case Record(_, fields):
                for field in fields:
                    self._skip(field.type)
            case Union():
                self._union(writer, self._skip)
            case Array(items):
                self._items(None, lambda: self._skip(items))
            case Map(values):
                self._items(None, lambda: self._skip_entry(values))
            case Fixed(_, size):
                self._emit(kernels.SKIP_FIXED, None, size)
            case Enum() | Simple(Kind.INT | Kind.LONG):
                self._emit(kernels.SKIP_VARINT)
            case Simple(Kind.BYTES | Kind.STRING):
                self._emit(kernels.SKIP_BYTES)
            case Simple(kind):
                self._emit(kernels.SKIP_FIXED, None, _SIZES[kind])

    def _skip_entry(self, values: Type) -> None:
        self._emit(kernels.SKIP_BYTES)
        self._skip(values)


_SIZES = {Kind.NULL: 0, Kind.BOOLEAN: 1, Kind.FLOAT: 4, Kind.DOUBLE: 8}


def _choose(writer: Type, reader: Type, path: str) -> Type:
    """Return the branch of the reader's union that takes the writer's type, or the reader's type if it is no union."""
    branches = reader.branches if isinstance(reader, Union) else (reader,)
    if writer == NULL or branches == (NULL,):
        if writer == NULL and NULL in branches:
            return NULL
        raise _no_match(writer, reader, path)
    if not isinstance(reader, Union):
        return reader
    for suits in (_is_same, _is_promoted):
        for branch in branches:
            if suits(writer, branch):
                return branch
    raise _no_match(writer, reader, path)


def _is_same(writer: Type, branch: Type) -> bool:
    match writer, branch:
        case Simple(kind), Simple(other):
            return kind is other
        case ((Record() | Enum() | Fixed()), (Record() | Enum() | Fixed())):
            return type(writer) is type(branch) and _same_name(writer, branch)
        case _:
            return type(writer) is type(branch)


def _is_promoted(writer: Type, branch: Type) -> bool:
    if not isinstance(writer, Simple) or not isinstance(branch, Simple):
        return False
    return branch.kind in _PROMOTED.get(writer.kind, ())


def _same_name(writer: Record | Enum | Fixed, reader: Record | Enum | Fixed) -> bool:
    names = {each.rpartition(".")[2] for each in (reader.name, *reader.aliases)}
    return writer.name.rpartition(".")[2] in names


def _sources(writer: Record, reader: Record) -> dict[str, Field]:
    """Return the reader's field for each of the writer's fields that it reads."""
    names = {field.name for field in writer.fields}
    found: dict[str, Field] = {}
    for field in reader.fields:
        candidates = [each for each in (field.name, *field.aliases) if each in names and each not in found]
        if candidates:
            found[candidates[0]] = field
    return found


def _takes_null(of: Type) -> bool:
    return of == NULL or (isinstance(of, Union) and NULL in of.branches)


def _has_offsets(column: Column) -> bool:
    """Return whether a null of this column must write offsets."""
    if column.storage is Storage.NOTHING:
        return any(map(_has_offsets, column.children))
    return column.storage in (Storage.BYTES, Storage.ITEMS)


def _bytes_per_item(column: Column) -> int:
    """Return the bytes of one item in all columns with buffers of fixed width, validity bits rounded up."""
    own = [each for each in column.walk() if each.domain == column.items]
    return sum(each.width + 1 + (4 if each.storage in (Storage.BYTES, Storage.ITEMS) else 0) for each in own)


def _stored(column: Column) -> int:
    if pa.types.is_floating(column.type):
        return kernels.AS_FLOAT64 if column.width == 8 else kernels.AS_FLOAT32
    return kernels.AS_INT64 if column.width == 8 else kernels.AS_INT32


def _factor(writer: Logical | None, reader: Logical | None, column: Column) -> int:
    """Return by what the writer's number is multiplied: columns of timestamps are in microseconds."""
    if pa.types.is_timestamp(column.type):
        return 1000 if (writer or reader) in _MILLIS else 1
    return 1000 if (writer, reader) == (Logical.TIME_MILLIS, Logical.TIME_MICROS) else 1


def _check_meaning(writer: Logical | None, reader: Logical | None, path: str) -> None:
    if writer is None or reader is None or writer is reader:
        return
    if not any({writer, reader} <= family for family in (_TIMESTAMPS, _TIMES)):
        raise NoMatch(f"{path or 'the value'}: {writer} cannot be read as {reader}")


def _limit(decimal: Decimal) -> list[int]:
    """Return the first number with too many digits, as the signed high and low half of 128 bits."""
    number = 10**decimal.precision
    low = number & (2**64 - 1)
    return [number >> 64, low - 2**64 if low >= 2**63 else low]


def _no_match(writer: Type, reader: Type, path: str) -> NoMatch:
    return NoMatch(f"{path or 'the value'}: {describe(writer)} cannot be read as {describe(reader)}")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
