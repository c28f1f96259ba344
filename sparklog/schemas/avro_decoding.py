"""Decodes a column of Avro bodies to an Arrow array of the reader's schema."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from sparklog.schemas import avro_kernels as kernels
from sparklog.schemas.avro import AvroType
from sparklog.schemas.avro_kernels import AvroCode, AvroRows
from sparklog.schemas.column_kernels import Buffers, read_only
from sparklog.schemas.column_passes import LIMIT_BYTES, Bytes, Longs, TwoPassDecoder
from sparklog.schemas.columns import lay_out
from sparklog.schemas.resolution import ResolutionProgram

NULL_ENTRY = 0
"""The entry of null rows."""


class AvroDecoder:
    """Reads bodies of any number of writers' schemas as one reader's schema.

    Raises SchemaError for a reader's schema with more columns than `columns.MOST_COLUMNS`.
    """

    def __init__(self, reader: AvroType, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._layout = lay_out(reader)
        self._program = ResolutionProgram(reader, self._layout)
        self._passes = TwoPassDecoder(self._layout, limit_bytes)
        self._code: AvroCode | None = None

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of decoded arrays."""
        return self._layout.root.type

    def add_writer(self, schema: AvroType, *, bare_bytes: bool = False) -> int:
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
        faults: one of `column_kernels.FAULTS` for each malformed row, else 0. A row that has a fault already stays
            null. The other faults of an array are set before it is yielded
        """
        if self._code is None:
            self._code = _assemble(self._program)
        code, body = self._code, read_only(data)

        def walk(first: int, end: int, buffers: Buffers, target: Bytes, fill: int) -> int:
            rows = AvroRows(*(read_only(part[:end]) for part in (starts, ends, entries)))
            return int(kernels.decode_avro(body, code, rows, first, faults, buffers, target, fill))

        yield from self._passes.arrays(walk, len(starts), self._program.levels)


def _assemble(program: ResolutionProgram) -> AvroCode:
    return AvroCode(
        program=read_only(np.array(program.operations, np.int64).reshape(-1)),
        table=read_only(np.array(program.table, np.int64)),
        constants=read_only(np.frombuffer(bytes(program.constants), np.uint8)),
    )
