"""The batches of aborted transactions, which readers of committed records skip whole (KIP-98).

A transactional batch was aborted if it lies between the first offset of an aborted transaction of its producer and the
transaction's marker, since a producer has one transaction at a time. So a reader needs only batch headers and the list
of aborted transactions. It need not follow markers, and can read parts of a log in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


class AbortedRanges:
    """The ranges of offsets of aborted transactions, by producer. Immutable; 24 bytes for each transaction."""

    __slots__ = ("_rows",)

    def __init__(self, transactions: Iterable[tuple[int, int, int]] = ()) -> None:
        """transactions: producer id, first offset, and last offset (the marker's), in any order."""
        rows = np.array([*transactions], np.int64).reshape(-1, 3)
        self._rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"AbortedRanges({self._rows.tolist()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbortedRanges) and bool(np.array_equal(self._rows, other._rows))

    def __hash__(self) -> int:
        return hash(self._rows.tobytes())

    def unlisted(self, aborts: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
        """Return the markers, as producer id and offset, that aborted none of the transactions."""
        return {*aborts} - {(producer_id, last) for producer_id, _, last in self._rows.tolist()}

    def within(self, offset_from: int, offset_to: int) -> AbortedRanges:
        """Return the transactions that may have batches at offsets in [offset_from, offset_to)."""
        kept = (self._rows[:, 1] < offset_to) & (self._rows[:, 2] >= offset_from)
        return self if kept.all() else AbortedRanges(self._rows[kept].tolist())

    def contain(self, producer_ids: Numbers, offsets: Numbers) -> NDArray[np.bool_]:
        """Return for each transactional batch, by producer id and base offset, whether its transaction was aborted."""
        found = np.zeros(len(offsets), np.bool_)
        if not len(self._rows) or not len(offsets):
            return found
        order = np.argsort(producer_ids, kind="stable")
        edges = np.flatnonzero(np.diff(producer_ids[order])) + 1
        for batches in np.split(order, edges):
            low, high = np.searchsorted(self._rows[:, 0], producer_ids[batches[0]] + np.arange(2))
            if low < high:
                _, firsts, lasts = self._rows[low:high].T
                at = np.searchsorted(firsts, offsets[batches], "right") - 1
                found[batches] = (at >= 0) & (offsets[batches] <= lasts[at])
        return found

    def __getstate__(self) -> bytes:
        return self._rows.tobytes()

    def __setstate__(self, state: Any) -> None:
        self._rows = np.frombuffer(state, np.int64).reshape(-1, 3)


NONE_ABORTED = AbortedRanges()


class SeenTransactions:
    """The transactions of the batches that a reader has seen, in the order of the log."""

    def __init__(self) -> None:
        self.aborts: list[tuple[int, int]] = []
        """Producer id and offset of each marker that aborts a transaction."""
        self.open: dict[int, int] = {}
        """The last batch with records for the reader, by producer id, of each transaction whose marker comes later."""

    def add(self, producer_ids: Numbers, offsets: Numbers, are_markers: NDArray[np.bool_]) -> None:
        """Add batches with records for the reader, and markers of any kind."""
        last = {producer_id: at for at, producer_id in enumerate(producer_ids.tolist())}
        for producer_id, at in last.items():
            if are_markers[at]:
                self.open.pop(producer_id, None)
            else:
                self.open[producer_id] = int(offsets[at])
