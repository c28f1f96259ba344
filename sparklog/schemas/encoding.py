"""Encodes an Arrow column by a program of `encode_kernels`.

    ColumnSource       a part of a column that a program reads. Arrow's own functions may convert the part first, for
                       example numbers to texts for JSON
    EncodingProgram    a program while it is compiled, and its sources in the order of their numbers
    Encoder            runs a program over columns

Memory besides the column: a copy of its buffers, and the bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.base.errors import MalformedRecord, SchemaError
from sparklog.records.kernels import MAX_INT
from sparklog.schemas import encode_kernels as kernels
from sparklog.schemas.column_kernels import read_only
from sparklog.schemas.columns import MOST_COLUMNS, nullable_within
from sparklog.schemas.encode_kernels import ColumnMemory, EncodeCode, EncodeState

MOST_OPERATIONS = 200_000
PIECE_BYTES = MAX_INT
"""Bodies of an array have at most this many bytes, the limit of Arrow's offsets."""

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
Ready = Callable[[pa.Array], pa.Array]


def _as_it_is(array: pa.Array) -> pa.Array:
    return array


@dataclass(slots=True, kw_only=True)
class ColumnSource:
    """A part of a column that a program reads."""

    number: int
    domain: int
    path: str
    ready: Ready = _as_it_is
    items: int = -1
    """Domain of the items of a list or map."""
    parts: list[tuple[int, ColumnSource]] = field(default_factory=list)
    """Fields of a struct by their number, the item of a list (0), key (0) and value (1) of a map."""

    def read_as(self, ready: Ready) -> None:
        """Convert the part by a function before the program reads it."""
        self.ready = ready


class EncodingProgram:
    """A program that is being compiled."""

    def __init__(self) -> None:
        self.operations: list[list[int]] = []
        self.constants = bytearray()
        self.sources: list[ColumnSource] = []
        self.domains = 1
        self.levels = 1
        """The deepest nesting of lists."""
        self.depths = 1
        """The deepest nesting of messages with sizes."""
        self.sized: list[ColumnSource] = []
        """For each place where such a message begins, a source with at least as many values as messages."""
        self._level = 0
        self._depth = 0

    def source(self, path: str, within: ColumnSource | None = None, part: int = 0) -> ColumnSource:
        """Return a new source: the column itself, or a part of a source. Raises SchemaError if there are too many."""
        if len(self.sources) >= MOST_COLUMNS:
            raise SchemaError(f"the schema has more than {MOST_COLUMNS} columns")
        domain = 0 if within is None else within.items if within.items >= 0 else within.domain
        made = ColumnSource(number=len(self.sources), domain=domain, path=path)
        if within is not None:
            within.parts.append((part, made))
        self.sources.append(made)
        return made

    @property
    def next(self) -> int:
        """The number of the operation that is compiled next."""
        return len(self.operations)

    def emit(self, op: int, of: ColumnSource | None = None, *operands: int) -> list[int]:
        """Append an operation, and return it. Raises SchemaError if there are too many."""
        if len(self.operations) >= MOST_OPERATIONS:
            raise SchemaError(f"the schema needs more than {MOST_OPERATIONS} operations: it is too large")
        where = (of.number, of.domain) if of else (-1, 0)
        operation = [op, *where, *operands]
        operation += [0] * (kernels.WIDTH - len(operation))
        self.operations.append(operation)
        return operation

    def literal(self, text: bytes, op: int = kernels.LITERAL) -> None:
        """Write bytes of the program: a LITERAL, or with OPEN, FIELD and CLOSE."""
        start = len(self.constants)
        self.constants += text
        self.emit(op, None, start, len(self.constants))

    def skip_null(self, of: ColumnSource, instead: bytes = b"") -> list[int]:
        """If a source is null, write bytes and jump; return the operation, whose operand C takes the target."""
        start = len(self.constants)
        self.constants += instead
        return self.emit(kernels.SKIP_NULL, of, start, len(self.constants))

    def each(self, of: ColumnSource, body: Callable[[], None], *, count: bool) -> None:
        """Run the program of `body` for each item of a list or map.

        count: write the number of items before the first, unless there is none
        """
        of.items, level = self.domains, self._level
        self.domains += 1
        self._level += 1
        self.levels = max(self.levels, self._level)
        loop = self.emit(kernels.ITEMS, of, level, 0, of.items, int(count))
        start = self.next
        body()
        self.emit(kernels.NEXT, of, level, start, of.items)
        loop[kernels.B] = self.next
        self._level = level

    def with_size(self, of: ColumnSource, body: Callable[[], None]) -> None:
        """Write the size of `body`'s bytes before them.

        of: a source with at least as many values as there are sizes
        """
        depth = self._depth
        self._depth += 1
        self.depths = max(self.depths, self._depth)
        self.sized.append(of)
        self.emit(kernels.BEGIN_SIZED, None, depth)
        body()
        self.emit(kernels.END_SIZED, None, depth)
        self._depth = depth

    def mark(self, of: ColumnSource) -> Callable[[], None]:
        """Return a function that undoes all that is compiled from now on, for one source and its parts."""
        operations, constants, sources = len(self.operations), len(self.constants), len(self.sources)
        domains, level = self.domains, self._level
        parts, items = len(of.parts), of.items

        def undo() -> None:
            del self.operations[operations:]
            del self.constants[constants:]
            del self.sources[sources:]
            del of.parts[parts:]
            of.items = items
            self.domains, self._level = domains, level

        return undo


