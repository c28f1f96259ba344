"""The columns of a Protobuf message, and the tables by which the loop of `protobuf_kernels` fills them.

Types are those of Spark's `from_protobuf`, with its options:

    double, float, bool, string, bytes → the same · int32, sint32, sfixed32 → int32 · int64, sint64, sfixed64 → int64
    uint32, fixed32 → int32, or int64 · uint64, fixed64 → int64, or decimal128(20, 0)       with upcast.unsigned.ints
    enum → string, or int32 with enums.as.ints · message → struct · repeated → list · map → map
    google.protobuf.Timestamp → timestamp[us, UTC] · Duration → duration[us]
    google.protobuf.Int64Value … → struct, or the wrapped type with unwrap.primitive.wrapper.types

A message without fields has no column. A field that the writer left out is null. Items of lists, and keys and values of
maps, then have the default of their type; lists and maps are empty.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from sparklog.schemas import protobuf_kernels as kernels
from sparklog.schemas.columns import ROWS, Column, ColumnLayout, ColumnPlanner, Storage
from sparklog.schemas.protobuf import FieldKind, ProtobufEnum, ProtobufField, ProtobufMessage, ProtobufReadOptions

TIMES = {
    "google.protobuf.Timestamp": pa.timestamp("us", "UTC"),
    "google.protobuf.Duration": pa.duration("us"),
}
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_STORED_IN = {
    Storage.NOTHING: kernels.IN_NOTHING,
    Storage.BITS: kernels.IN_BITS,
    Storage.FIXED: kernels.IN_FIXED,
    Storage.BYTES: kernels.IN_BYTES,
    Storage.ITEMS: kernels.IN_ITEMS,
}


@dataclass(frozen=True, slots=True)
class _LeafType:
    """How values without parts are read and stored."""

    op: int
    wire: int
    type: pa.DataType
    width: int
    storage: Storage = Storage.FIXED


_LEAVES = {
    FieldKind.DOUBLE: _LeafType(kernels.FIXED64, kernels.WIRE_FIXED64, pa.float64(), 8),
    FieldKind.FLOAT: _LeafType(kernels.FIXED32, kernels.WIRE_FIXED32, pa.float32(), 4),
    FieldKind.INT32: _LeafType(kernels.INT32, kernels.WIRE_VARINT, pa.int32(), 4),
    FieldKind.INT64: _LeafType(kernels.INT64, kernels.WIRE_VARINT, pa.int64(), 8),
    FieldKind.UINT32: _LeafType(kernels.INT32, kernels.WIRE_VARINT, pa.int32(), 4),
    FieldKind.UINT64: _LeafType(kernels.INT64, kernels.WIRE_VARINT, pa.int64(), 8),
    FieldKind.SINT32: _LeafType(kernels.SINT32, kernels.WIRE_VARINT, pa.int32(), 4),
    FieldKind.SINT64: _LeafType(kernels.SINT64, kernels.WIRE_VARINT, pa.int64(), 8),
    FieldKind.FIXED32: _LeafType(kernels.FIXED32, kernels.WIRE_FIXED32, pa.int32(), 4),
    FieldKind.FIXED64: _LeafType(kernels.FIXED64, kernels.WIRE_FIXED64, pa.int64(), 8),
    FieldKind.SFIXED32: _LeafType(kernels.FIXED32, kernels.WIRE_FIXED32, pa.int32(), 4),
    FieldKind.SFIXED64: _LeafType(kernels.FIXED64, kernels.WIRE_FIXED64, pa.int64(), 8),
    FieldKind.BOOL: _LeafType(kernels.BOOL, kernels.WIRE_VARINT, pa.bool_(), 0, Storage.BITS),
    FieldKind.STRING: _LeafType(kernels.BYTES, kernels.WIRE_BYTES, pa.string(), 0, Storage.BYTES),
    FieldKind.BYTES: _LeafType(kernels.BYTES, kernels.WIRE_BYTES, pa.binary(), 0, Storage.BYTES),
    FieldKind.ENUM: _LeafType(kernels.ENUM, kernels.WIRE_VARINT, pa.string(), 0, Storage.BYTES),
}
_UPCAST = {
    FieldKind.UINT32: _LeafType(kernels.UINT32, kernels.WIRE_VARINT, pa.int64(), 8),
    FieldKind.UINT64: _LeafType(kernels.UINT64, kernels.WIRE_VARINT, pa.decimal128(20, 0), 16),
    FieldKind.FIXED32: _LeafType(kernels.LONG32, kernels.WIRE_FIXED32, pa.int64(), 8),
    FieldKind.FIXED64: _LeafType(kernels.DECIMAL64, kernels.WIRE_FIXED64, pa.decimal128(20, 0), 16),
}


class MessageProgram:
    """The layout of a message's columns, and the tables of its fields.

    Raises SchemaError if there are too many columns.
    """

    def __init__(self, message: ProtobufMessage, options: ProtobufReadOptions) -> None:
        self._options = options
        self.layout = _lay_out(message, options)
        root = self.layout.root
        self.nodes: list[list[int]] = []
        self.fields: list[list[int]] = []
        self.endings: list[list[list[int]]] = [[] for _ in range(self.layout.domains)]
        """The endings of each domain."""
        self.table: list[int] = []
        self.constants = bytearray()
        self._symbols: dict[str, int] = {}
        self._message(message, root, is_item=False)
        for column in root.walk():
            self._end_offsets(column)

    def columns(self) -> list[list[int]]:
        """Return the table of columns."""
        return [
            [
                _STORED_IN[each.storage],
                each.width,
                each.domain,
                each.items,
                max(part.number for part in each.walk()) + 1,
                int(each.nullable),
            ]
            for each in sorted(self.layout.root.walk(), key=lambda each: each.number)
        ]

    def domains(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return the table of domains, and their endings in one list."""
        endings: list[list[int]] = []
        table = []
        for each in self.endings:
            defaults = [ending for ending in each if ending[0] == kernels.DEFAULT_BYTES]
            table.append([len(endings), len(each), len(defaults)])
            endings += defaults + [ending for ending in each if ending[0] != kernels.DEFAULT_BYTES]
        return table, endings

    def _message(self, of: ProtobufMessage, column: Column, *, is_item: bool) -> int:
        """Compile a message whose fields are the children of a column; return its node."""
        parts = dict(zip((each.name for each in of.fields), column.children, strict=True))
        oneofs = {name: self._oneof(of, name, parts) for name in {each.oneof for each in of.fields} if name is not None}
        node, rows = self._node(column.items if column.items >= 0 else column.domain, of.fields, is_item=is_item)
        for each, row in zip(sorted(of.fields, key=lambda each: each.number), rows, strict=True):
            self._field(each, parts[each.name], row)
            if each.oneof is not None:
                row[kernels.ONEOF], row[kernels.MEMBERS], row[kernels.CHARGE] = oneofs[each.oneof]
        return node

    def _oneof(self, of: ProtobufMessage, name: str, parts: Mapping[str, Column]) -> tuple[int, int, int]:
        """Return the position of a oneof's columns in the table, their number, and the cost of clearing them."""
        members = [parts[each.name] for each in of.fields if each.oneof == name]
        start = len(self.table)
        self.table += [each.number for each in members]
        return start, len(members), sum(1 for each in members for _ in each.walk())

    def _node(self, domain: int, fields: tuple[ProtobufField, ...], *, is_item: bool) -> tuple[int, list[list[int]]]:
        """Return a new node, and the rows of its fields, still to be filled."""
        rows = [[0] * kernels.FIELD for _ in fields]
        self.nodes.append([len(self.fields), len(rows), domain, int(is_item)])
        self.fields += rows
        return len(self.nodes) - 1, rows

    def _field(self, of: ProtobufField, column: Column, row: list[int]) -> None:
        if not of.repeated:
            self._value(of, column, row, -1, 0)
            self._default(of, column)
            return
        charge = column.bytes_of_item
        if of.message is not None and of.message.is_entry:
            self._row(of, column, row, (kernels.MESSAGE, kernels.WIRE_BYTES, column.items), column.number, charge)
            row[kernels.A] = self._message(of.message, column, is_item=True)
            return
        self._value(of, column.children[0], row, column.number, charge)

    def _value(self, of: ProtobufField, column: Column, row: list[int], of_list: int, charge: int) -> None:
        if of.message is not None and of.message.name in TIMES:
            self._row(of, column, row, (kernels.TIME, kernels.WIRE_BYTES, column.domain), of_list, charge)
            row[kernels.A] = int(pa.types.is_duration(column.type))
            return
        if of.message is not None:
            self._row(of, column, row, (kernels.MESSAGE, kernels.WIRE_BYTES, column.domain), of_list, charge)
            row[kernels.A] = self._part(of.message, column, is_item=of_list >= 0)
            return
        leaf = _leaf_of(of, self._options)
        self._row(of, column, row, (leaf.op, leaf.wire, column.domain), of_list, charge)
        if leaf.op == kernels.ENUM and of.enum is not None:
            row[kernels.A], row[kernels.B], row[kernels.C] = self._enum(of.enum), len(of.enum.symbols), of.enum.closed
        elif leaf.op == kernels.BYTES:
            row[kernels.A] = int(of.kind is FieldKind.STRING)

    def _row(
        self, of: ProtobufField, column: Column, row: list[int], how: tuple[int, int, int], of_list: int, charge: int
    ) -> None:
        op, wire, domain = how
        present = int(column.nullable and of_list < 0)
        row[: kernels.A] = [of.number, wire, op, column.number, domain, of_list, charge, present]

    def _part(self, of: ProtobufMessage, column: Column, *, is_item: bool) -> int:
        """Compile a message within another; return its node."""
        if _is_unwrapped(of, self._options):
            node, (row,) = self._node(column.domain, of.fields, is_item=is_item)
            self._value(of.fields[0], column, row, -1, 0)
            row[kernels.PRESENT] = 0
            return node
        return self._message(of, column, is_item=is_item)

    def _enum(self, of: ProtobufEnum) -> int:
        """Return the position of an enum's sorted symbols in the table; the prefix of unknown numbers follows them."""
        if of.name not in self._symbols:
            self._symbols[of.name] = len(self.table)
            for number, symbol in sorted(of.symbols):
                self.table += [number, *self._constant(symbol.encode())]
            unknown = f"UNKNOWN_ENUM_VALUE_{of.name.rpartition('.')[2]}_"
            self.table += [0, *self._constant(unknown.encode())]
        return self._symbols[of.name]

    def _constant(self, text: bytes) -> tuple[int, int]:
        start = len(self.constants)
        self.constants += text
        return start, len(self.constants)

    def _default(self, of: ProtobufField, column: Column) -> None:
        """Compile the value of an absent field, unless it is null."""
        is_emitted = self._options.emit_default_values and not of.presence
        if of.message is not None or (column.nullable and of.default is None and not is_emitted):
            return
        value = _default_of(of)
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            text = str(value).encode() if not isinstance(value, bytes) else value
            if text or column.nullable:
                default = [kernels.DEFAULT_BYTES, column.number, *self._constant(text), int(column.nullable)]
                self.endings[column.domain].append(default)
        elif column.nullable:
            bits = _number_bits(value, of, column)
            kind = kernels.DEFAULT_NUMBER if bits else kernels.VALID
            self.endings[column.domain].append([kind, column.number, bits, column.width, 0])

    def _end_offsets(self, column: Column) -> None:
        if column.storage is Storage.BYTES:
            self.endings[column.domain].append([kernels.END_OF_BYTES, column.number, 0, 0, 0])
        elif column.storage is Storage.ITEMS:
            self.endings[column.domain].append([kernels.END_OF_ITEMS, column.number, column.items, 0, 0])


