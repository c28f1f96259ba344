"""Typed keys and values: the rows of a read, decoded column by column.

The steps of the rows of a task:

    binary columns ──▶ decode          keys and values, each by its format
                   ──▶ mode            FAILFAST: a malformed row is an error · DROPMALFORMED: it is omitted
                                       PERMISSIVE: it is null, and `_corrupt_record` has its bytes and the reason
                   ──▶ dead letters    a copy of each malformed record is written before its rows are returned
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparklog.arrow.options import ParseMode
from sparklog.base.errors import MalformedRecord
from sparklog.base.ids import TopicPartition

if TYPE_CHECKING:
    from sparklog.schemas.formats import Format
    from sparklog.schemas.pieces import DecodedPiece

CORRUPT = pa.struct([("key", pa.binary()), ("value", pa.binary()), ("reason", pa.string())])


class DeadLetterWriter(Protocol):
    """A writer of the malformed records of one task."""

    def write(self, records: pa.RecordBatch, partition: TopicPartition, reasons: Sequence[str]) -> None:
        """Copy the records, each with the reason of its failure, and wait until the copies are durable."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class DeadLetterTarget(Protocol):
    """The target of copies of malformed records."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns of records that a writer needs."""
        ...

    def open(self) -> DeadLetterWriter:
        """Return a writer for one task."""
        ...


@dataclass(frozen=True, slots=True)
class DecodingPlan:
    """The typed columns of a read, sent to tasks with its plan."""

    formats: Mapping[str, Format]
    mode: ParseMode
    corrupt_column: str
    dead_letters: DeadLetterTarget | None = None
    """Target of malformed records. With a target, all keys and values are decoded, also for other columns."""

    def needs(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of records to read for these columns of the table."""
        wanted = [name for name in columns if name != self.corrupt_column]
        typed = self._typed(columns)
        if typed:
            wanted += ["offset", *typed]
        if self.corrupt_column in columns:
            wanted += ["key", "value"]
        if any(self.formats[name].reads_headers for name in typed):
            wanted.append("headers")
        if self.dead_letters is not None:
            wanted += self.dead_letters.needs
        return tuple(dict.fromkeys(wanted))

    def start(self, columns: Sequence[str]) -> RowDecoder:
        """Return the decoder of these columns of the table for one task."""
        return RowDecoder(self, self._typed(columns))

    def _typed(self, columns: Sequence[str]) -> list[str]:
        everything = self.corrupt_column in columns or self.dead_letters is not None
        return [name for name in self.formats if everything or name in columns]


class RowDecoder:
    """The decoder of the records of one task."""

    def __init__(self, decoding: DecodingPlan, columns: Sequence[str]) -> None:
        self._decoders = {name: decoding.formats[name].decoder(name) for name in columns}
        self._decoding = decoding
        self._dead_letters = decoding.dead_letters.open() if decoding.dead_letters is not None else None

    def close(self) -> None:
        """Disconnect from the target of dead letters, if it was used."""
        if self._dead_letters is not None:
            self._dead_letters.close()

    def decode(
        self, records: pa.RecordBatch, partition: TopicPartition
    ) -> Iterator[tuple[pa.RecordBatch, Mapping[str, pa.Array]]]:
        """Yield parts of the records with their typed columns, after writing their dead letters.

        Raises MalformedRecord with mode = FAILFAST, and the errors of the writer of dead letters.
        """
        for part, pieces in self._pieces(records, list(self._decoders)):
            malformed = np.zeros(part.num_rows, bool)
            for piece in pieces.values():
                malformed |= piece.faults != 0
            arrays = {name: piece.values for name, piece in pieces.items()}
            if not malformed.any():
                yield part, {**arrays, self._decoding.corrupt_column: pa.nulls(part.num_rows, CORRUPT)}
                continue
            rows = np.flatnonzero(malformed)
            if self._decoding.mode is ParseMode.FAILFAST:
                self._raise_malformed(part, partition, pieces, int(rows[0]))
            reasons = {row: _reason(pieces, row) for row in rows.tolist()}
            if self._dead_letters is not None:
                self._dead_letters.write(part.filter(pa.array(malformed)), partition, list(reasons.values()))
            if self._decoding.mode is ParseMode.DROPMALFORMED:
                good = pa.array(~malformed)
                yield part.filter(good), {name: array.filter(good) for name, array in arrays.items()}
            else:
                yield part, {**arrays, self._decoding.corrupt_column: _corrupt_column(part, reasons, malformed)}

    def _pieces(
        self, records: pa.RecordBatch, columns: Sequence[str]
    ) -> Iterator[tuple[pa.RecordBatch, dict[str, DecodedPiece]]]:
        """Yield the records in parts that fit into one array of each typed column."""
        if not columns:
            yield records, {}
            return
        name = columns[0]
        headers = records.column("headers") if self._decoding.formats[name].reads_headers else None
        for piece in self._decoders[name].decode(records.column(name), headers):
            rows = records.slice(piece.first, len(piece.values))
            done = 0
            for part, others in self._pieces(rows, columns[1:]):
                yield part, {name: piece.slice(done, part.num_rows), **others}
                done += part.num_rows

    def _raise_malformed(
        self, part: pa.RecordBatch, partition: TopicPartition, pieces: Mapping[str, DecodedPiece], row: int
    ) -> None:
        offset = part.column("offset")[row].as_py()
        raise MalformedRecord(
            f"{partition} offset {offset}: {_reason(pieces, row)}. mode = PERMISSIVE or DROPMALFORMED reads on"
        )


def _reason(pieces: Mapping[str, DecodedPiece], row: int) -> str:
    return "; ".join(f"the {name}: {piece.explain(row)}" for name, piece in pieces.items() if piece.faults[row])


def _corrupt_column(part: pa.RecordBatch, reasons: Mapping[int, str], malformed: NDArray[np.bool_]) -> pa.Array:
    """Return the column with the bytes of malformed records, null for the others."""
    is_bad = pa.array(malformed)
    names = set(part.schema.names)
    kept = [
        pc.if_else(is_bad, part.column(name), pa.scalar(None, pa.binary()))
        if name in names
        else pa.nulls(part.num_rows, pa.binary())
        for name in ("key", "value")
    ]
    arrays = [*kept, pa.array(map(reasons.get, range(part.num_rows)), pa.string())]
    return pa.StructArray.from_arrays(arrays, fields=list(CORRUPT), mask=pc.invert(is_bad))