class Encoder:
    """Writes columns of one Arrow type. The first source of the program is the column itself."""

    def __init__(self, of: pa.DataType, encoding: EncodingProgram) -> None:
        encoding.emit(kernels.END)
        self.type = nullable_within(of)
        """Columns may differ from it in nullability: the program checks nulls."""
        self._encoding = encoding
        self._code = EncodeCode(
            program=read_only(np.array(encoding.operations, np.int64).reshape(-1)),
            constants=read_only(np.frombuffer(bytes(encoding.constants), np.uint8)),
        )

    def encode(self, column: pa.Array, *, piece_bytes: int = PIECE_BYTES) -> pa.ChunkedArray:
        """Return the bodies, in arrays of at most `piece_bytes`; null where the column is.

        Raises BadRow for the first row that cannot be written.
        """
        if nullable_within(column.type) != self.type:  # a cast of nullability alone makes nulls in slices unreadable
            column = column.cast(self.type)
        if not len(column):
            return pa.chunked_array([], pa.binary())
        encoding = self._encoding
        memory, lengths = _gather(encoding.sources, column)
        state = EncodeState(
            places=np.zeros(encoding.domains, np.int64),
            ends=np.zeros(encoding.levels, np.int64),
            fault=np.zeros(2, np.int64),
            sizes=np.zeros(sum(lengths[each.number] for each in encoding.sized), np.int64),
            cursor=np.zeros(1, np.int64),
            sized=np.zeros(encoding.depths, np.int64),
            begins=np.zeros(encoding.depths, np.int64),
        )
        ends = np.zeros(len(column), np.int64)
        stopped = kernels.encode_columns(self._code, memory, state, 0, ends, np.empty(0, np.uint8), 0)
        if stopped < len(column):
            fault, number = state.fault.tolist()
            raise BadRow(stopped, encoding.sources[number].path, kernels.FAULTS[fault])
        state.cursor[0] = 0
        return pa.chunked_array(list(self._pieces(column, memory, state, ends, piece_bytes)), pa.binary())

    def _pieces(
        self, column: pa.Array, memory: ColumnMemory, state: EncodeState, ends: Longs, piece_bytes: int
    ) -> Iterator[pa.Array]:
        first, before = 0, 0
        while first < len(column):
            last = int(np.searchsorted(ends, before + piece_bytes, "right"))
            if last == first:
                raise BadRow(first, "", f"it has more than {piece_bytes} bytes")
            target = np.empty(int(ends[last - 1]) - before, np.uint8)
            offsets = np.zeros(last - first, np.int64)
            kernels.encode_columns(self._code, memory, state, first, offsets, target, 1)
            yield _bodies(column.slice(first, last - first), offsets, target)
            first, before = last, int(ends[last - 1])


