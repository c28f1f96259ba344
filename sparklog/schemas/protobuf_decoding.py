"""Decodes a column of Protobuf bodies to an Arrow array of one message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from sparklog.schemas import protobuf_kernels as kernels
from sparklog.schemas.column_kernels import Buffers, read_only
from sparklog.schemas.column_passes import LIMIT_BYTES, Bytes, Longs, TwoPassDecoder
from sparklog.schemas.protobuf import ProtobufMessage, ProtobufReadOptions
from sparklog.schemas.protobuf_kernels import MessageFrames, ProtobufCode, ProtobufRows
from sparklog.schemas.protobuf_program import MessageProgram


class ProtobufDecoder:
    """Reads bodies as a message, whatever version of the message has written them.

    Raises SchemaError for a message with more columns than `columns.MOST_COLUMNS`.
    """

    def __init__(
        self, message: ProtobufMessage, options: ProtobufReadOptions, *, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        program = MessageProgram(message, options)
        self._code = _assemble(program)
        self._domains = program.layout.domains
        self._passes = TwoPassDecoder(program.layout, limit_bytes)
        self.type: pa.DataType = program.layout.root.type

    def decode(
        self, data: Bytes, starts: Longs, ends: Longs, is_null: Any, faults: Bytes
    ) -> Iterator[tuple[pa.Array, int]]:
        """Yield arrays of the rows, in order, each with the number of rows before it.

        starts, ends: the range of each body in `data`
        is_null: bool of each row
        faults: as of `AvroDecoder.decode`
        """
        body = read_only(data)
        frames = MessageFrames(
            **{name: np.zeros(kernels.MOST_FRAMES, np.int64) for name in ("ends", "nodes", "guesses")},
            groups=np.zeros(kernels.MOST_GROUPS, np.int64),
            lows=np.zeros(self._domains, np.int64),
        )

        def walk(first: int, end: int, buffers: Buffers, target: Bytes, fill: int) -> int:
            rows = ProtobufRows(*(read_only(part[:end]) for part in (starts, ends, is_null)))
            return int(kernels.decode_protobuf(body, self._code, frames, rows, first, faults, buffers, target, fill))

        yield from self._passes.arrays(walk, len(starts), 1)


def _assemble(program: MessageProgram) -> ProtobufCode:
    domains, endings = program.domains()
    return ProtobufCode(
        **{name: _table(rows) for name, rows in (
            ("nodes", program.nodes), ("fields", program.fields), ("domains", domains), ("endings", endings),
            ("columns", program.columns()),
        )},
        table=read_only(np.array(program.table, np.int64)),
        constants=read_only(np.frombuffer(bytes(program.constants), np.uint8)),
    )  # fmt: skip


def _table(rows: list[list[int]]) -> Any:
    return read_only(np.array(rows, np.int64).reshape(-1))
