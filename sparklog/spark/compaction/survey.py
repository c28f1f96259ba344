"""The facts that a compaction needs before it rewrites a range of segments, from batch headers and markers.

ends            the last offset of each segment: a replacement must keep it
last batches    of each producer that the broker knows. They stay, if only as headers, so that the broker recognizes
                batches that the producer sends again, and fences older epochs. If the producer has no batch with
                records in its newest epoch, its last batch is a marker of this epoch, as after each transaction of
                version 2
transactions    the aborted ones, and the markers without batches. A transaction may end behind the range: the survey
                reads on, up to the last stable offset, until all transactions have ended
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparklog.base.errors import CorruptRecord, InvalidRecord
from sparklog.base.ids import TopicPartition
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.records import header_kernels as headers
from sparklog.records.batch import CONTROL_BIT, MAGIC, TRANSACTIONAL_BIT
from sparklog.records.transaction_survey import EndedTransactions, TransactionSurvey
from sparklog.spark.segment_files import CHUNK_BYTES, read_segment

_TABLE_ROWS = 16 * 1024
_EPOCH_BYTES = np.arange(51, 53)
Longs = NDArray[np.int64]


class SegmentSurvey:
    """Survey of a range of a partition's segments. Take every chunk of them, in order."""

    def __init__(self, producer_ids: Collection[int]) -> None:
        self._producer_ids = np.array(sorted(producer_ids), np.int64)
        self._last_batches: dict[int, tuple[int, bool, int]] = {}  # epoch, whether it has records, base offset
        self._ends: dict[int, int] = {}  # by the base offset of segments that have batches
        self._transactions = TransactionSurvey()

    @property
    def has_transactions(self) -> bool:
        """Whether a chunk taken so far has a transactional batch or a marker."""
        return self._transactions.has_transactions

    @property
    def last_batches(self) -> list[int]:
        """Base offsets of the last batches of known producers."""
        return [base for _, _, base in self._last_batches.values()]

    def end_of(self, bases: Iterable[int]) -> int | None:
        """Return the last offset of the segments with these base offsets; None if they have no batch."""
        return max((self._ends[base] for base in bases if base in self._ends), default=None)

    def note_end(self, base_offset: int, last_offset: int | None) -> None:
        """Note the last offset of a segment that replaces others."""
        if last_offset is not None:
            self._ends[base_offset] = last_offset

    def take(self, base_offset: int, data: bytes) -> None:
        """Survey a chunk of whole batches of the segment. Raises CorruptRecord."""
        for table in header_tables(data):
            self.note_end(base_offset, int(table[-1, headers.LAST_OFFSET]))
            self._note_last_batches(data, table)
            self._transactions.take(data, table)

    def _note_last_batches(self, data: bytes, table: Longs) -> None:
        known = table[np.isin(table[:, headers.PRODUCER_ID], self._producer_ids)]
        producers, bases = known[:, headers.PRODUCER_ID], known[:, headers.BASE_OFFSET]
        epochs = np.frombuffer(data, np.uint8)[known[:, headers.POSITION, None] + _EPOCH_BYTES].view(">i2")[:, 0]
        has_records = known[:, headers.ATTRIBUTES] & CONTROL_BIT == 0
        order = np.lexsort((bases, has_records, epochs, producers))
        last = order[np.append(np.flatnonzero(np.diff(producers[order])), len(order) - 1)] if len(order) else order
        columns = (producers, epochs, has_records, bases)
        for producer, *batch in zip(*(column[last].tolist() for column in columns), strict=True):
            self._last_batches[producer] = max(tuple(batch), self._last_batches.get(producer, (-1, False, -1)))

    def resolve(self, partition: TopicPartition, chunks: Iterable[bytes], last_stable_offset: int) -> None:
        """Read the batches behind the range until its transactions have ended.

        Raises InvalidRecord if one of them has not ended below the last stable offset, and as `chunks` does.
        """
        behind = iter(chunks)
        while self._transactions.open and (data := next(behind, None)) is not None:
            for table in header_tables(data):
                self._transactions.resolve(data, table[table[:, headers.LAST_OFFSET] < last_stable_offset])
        for producer, offset in self._transactions.open.items():
            raise InvalidRecord(
                f"{partition}: the transaction of producer {producer} that began at offset {offset} has not ended "
                f"below the last stable offset {last_stable_offset}"
            )

    def transactions(self) -> EndedTransactions:
        """Return the transactions of the range."""
        return self._transactions.ended()


def chunks_behind(
    log: LogDescription, segments: Sequence[SegmentDescription], client: Mapping[str, Any], chunk_bytes: int
) -> Iterator[bytes]:
    """Yield the log behind some segments, up to the last stable offset, as `read_segment` does."""
    for segment in log.segments:
        if segments[-1].next_offset <= segment.base_offset < log.last_stable_offset:
            yield from read_segment(log, segment, client, chunk_bytes)


def transactions_in(
    log: LogDescription, segment: SegmentDescription, client: Mapping[str, Any], chunk_bytes: int = CHUNK_BYTES
) -> EndedTransactions:
    """Return the transactions of one segment, as far as its own batches need them.

    Raises as `read_segment` and `SegmentSurvey.resolve` do.
    """
    survey = SegmentSurvey(())
    for data in read_segment(log, segment, client, chunk_bytes):
        survey.take(segment.base_offset, data)
    survey.resolve(log.partition, chunks_behind(log, (segment,), client, chunk_bytes), log.last_stable_offset)
    return survey.transactions()


def has_transactions(data: bytes) -> bool:
    """Return whether a batch among whole batches is transactional, or a marker. Raises CorruptRecord."""
    return any(
        (table[table[:, headers.MAGIC] == MAGIC, headers.ATTRIBUTES] & (TRANSACTIONAL_BIT | CONTROL_BIT)).any()
        for table in header_tables(data)
    )


def header_tables(data: bytes) -> Iterator[Longs]:
    """Yield the headers of whole batches, in tables of header_kernels. Raises CorruptRecord for other bytes."""
    array = np.frombuffer(data, np.uint8)  # read-only, as `data` is
    position = 0
    while position < len(data):
        table = np.empty((_TABLE_ROWS, headers.COLUMNS), np.int64)
        rows, position, stopped = headers.scan_headers(array, position, table)
        if rows:
            yield table[:rows]
        if stopped != headers.TABLE_FULL and position < len(data):
            raise CorruptRecord(f"no whole batch {position} bytes after a batch's end")