class BadRow(MalformedRecord):
    """A row that cannot be encoded."""

    def __init__(self, row: int, path: str, reason: str) -> None:
        super().__init__(f"row {row}: {path or 'the value'}: {reason}")
        self.row = row
        self.path = path
        self.reason = reason


def _bodies(column: pa.Array, ends: Longs, target: Bytes) -> pa.Array:
    offsets = np.zeros(len(column) + 1, np.int32)
    offsets[1:] = ends
    validity = column.is_valid().buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(pa.binary(), len(column), [validity, pa.py_buffer(offsets), pa.py_buffer(target)])


class _BufferBlock:
    """Collects buffers side by side."""

    def __init__(self) -> None:
        self._parts: list[Bytes] = []
        self._size = 0

    def add(self, part: Bytes) -> int:
        """Add bytes; return their position in the block."""
        self._parts.append(part)
        self._size += len(part)
        return self._size - len(part)

    def data(self) -> Bytes:
        return np.concatenate([*self._parts, np.zeros(8, np.uint8)])


def _gather(sources: list[ColumnSource], column: pa.Array) -> tuple[ColumnMemory, list[int]]:
    """Return the buffers of all sources of a column, and the number of values of each."""
    block = _BufferBlock()
    validity, values, texts = (np.full(len(sources), -1, np.int64) for _ in range(3))

    lengths = [0] * len(sources)

    def add(source: ColumnSource, array: pa.Array) -> None:
        array = source.ready(array)
        lengths[source.number] = len(array)
        buffers = array.buffers()
        number = source.number
        if array.null_count and buffers[0] is not None:
            validity[number] = _add_bits(block, buffers[0], array)
        if pa.types.is_boolean(array.type):
            values[number] = _add_bits(block, buffers[1], array)
        elif pa.types.is_struct(array.type):
            for part, child in source.parts:
                add(child, array.field(part))
        elif pa.types.is_list(array.type) or pa.types.is_map(array.type):
            first, last, values[number] = _add_offsets(block, buffers[1], array)
            for part, child in source.parts:
                items = (array.keys, array.items)[part] if pa.types.is_map(array.type) else array.values
                add(child, items.slice(first, last - first))
        elif pa.types.is_binary(array.type) or pa.types.is_string(array.type):
            first, last, values[number] = _add_offsets(block, buffers[1], array)
            texts[number] = block.add(_bytes(buffers[2])[first:last])
        elif not pa.types.is_null(array.type):
            width = array.type.bit_width // 8
            start = array.offset * width
            values[number] = block.add(_bytes(buffers[1])[start : start + len(array) * width])

    add(sources[0], column)
    return ColumnMemory(*map(read_only, (block.data(), validity, values, texts))), lengths


def _bytes(buffer: pa.Buffer | None) -> Bytes:
    return np.frombuffer(buffer if buffer is not None else b"", np.uint8)


def _add_bits(block: _BufferBlock, buffer: pa.Buffer, array: pa.Array) -> int:
    """Add bits; return the position of the first one in the block."""
    start = array.offset // 8
    first = block.add(_bytes(buffer)[start : -(-(array.offset + len(array)) // 8)])
    return 8 * first + int(array.offset) % 8


def _add_offsets(block: _BufferBlock, buffer: pa.Buffer | None, array: pa.Array) -> tuple[int, int, int]:
    """Add offsets; return the first and the last one, and the position of the offsets in the block."""
    if not len(array):
        return 0, 0, block.add(np.zeros(4, np.uint8))
    offsets = _bytes(buffer).view(np.int32)[array.offset : array.offset + len(array) + 1]
    return int(offsets[0]), int(offsets[-1]), block.add((offsets - offsets[0]).view(np.uint8))
