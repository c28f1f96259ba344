"""The transactions of a range of a log, for its cleaner, from batch headers and markers (KIP-98).

A transactional batch belongs to the transaction that the next marker of its producer ends. A marker stays in the log as
long as a batch of its transaction does, so no transaction index is needed. The range begins where the log does: the
remaining batches of a transaction show it even if the first ones are gone.

    take       add the batches of the range, in order
    resolve    find the markers of transactions that are open at the end of the range, in the batches behind it
    ended      return the transactions of the range; below the last stable offset, all have ended

The work is a few array operations for each chunk; checksums of markers are checked one by one. Memory: 24 bytes for
each aborted transaction, 8 for each bare marker, and an entry for each open transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from crc32c import crc32c
from msgspec import Struct, field
from numpy.typing import NDArray

from sparklog.base.errors import CorruptRecord
from sparklog.records import header_kernels as headers
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges
from sparklog.records.batch import CONTROL_BIT, MAGIC, TRANSACTIONAL_BIT

Longs = NDArray[np.int64]
_CRC_FROM = 21
_DATA = -2
"""The kind of a batch of records; the kind of a marker is its type."""


class EndedTransactions(Struct, frozen=True):
    """The ended transactions of a range, for its cleaner."""

    aborted: AbortedRanges = NONE_ABORTED
    bare_markers: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    """Offsets, sorted, of the markers without any batch of their transaction before them."""


NO_TRANSACTIONS = EndedTransactions()


class TransactionSurvey:
    """Collects the transactions of a range."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._aborted: list[Longs] = []
        self._bare: list[Longs] = []
        self.has_transactions = False
        """Whether there was any batch of a transaction, or a marker."""

    @property
    def open(self) -> Mapping[int, int]:
        """The first offsets of the transactions that have not ended, by producer id."""
        return self._open

    def take(self, data: bytes, table: Longs) -> None:
        """Add whole batches. table: their headers (header_kernels). Raises CorruptRecord."""
        producers, offsets, kinds = _events(data, table)
        if not len(producers):
            return
        self.has_transactions = True
        begins = np.flatnonzero(_is_new(producers) | np.concatenate([[True], kinds[:-1] != _DATA]))
        ends = np.append(begins[1:], len(producers)) - 1
        names, firsts = producers[begins], offsets[begins]
        carried = np.full(len(begins), -1, np.int64)
        carried[_is_new(names)] = [self._open.pop(name, -1) for name in names[_is_new(names)].tolist()]
        has_ended = kinds[ends] != _DATA
        is_bare = has_ended & (begins == ends) & (carried < 0)
        firsts = np.where(carried < 0, firsts, carried)
        self._open.update(zip(names[~has_ended].tolist(), firsts[~has_ended].tolist(), strict=True))
        is_aborted = ~is_bare & (kinds[ends] == headers.ABORT)
        self._aborted.append(np.stack([names, firsts, offsets[ends]], axis=1)[is_aborted])
        self._bare.append(offsets[ends[is_bare]])

    def resolve(self, data: bytes, table: Longs) -> None:
        """End the open transactions with markers in these batches, which follow the range. Raises CorruptRecord."""
        for producer, offset, kind in np.stack(_events(data, table), axis=1).tolist():
            if kind != _DATA and (first := self._open.pop(producer, None)) is not None and kind == headers.ABORT:
                self._aborted.append(np.array([[producer, first, offset]]))

    def ended(self) -> EndedTransactions:
        """Return the transactions that have ended."""
        aborted = np.concatenate([np.empty((0, 3), np.int64), *self._aborted])
        bare = np.sort(np.concatenate([np.empty(0, np.int64), *self._bare]))
        return EndedTransactions(AbortedRanges(aborted.tolist()), bare)


def _events(data: bytes, table: Longs) -> tuple[Longs, Longs, Longs]:
    """Return producer id, base offset and kind of transactional batches and markers, producer by producer."""
    bits = np.where(table[:, headers.MAGIC] == MAGIC, table[:, headers.ATTRIBUTES], 0)
    rows = np.flatnonzero(bits & (TRANSACTIONAL_BIT | CONTROL_BIT))
    kinds = np.full(len(rows), _DATA, np.int64)
    is_control = bits[rows] & CONTROL_BIT != 0
    kinds[is_control] = _marker_types(data, table[rows[is_control]])
    known = kinds != headers.NO_MARKER
    rows, kinds = rows[known], kinds[known]
    order = np.argsort(table[rows, headers.PRODUCER_ID], kind="stable")
    rows = rows[order]
    return table[rows, headers.PRODUCER_ID], table[rows, headers.BASE_OFFSET], kinds[order]


def _marker_types(data: bytes, table: Longs) -> Longs:
    """Return the types of control batches. Checks CRCs: a wrong type would cost records of other batches."""
    for position, size, crc, offset in table[
        :, (headers.POSITION, headers.SIZE, headers.CRC, headers.BASE_OFFSET)
    ].tolist():
        if crc32c(memoryview(data)[position + _CRC_FROM : position + size]) != crc:
            raise CorruptRecord(f"the control batch at offset {offset} has another CRC")
    types = np.empty(len(table), np.int64)
    if len(table):
        headers.read_marker_types(np.frombuffer(data, np.uint8), np.ascontiguousarray(table), types)
    return types


def _is_new(producers: Longs) -> NDArray[np.bool_]:
    """Return the rows at which another producer begins."""
    return np.concatenate([[True], producers[1:] != producers[:-1]])
