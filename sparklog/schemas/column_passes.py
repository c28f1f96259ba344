"""Decodes rows into Arrow arrays in two passes: a loop measures the columns, memory is laid out, and the loop fills it.

Memory besides the data: at most `limit_bytes` of columns at once. A row that alone needs more is malformed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.base.errors import CorruptRecord
from sparklog.records.kernels import MAX_LONG
from sparklog.schemas.column_kernels import Buffers
from sparklog.schemas.columns import ROWS, Column, ColumnLayout, Storage

LIMIT_BYTES = 256 * 1024 * 1024

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
Walk = Callable[[int, int, Buffers, Bytes, int], int]
"""Walks rows: the first, the one after the last, the buffers, the target, and 1 to fill it. Returns the row after the
last that it has walked, or another number if the second pass meets other bytes."""

_ALIGNMENT = 64
_NOTHING = np.empty(0, np.uint8)


class TwoPassDecoder:
    """Decodes rows into Arrow arrays of one layout."""

    def __init__(self, layout: ColumnLayout, limit_bytes: int) -> None:
        self._layout = layout
        self._limit_bytes = limit_bytes
        in_rows = [each for each in layout.root.walk() if each.domain == ROWS]
        self._rows_at_once = max(1, limit_bytes // (sum(each.fixed_bytes for each in in_rows) + 1))

    def arrays(self, walk: Walk, rows: int, levels: int) -> Iterator[tuple[pa.Array, int]]:
        """Yield arrays of the rows, in order, each with the number of rows before it.

        levels: the depth of lists within lists
        """
        first = 0
        while first < rows:
            before = first
            first, array = self._pass(walk, first, min(rows, first + self._rows_at_once), levels)
            yield array, before

    def _pass(self, walk: Walk, first: int, end: int, levels: int) -> tuple[int, pa.Array]:
        """Decode the rows from `first` on, as many as fit; return the row after the last, and their array."""
        layout = self._layout
        measured = Buffers(
            counts=np.zeros(layout.domains, np.int64),
            most_counts=np.full(layout.domains, self._limit_bytes),
            sizes=np.zeros(layout.columns, np.int64),
            most_sizes=np.full(layout.columns, self._limit_bytes),
            **{name: np.zeros(layout.columns, np.int64) for name in ("validity", "values", "texts")},
            left_items=np.zeros(levels, np.int64),
            left_bytes=np.array([self._limit_bytes]),
        )
        last = walk(first, end, measured, _NOTHING, 0)
        buffers, size = _place(layout.root, measured)
        target = np.zeros(size, np.uint8)
        if walk(first, last, buffers, target, 1) != last:
            raise CorruptRecord("the bytes of a column changed while they were decoded")
        return last, _ArrowArrays(target, buffers).of(layout.root)


class _ArrowArrays:
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
    """Return the positions of buffers of the measured sizes, and the size of the memory for all of them."""
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