class _ColumnBuilder:
    """Lays out the columns of messages."""

    def __init__(self, planner: ColumnPlanner, options: ProtobufReadOptions) -> None:
        self._planner = planner
        self._options = options

    def struct(self, of: ProtobufMessage, *, nullable: bool, domain: int) -> Column:
        makers = [(each.name, self._field(each, domain)) for each in of.fields]
        return self._planner.struct(makers, nullable=nullable, domain=domain)

    def _field(self, of: ProtobufField, domain: int) -> Callable[[], Column]:
        if not of.repeated:
            return lambda: self._value(of, nullable=True, domain=domain)
        parts = of.message.fields if of.message is not None and of.message.is_entry else (of,)
        makers = [partial(self._part, each) for each in parts]
        return lambda: self._planner.items(makers, nullable=False, domain=domain)

    def _part(self, of: ProtobufField, domain: int) -> Column:
        return self._value(of, nullable=False, domain=domain)

    def _value(self, of: ProtobufField, *, nullable: bool, domain: int) -> Column:
        if of.message is None:
            leaf = _leaf_of(of, self._options)
            return self._planner.leaf(leaf.type, leaf.storage, leaf.width, nullable=nullable, domain=domain)
        if of.message.name in TIMES:
            return self._planner.leaf(TIMES[of.message.name], Storage.FIXED, 8, nullable=nullable, domain=domain)
        if _is_unwrapped(of.message, self._options):
            return self._value(of.message.fields[0], nullable=nullable, domain=domain)
        return self.struct(of.message, nullable=nullable, domain=domain)


