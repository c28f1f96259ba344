"""Reads of one partition's segments: chunks of whole batches from files, decoded column by column.

Files may change between plan and read. `LogReader` handles segments that were renamed, rolled or compacted; the caller
provides another source for records that are gone. The plan has the aborted transactions, whose batches are skipped by
their headers. It has them from the transaction indexes, which may lack an entry. A read of committed records looks at
the markers of all transactions whose records it returns, also behind its range, and fails if such an entry is missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from sparklog.arrow.filesystems import open_reader
from sparklog.base.errors import CorruptRecord, OffsetOutOfRange
from sparklog.base.fs import Buffer
from sparklog.base.ids import TopicPartition
from sparklog.log.reader import LogReader
from sparklog.log.segment.ranges import ReadRange
from sparklog.log.segment.scan import place_at
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges, SeenTransactions
from sparklog.records.arrow import decode_batches

GONE = (OffsetOutOfRange, FileNotFoundError)
"""Errors of a read of a segment or folder that no longer exists."""
PLANS = 5
"""Maximum attempts at a plan while segments are deleted."""
CHUNK_BYTES = 2 << 20
"""Bytes per read: twenty thousand records of 100 bytes. Half and double were a tenth slower in Spark."""
GROUP_BYTES = 4 << 20
"""Bytes decoded at once if records are compressed."""
Result = TypeVar("Result")


def settled(plan: Callable[[], Result]) -> Result:
    """Return the result of `plan`, repeated if segments are deleted between the lookup of the log start and the cut.

    Raises OffsetOutOfRange or FileNotFoundError if that happens `PLANS` times.
    """
    for _ in range(PLANS - 1):
        try:
            return plan()
        except GONE:
            continue
    return plan()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """The read of a partition: its records and their source."""

    partition: TopicPartition
    folder: str
    columns: Sequence[str]
    is_committed_only: bool
    oldest_ms: int | None = None
    """Batches with only older records can be skipped."""
    aborted: AbortedRanges = field(default=NONE_ABORTED)

    def read(
        self, pieces: Sequence[ReadRange], elsewhere: Callable[[ReadRange], Iterator[pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of the pieces, in order.

        elsewhere: yields the records of a piece that the folder may no longer have

        Raises CorruptRecord and OSError.
        """

        def decoded(data: Buffer, piece: ReadRange, seen: SeenTransactions | None) -> Iterator[pa.RecordBatch]:
            for part in (data,) if self.oldest_ms is None else not_older(data, self.oldest_ms):
                yield from self._decoded(part, piece, seen)

        return self.walk(pieces, decoded, elsewhere)

    def walk(
        self,
        pieces: Sequence[ReadRange],
        take: Callable[[Buffer, ReadRange, SeenTransactions | None], Iterable[Result]],
        elsewhere: Callable[[ReadRange], Iterable[Result]],
    ) -> Iterator[Result]:
        """Yield the results of `take` for each chunk of whole batches, and of `elsewhere` for missing parts, in order.

        take: gets a chunk, its piece, and the object to which it adds transactions; None for uncommitted records

        Raises as `read` does.
        """
        reader = open_reader(self.folder)
        seen = SeenTransactions() if self.is_committed_only else None
        for piece in pieces:
            last: Buffer = b""
            try:
                for last in reader.read(piece, CHUNK_BYTES):
                    yield from take(last, piece, seen)
            except GONE:
                yield from elsewhere(piece._replace(offset_from=max(piece.offset_from, end_of(last))))
        if seen is not None and (seen.aborts or seen.open):
            self._check_listed(reader, seen, pieces[-1].offset_to)

    def read_left(self, missing: ReadRange) -> tuple[list[str], Iterator[pa.RecordBatch]]:
        """Return the lost offsets of a piece that its segment no longer has, and the records in other segments."""
        reader = open_reader(self.folder)
        try:
            start, end = reader.log_start_offset, reader.end_offset()
        except GONE:
            start = end = missing.offset_to  # the folder is gone, or empty
        low, high = max(missing.offset_from, start), min(missing.offset_to, end)
        which = f"{self.partition}: of the offsets {missing.offset_from} to {missing.offset_to - 1}, those "
        lost = []
        if low > missing.offset_from:
            lost.append(f"{which}below {min(low, missing.offset_to)} are gone")
        if high < missing.offset_to:
            lost.append(f"{which}from {high} on are gone")
        pieces = reader.cut(low, high, 1) if low < high else []
        return lost, (
            records
            for piece in pieces
            for data in reader.read(piece, CHUNK_BYTES)
            for records in self._decoded(data, piece)
        )

    def _decoded(
        self, data: Buffer, wanted: ReadRange, seen: SeenTransactions | None = None
    ) -> Iterator[pa.RecordBatch]:
        return decode_batches(
            data,
            columns=self.columns,
            offset_from=wanted.offset_from,
            offset_to=wanted.offset_to,
            timestamp_unit="us",
            group_bytes=GROUP_BYTES,
            aborted=self.aborted,
            seen=seen,
        )

    def _check_listed(self, reader: LogReader, seen: SeenTransactions, offset_to: int) -> None:
        """Raise CorruptRecord if records below `offset_to` were read whose abort marker is missing in the indexes.

        A broker without file descriptors or disk space writes an entry later than the marker. A marker without records
        is no error: a producer may abort a transaction without records here.
        """
        with contextlib.suppress(*GONE):
            behind = reader.aborts_behind(offset_to, seen.open) if seen.open else []
            unlisted = self.aborted.unlisted([*seen.aborts, *behind])
            if not unlisted:
                return
            offsets = [offset for _, offset in unlisted]
            for found in reader.aborted_by_markers(min(offsets), max(offsets) + 1):
                if (found.producer_id, found.last_offset) in unlisted and found.first_offset < offset_to:
                    raise CorruptRecord(
                        f"{self.partition}: the transaction that was aborted at offset {found.last_offset} is missing "
                        f"in the transaction index in {self.folder}, so its records cannot be omitted"
                    )


def not_older(data: Buffer, timestamp_ms: int) -> Iterator[Buffer]:
    """Yield the batches in `data` with a record not older than `timestamp_ms`; adjacent batches together."""
    view = memoryview(data)
    start = at = 0
    while place := place_at(data, at, at):
        if place.max_timestamp_ms < timestamp_ms and place.magic > 0:  # messages of format v0 have no timestamp
            if start < at:
                yield view[start:at]
            start = place.end
        at = place.end
    if start < at:
        yield view[start:at]


def end_of(data: Buffer) -> int:
    """Return the offset after the last batch in `data`; 0 if there is none."""
    at = end = 0
    while place := place_at(data, at, at):
        at, end = place.end, place.last_offset + 1
    return end
