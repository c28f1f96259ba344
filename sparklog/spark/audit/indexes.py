"""Entries of a segment's two indexes, checked against the batches that they name as these are read."""

from __future__ import annotations

from typing import cast

import numpy as np

from sparklog.records import header_kernels as h
from sparklog.spark.audit.walk import Bools, Ints


class OffsetEntries:
    """Entries of the offset index, checked against the batches that they name as these are added."""

    def __init__(self, entries: Ints, base_offset: int) -> None:
        self.absolute = entries + np.array([base_offset, 0])
        self._begins = np.zeros(len(entries), np.bool_)
        self._ends = np.zeros(len(entries), np.bool_)

    def add(self, table: Ints) -> None:
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

    From `gaps_to` on, an entry's timestamp is that of its batch. Below, a cleaner may have removed the later records of
    that batch, so a timestamp may be greater than those that remain, but never less.
    """

    def __init__(self, entries: Ints, base_offset: int, gaps_to: int) -> None:
        self._entries = entries + np.array([0, base_offset])
        self._is_right = np.zeros(len(entries), np.bool_)
        self._gaps_to = gaps_to
        self._largest = -1

    def add(self, table: Ints) -> None:
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


def _find(sorted_values: Ints, wanted: Ints) -> tuple[Ints, Bools]:
    """Return where each wanted value is, and whether it is there."""
    at = np.minimum(np.searchsorted(sorted_values, wanted), len(sorted_values) - 1)
    return at, sorted_values[at] == wanted
