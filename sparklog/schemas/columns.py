"""The Arrow columns of a schema, and the numbers by which kernels address them.

Types are those of Spark's `from_avro`, with the names and nullability that Spark's Arrow reader expects:

    null → null · boolean → bool · int → int32 · long → int64 · float → float32 · double → float64
    bytes, fixed → binary · string, enum → string · decimal → decimal128 · date → date32
    timestamp-… → timestamp[us, UTC] · local-timestamp-… → timestamp[us] · record → struct · array → list · map → map
    union: of a type and null → the type, nullable · of int and long → int64 · of float and double → float64
           of others → a struct of member0, member1 … without null; only the value's own member is not null

Each column has a number. All columns between two lists have the same length, so they share one counter: their *domain*.
Domain 0 counts the rows; each list or map adds a domain for its items. A column's buffers lie in one block of memory:
validity bits if the column is nullable, then fixed-width values or int32 offsets, then the bytes of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import pyarrow as pa

from sparklog.base.errors import SchemaError
from sparklog.schemas.avro import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroKind,
    AvroLogical,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
)

MOST_COLUMNS = 10_000
MOST_DIGITS = 38
"""Most digits of Spark's decimals."""
ROWS = 0
"""The domain of the rows."""


class Storage(Enum):
    """The buffers of a column, besides validity bits."""

    NOTHING = 0  # null, struct
    BITS = 1
    FIXED = 2
    BYTES = 3  # offsets and bytes
    ITEMS = 4  # offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One node of the tree of columns."""

    number: int
    type: pa.DataType
    nullable: bool
    domain: int
    storage: Storage
    width: int = 0
    """Bytes of a value with FIXED storage."""
    items: int = -1
    """The domain of the items of a list or map."""
    children: tuple[Column, ...] = ()
    """Fields of a struct, the item of a list, key and value of a map."""

    @property
    def fixed_bytes(self) -> int:
        """Bytes of one value in the buffers of fixed width, with a whole byte for the validity bit."""
        return self.width + 1 + (4 if self.storage in (Storage.BYTES, Storage.ITEMS) else 0)

    @property
    def bytes_of_item(self) -> int:
        """Bytes of one item of a list or map, in the buffers of fixed width of all its columns."""
        return sum(each.fixed_bytes for each in self.walk() if each.domain == self.items)

    def walk(self) -> Iterator[Column]:
        """Yield this column and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """All columns of a schema."""

    root: Column
    """Nullable: a row may be a tombstone."""
    columns: int
    domains: int


def lay_out(schema: AvroType) -> ColumnLayout:
    """Return the columns of a schema. Raises SchemaError if there are too many, or a decimal is too wide."""
    planner = ColumnPlanner()
    root = _column(planner, schema, nullable=True, domain=ROWS)
    return ColumnLayout(root, planner.columns, planner.domains)


def join_path(path: str, name: str) -> str:
    """Return the path of a field within `path`; empty: the field is at the top."""
    return f"{path}.{name}" if path else name


def nullable_within(of: pa.DataType) -> pa.DataType:
    """Return the type with nulls allowed in all parts except keys of maps."""
    if pa.types.is_struct(of):
        return pa.struct([pa.field(each.name, nullable_within(each.type)) for each in of])
    if pa.types.is_list(of):
        return pa.list_(pa.field("element", nullable_within(of.value_type)))
    if pa.types.is_map(of):
        return pa.map_(of.key_type, pa.field("value", nullable_within(of.item_type)))
    return of


def without_null(union: AvroUnion) -> tuple[tuple[AvroType, ...], bool]:
    """Return the branches except null, and whether null was one of them."""
    branches = tuple(each for each in union.branches if each != AvroPrimitive(AvroKind.NULL))
    return branches, len(branches) < len(union.branches)


def merged(branches: tuple[AvroType, ...]) -> AvroType | None:
    """Return the one type that holds all branches of a union; None if they need a struct of members."""
    if len(branches) == 1:
        return branches[0]
    kinds = {each.kind for each in branches if isinstance(each, AvroPrimitive)}
    if len(branches) == 2 and kinds == {AvroKind.INT, AvroKind.LONG}:
        return AvroPrimitive(AvroKind.LONG)
    if len(branches) == 2 and kinds == {AvroKind.FLOAT, AvroKind.DOUBLE}:
        return AvroPrimitive(AvroKind.DOUBLE)
    return None


_OF_KIND: dict[AvroKind, tuple[pa.DataType, Storage, int]] = {
    AvroKind.NULL: (pa.null(), Storage.NOTHING, 0),
    AvroKind.BOOLEAN: (pa.bool_(), Storage.BITS, 0),
    AvroKind.INT: (pa.int32(), Storage.FIXED, 4),
    AvroKind.LONG: (pa.int64(), Storage.FIXED, 8),
    AvroKind.FLOAT: (pa.float32(), Storage.FIXED, 4),
    AvroKind.DOUBLE: (pa.float64(), Storage.FIXED, 8),
    AvroKind.BYTES: (pa.binary(), Storage.BYTES, 0),
    AvroKind.STRING: (pa.string(), Storage.BYTES, 0),
}
_OF_LOGICAL: dict[AvroLogical, pa.DataType] = {
    AvroLogical.DATE: pa.date32(),
    AvroLogical.TIMESTAMP_MILLIS: pa.timestamp("us", "UTC"),
    AvroLogical.TIMESTAMP_MICROS: pa.timestamp("us", "UTC"),
    AvroLogical.LOCAL_TIMESTAMP_MILLIS: pa.timestamp("us"),
    AvroLogical.LOCAL_TIMESTAMP_MICROS: pa.timestamp("us"),
}


class ColumnPlanner:
    """Gives out the numbers of columns and domains. A column has a lower number than its children."""

    def __init__(self) -> None:
        self.columns = 0
        self.domains = 1

    def leaf(self, of: pa.DataType, storage: Storage, width: int, *, nullable: bool, domain: int) -> Column:
        """Return a column without children."""
        return Column(number=self._number(), type=of, nullable=nullable, domain=domain, storage=storage, width=width)

    def struct(self, fields: Sequence[tuple[str, Callable[[], Column]]], *, nullable: bool, domain: int) -> Column:
        """Return a column of structs. fields: the name of each field, and a function that returns its column."""
        number = self._number()
        children = [(name, make()) for name, make in fields]
        return Column(
            number=number,
            type=pa.struct([_field(name, child) for name, child in children]),
            nullable=nullable,
            domain=domain,
            storage=Storage.NOTHING,
            children=tuple(child for _, child in children),
        )

    def items(self, parts: Sequence[Callable[[int], Column]], *, nullable: bool, domain: int) -> Column:
        """Return a column of lists or maps.

        parts: functions that return the columns of the item, or of key and value, given their domain
        """
        number, items = self._number(), self.domains
        self.domains += 1
        children = tuple(make(items) for make in parts)
        names = ("element",) if len(children) == 1 else ("key", "value")
        fields = [_field(name, child) for name, child in zip(names, children, strict=True)]
        return Column(
            number=number,
            type=pa.list_(fields[0]) if len(fields) == 1 else pa.map_(*fields),
            nullable=nullable,
            domain=domain,
            storage=Storage.ITEMS,
            items=items,
            children=children,
        )

    def _number(self) -> int:
        if self.columns >= MOST_COLUMNS:
            raise SchemaError(f"the schema has more than {MOST_COLUMNS} columns: read it as a smaller reader schema")
        self.columns += 1
        return self.columns - 1


def _column(planner: ColumnPlanner, of: AvroType, *, nullable: bool, domain: int) -> Column:  # noqa: PLR0911 - a case for each
    if isinstance(of, AvroUnion):
        branches, has_null = without_null(of)
        one = merged(branches)
        if one is not None:
            return _column(planner, one, nullable=nullable or has_null, domain=domain)
        if not branches:
            return _column(planner, AvroPrimitive(AvroKind.NULL), nullable=True, domain=domain)
        members = [(f"member{i}", each, True) for i, each in enumerate(branches)]
        return _struct(planner, members, nullable=nullable or has_null, domain=domain)
    match of:
        case AvroRecord(_, fields):
            parts = [(field.name, field.type, False) for field in fields]
            return _struct(planner, parts, nullable=nullable, domain=domain)
        case AvroArray(items):
            return planner.items([_part(planner, items)], nullable=nullable, domain=domain)
        case AvroMap(values):
            key_and_value = [_part(planner, AvroPrimitive(AvroKind.STRING)), _part(planner, values)]
            return planner.items(key_and_value, nullable=nullable, domain=domain)
    arrow, storage, width = _leaf(of)
    return planner.leaf(arrow, storage, width, nullable=nullable or pa.types.is_null(arrow), domain=domain)


def _struct(planner: ColumnPlanner, fields: list[tuple[str, AvroType, bool]], *, nullable: bool, domain: int) -> Column:
    makers = [(name, partial(_column, planner, of, nullable=null, domain=domain)) for name, of, null in fields]
    return planner.struct(makers, nullable=nullable, domain=domain)


def _part(planner: ColumnPlanner, of: AvroType) -> Callable[[int], Column]:
    return lambda domain: _column(planner, of, nullable=False, domain=domain)


def _field(name: str, column: Column) -> Any:
    return pa.field(name, column.type, nullable=column.nullable)


def _leaf(of: AvroPrimitive | AvroFixed | AvroEnum) -> tuple[pa.DataType, Storage, int]:
    if isinstance(of, AvroEnum):
        return _OF_KIND[AvroKind.STRING]
    if of.decimal:
        if of.decimal.precision > MOST_DIGITS:
            raise SchemaError(
                f"a decimal of {of.decimal.precision} digits does not fit Spark's {MOST_DIGITS}: give a reader schema "
                "in which it is plain bytes"
            )
        return pa.decimal128(of.decimal.precision, of.decimal.scale), Storage.FIXED, 16
    if isinstance(of, AvroFixed):
        return _OF_KIND[AvroKind.BYTES]
    arrow, storage, width = _OF_KIND[of.kind]
    return _OF_LOGICAL.get(of.logical, arrow) if of.logical else arrow, storage, width
