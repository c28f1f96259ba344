"""Decodes a column of Avro bodies to an Arrow array of the reader's schema.

Memory besides the data: at most `limit_bytes` of columns at once. A body that needs more by itself is malformed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.base.errors import CorruptRecord
from sparklog.records.kernels import MAX_LONG
from sparklog.schemas import avro_kernels as kernels
from sparklog.schemas.avro import Type
from sparklog.schemas.avro_kernels import Buffers, Code, Rows, read_only
from sparklog.schemas.columns import ROWS, Column, Storage, lay_out
from sparklog.schemas.resolution import Program

LIMIT_BYTES = 256 * 1024 * 1024
NULL_ENTRY = 0
"""The entry of a row that is null."""

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]

_ALIGNMENT = 64


class AvroDecoder:
    """Reads bodies of any number of writers' schemas as one reader's schema.

    Raises SchemaError for a reader's schema with more columns than `columns.MOST_COLUMNS`.
    """

    def __init__(self, reader: Type, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._layout = lay_out(reader)
        self._program = Program(reader, self._layout)
        self._limit_bytes = limit_bytes
        self._code: Code | None = None

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of decoded arrays."""
        return self._layout.root.type

    def add_writer(self, schema: Type, *, bare_bytes: bool = False) -> int:
        """Return the entry for bodies of this schema. Raises SchemaError if the reader's schema cannot read them.

        bare_bytes: bodies of the schema `bytes` have no length before them
        """
        entry = self._program.add(schema, bare_bytes=bare_bytes)
        self._code = None
        return entry

    def decode(
        self, data: Bytes, starts: Longs, ends: Longs, entries: Longs, faults: Bytes
    ) -> Iterator[tuple[pa.Array, int]]:
        """Yield arrays of the rows, in order, each with the number of rows before it.

        starts, ends: the range of each body in `data`
        entries: of each body's schema, as `add_writer` returned it; NULL_ENTRY for null
        faults: one of `avro_kernels.FAULTS` for each row that is malformed, else 0. Rows that have a fault before stay
            null; the others get theirs before the array that they are in is yielded
        """
        if self._code is None:
            self._code = _assemble(self._program)
        whole = Rows(*map(read_only, (starts, ends, entries)))
        rows_at_once = max(1, self._limit_bytes // (sum(map(_width, self._in_rows())) + 1))
        first = 0
        while first < len(starts):
            rows = Rows(*(part[: first + rows_at_once] for part in whole))
            before = first
            first, array = self._pass(self._code, read_only(data), rows, first, faults)
            yield array, before

    def _in_rows(self) -> list[Column]:
        return [each for each in self._layout.root.walk() if each.domain == ROWS]

    def _pass(self, code: Code, data: Bytes, rows: Rows, first: int, faults: Bytes) -> tuple[int, pa.Array]:
        """Decode the rows from `first` on, as many as fit; return the row after the last, and their array."""
        layout = self._layout
        measured = Buffers(
            counts=np.zeros(layout.domains, np.int64),
            most_counts=np.full(layout.domains, self._limit_bytes),
            sizes=np.zeros(layout.columns, np.int64),
            most_sizes=np.full(layout.columns, self._limit_bytes),
            **{name: np.zeros(layout.columns, np.int64) for name in ("validity", "values", "texts")},
            left_items=np.zeros(self._program.levels, np.int64),
            left_bytes=np.array([self._limit_bytes]),
        )
        nothing = np.empty(0, np.uint8)
        last = kernels.run(data, code, rows, first, faults, measured, nothing, 0)
        buffers, size = _place(layout.root, measured)
        target = np.zeros(size, np.uint8)
        rows = Rows(*(part[:last] for part in rows))
        if kernels.run(data, code, rows, first, faults, buffers, target, 1) != last:
            raise CorruptRecord("the bytes of a column changed while they were decoded")
        return last, _Arrays(target, buffers).of(layout.root)


class _Arrays:
    """Arrow arrays over the buffers in one block of memory."""

    def __init__(self, target: Bytes, buffers: Buffers) -> None:
        self._memory = pa.py_buffer(target)
        self._buffers = buffers

    def of(self, column: Column) -> pa.Array:
        length = int(self._buffers.counts[column.domain])
        number = column.number
        if pa.types.is_null(column.type):
            return pa.nulls(length)
        validity = self._slice(self._buffers.validity[number], -(-length // 8)) if column.nullable else None
        buffers = [validity]
        match column.storage:
            case Storage.BITS:
                buffers.append(self._slice(self._buffers.values[number], -(-length // 8)))
            case Storage.FIXED:
                buffers.append(self._slice(self._buffers.values[number], length * column.width))
            case Storage.BYTES | Storage.ITEMS:
                buffers.append(self._slice(self._buffers.values[number], 4 * (length + 1)))
                if column.storage is Storage.BYTES:
                    buffers.append(self._slice(self._buffers.texts[number], self._buffers.sizes[number]))
        children = [self.of(child) for child in column.children]
        if pa.types.is_map(column.type):
            entries = pa.struct([column.type.key_field, column.type.item_field])
            children = [pa.Array.from_buffers(entries, len(children[0]), [None], children=children)]
        nested = pa.types.is_nested(column.type)
        return pa.Array.from_buffers(column.type, length, buffers, children=children if nested else None)

    def _slice(self, start: int, size: int) -> pa.Buffer:
        return self._memory.slice(int(start), int(size))


def _place(root: Column, measured: Buffers) -> tuple[Buffers, int]:
    """Return buffers that hold what was measured, and the size of the memory that they lie in."""
    validity, values, texts = (np.zeros_like(measured.sizes) for _ in range(3))
    position = 0

    def take(size: int) -> int:
        nonlocal position
        start = position
        position += -(-size // _ALIGNMENT) * _ALIGNMENT
        return start

    for column in root.walk():
        length, number = int(measured.counts[column.domain]), column.number
        bits = -(-length // 8)
        if column.nullable:
            validity[number] = take(bits)
        match column.storage:
            case Storage.BITS:
                values[number] = take(bits)
            case Storage.FIXED:
                values[number] = take(length * column.width)
            case Storage.BYTES | Storage.ITEMS:
                values[number] = take(4 * (length + 1))
        if column.storage is Storage.BYTES:
            texts[number] = take(int(measured.sizes[number]))
    buffers = Buffers(
        counts=np.zeros_like(measured.counts),
        most_counts=measured.counts,
        sizes=np.zeros_like(measured.sizes),
        most_sizes=measured.sizes,
        validity=validity,
        values=values,
        texts=texts,
        left_items=measured.left_items,
        left_bytes=np.array([MAX_LONG]),
    )
    return buffers, position


def _assemble(program: Program) -> Code:
    return Code(
        program=read_only(np.array(program.operations, np.int64).reshape(-1)),
        table=read_only(np.array(program.table, np.int64)),
        constants=read_only(np.frombuffer(bytes(program.constants), np.uint8)),
    )


def _width(column: Column) -> int:
    return column.width + 1 + (4 if column.storage in (Storage.BYTES, Storage.ITEMS) else 0)
