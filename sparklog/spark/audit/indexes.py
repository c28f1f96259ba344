"""Checks of a segment's three indexes against the batches that their entries name, as the batches are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np

from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.records import header_kernels as h
from sparklog.records.batch import TRANSACTIONAL_BIT
from sparklog.spark.audit.walk import Bools, Ints


class OffsetEntries:
    """Entries of the offset index, compared with the batches that they name, as the batches are added."""

    def __init__(self, entries: Ints, base_offset: int) -> None:
        self.absolute = entries + np.array([base_offset, 0])
        self._begins = np.zeros(len(entries), np.bool_)
        self._ends = np.zeros(len(entries), np.bool_)

    def add(self, table: Ints) -> None:
        """Compare the entries with a table of the segment's next batches."""
        if not len(table) or not len(self.absolute):
            return
        offsets, positions = self.absolute[:, 0], self.absolute[:, 1]
        at, is_there = _find(table[:, h.POSITION], positions)
        self._begins |= is_there & (table[at, h.BASE_OFFSET] <= offsets)
        _, is_there = _find(table[:, h.LAST_OFFSET], offsets)
        self._ends |= is_there

    def wrong(self) -> Ints:
        """Return the wrong entries, once all batches have been added."""
        increases = np.ones(len(self.absolute), np.bool_)
        increases[1:] = (np.diff(self.absolute, axis=0) > 0).all(axis=1)
        return cast(Ints, self.absolute[~(self._begins & self._ends & increases)])


class TimeEntries:
    """Entries of the time index, checked as in `OffsetEntries`.

    From `gaps_to` on, an entry's timestamp is that of its batch. Below `gaps_to`, a cleaner may have removed later
    records of that batch, so the entry's timestamp may be greater than those that remain, but never less.
    """

    def __init__(self, entries: Ints, base_offset: int, gaps_to: int) -> None:
        self._entries = entries + np.array([0, base_offset])
        self._is_right = np.zeros(len(entries), np.bool_)
        self._gaps_to = gaps_to
        self._largest = -1

    def add(self, table: Ints) -> None:
        """Compare the entries with a table of the segment's next batches; call it in log order."""
        if not len(table):
            return
        largest = np.maximum(np.maximum.accumulate(table[:, h.MAX_TIMESTAMP]), self._largest)
        self._largest = int(largest[-1])
        timestamps, offsets = self._entries[:, 0], self._entries[:, 1]
        at = np.minimum(np.searchsorted(table[:, h.LAST_OFFSET], offsets), len(table) - 1)
        is_there = (table[at, h.BASE_OFFSET] <= offsets) & (offsets <= table[at, h.LAST_OFFSET])
        exact = (timestamps == largest[at]) & (timestamps == table[at, h.MAX_TIMESTAMP])
        enough = (timestamps >= largest[at]) & (offsets < self._gaps_to)
        self._is_right |= is_there & (exact | enough)

    def wrong(self) -> Ints:
        """Return the wrong entries, once all batches have been added."""
        increases = np.ones(len(self._entries), np.bool_)
        increases[1:] = np.diff(self._entries[:, 0]) > 0
        return cast(Ints, self._entries[~(self._is_right & increases)])


class AbortedEntries:
    """Entries of the transaction index, checked against the batches and markers of transactions.

    An abort marker has an entry, with its producer and the first batch of the transaction, if the transaction has
    batches. Batches below `checked_from` are in other segments, or may have been removed: of a transaction that began
    there, only the rest is compared. Markers from `known_to` on are not compared, as the index may be older there.
    """

    def __init__(self, entries: Iterable[AbortedTransaction], checked_from: int, known_to: int) -> None:
        self._from = checked_from
        self._to = known_to
        self._entries = {each.last_offset: each for each in entries if checked_from <= each.last_offset < known_to}
        self._open: dict[int, int] = {}
        """The first batch of each producer since its last marker."""
        self._has_ended: set[int] = set()
        """Producers with a marker: their next transactions begin here."""
        self._wrong: list[tuple[int, str]] = []

    def add(self, table: Ints, markers: Ints) -> None:
        """Compare the entries with a table of the segment's next batches; call it in log order.

        markers: for each batch NO_MARKER, or the kind of its marker
        """
        rows = (table[:, h.ATTRIBUTES] & TRANSACTIONAL_BIT != 0) & (table[:, h.BASE_OFFSET] >= self._from)
        rows &= table[:, h.BASE_OFFSET] < self._to
        columns = (table[rows, h.BASE_OFFSET], table[rows, h.PRODUCER_ID], markers[rows])
        for offset, producer_id, marker in zip(*(column.tolist() for column in columns), strict=True):
            if marker == h.NO_MARKER:
                self._open.setdefault(producer_id, offset)
                continue
            if found := self._difference(offset, producer_id, is_abort=marker == h.ABORT):
                self._wrong.append((offset, f"the transaction index {found}"))
            self._open.pop(producer_id, None)
            self._has_ended.add(producer_id)

    def wrong(self) -> list[tuple[int, str]]:
        """Return the offsets of markers with the mistake at each, once all batches have been added."""
        names = "the transaction index names a marker of producer {} that is not there"
        return sorted([*self._wrong, *((at, names.format(each.producer_id)) for at, each in self._entries.items())])

    def _difference(self, offset: int, producer_id: int, *, is_abort: bool) -> str:
        entry, first = self._entries.pop(offset, None), self._open.get(producer_id)
        marker = f"{'abort' if is_abort else 'commit'} marker of producer {producer_id}"
        if entry is None:
            return f"lacks the {marker}, whose transaction begins at {first}" if is_abort and first is not None else ""
        if not is_abort or entry.producer_id != producer_id:
            return f"says that producer {entry.producer_id} has aborted here, but there is the {marker}"
        began_before = entry.first_offset < self._from and producer_id not in self._has_ended
        if began_before or entry.first_offset == first:
            return ""
        begins = "has no batch" if first is None else f"begins at {first}"
        return f"says that the transaction of producer {producer_id} begins at {entry.first_offset}, but it {begins}"


def _find(sorted_values: Ints, wanted: Ints) -> tuple[Ints, Bools]:
    """Return where each wanted value is, and whether it is there."""
    at = np.minimum(np.searchsorted(sorted_values, wanted), len(sorted_values) - 1)
    return at, sorted_values[at] == wanted