def type_of_message(message: ProtobufMessage, options: ProtobufReadOptions) -> pa.DataType:
    """Return the Arrow type of a message. Raises SchemaError if it has too many columns."""
    return _lay_out(message, options).root.type


def _lay_out(message: ProtobufMessage, options: ProtobufReadOptions) -> ColumnLayout:
    planner = ColumnPlanner()
    root = _ColumnBuilder(planner, options).struct(message, nullable=True, domain=ROWS)
    return ColumnLayout(root, planner.columns, planner.domains)


def _leaf_of(of: ProtobufField, options: ProtobufReadOptions) -> _LeafType:
    """Return how a field that is no message is read and stored."""
    if of.kind is FieldKind.ENUM and options.enums_as_ints:
        return _LEAVES[FieldKind.INT32]
    if options.upcast_unsigned_ints and of.kind in _UPCAST:
        return _UPCAST[of.kind]
    return _LEAVES[of.kind]


def _is_unwrapped(of: ProtobufMessage, options: ProtobufReadOptions) -> bool:
    return options.unwrap_primitive_wrapper_types and of.name in WRAPPERS


def _default_of(of: ProtobufField) -> bool | int | float | str | bytes:
    """Return the value of an absent field; of an enum, the name of a symbol."""
    if of.default is not None:
        return of.default
    if of.enum is not None:
        return of.enum.symbols[0][1]
    return "" if of.kind is FieldKind.STRING else b"" if of.kind is FieldKind.BYTES else 0


def _number_bits(value: bool | int | float | str | bytes, of: ProtobufField, column: Column) -> int:
    """Return a number as the loop stores it: its bits as a signed number of 64."""
    if isinstance(value, str) and of.enum is not None:
        value = next(number for number, symbol in of.enum.symbols if symbol == value)
    if pa.types.is_floating(column.type):
        formats = ("<d", "<q") if column.width == 8 else ("<f", "<i")
        return int(struct.unpack(formats[1], struct.pack(formats[0], value))[0])
    return (int(value) + 2**63) % 2**64 - 2**63
