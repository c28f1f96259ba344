"""A partition's open transactions, and ended ones whose markers are not committed yet.

Below the last stable offset, the end of every transaction is committed. That offset is the lowest of

    the high watermark
    the first offset of the oldest open transaction
    the first offset of every transaction whose marker is at or above the high watermark, since that marker may be lost

As ongoingTxns and unreplicatedTxns of Apache Kafka's ProducerStateManager. There is one writer; other threads read the
last stable offset without a lock. So the writer adds an ended transaction to those that wait for their markers before
it removes it from the open ones, and a reader reads the open ones first.

Transactions that had ended before the log was opened do not count, as in Kafka: the coordinator stores the end of a
transaction before it writes a marker, so a lost marker is written again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable

from sparklog.base.config_keys import MAX_LONG

MAX_ENDED = 1_000


class OpenTransactions:
    """The transactions of one partition."""

    __slots__ = ("_ended", "_first_open", "_high_watermark", "_open")

    def __init__(self, begun: Iterable[tuple[int, int]] = ()) -> None:
        """begun: first offset and producer id of each open transaction."""
        self._open = OrderedDict((producer_id, first_offset) for first_offset, producer_id in sorted(begun))
        self._first_open = next(iter(self._open.values()), MAX_LONG)
        self._ended: tuple[tuple[int, int], ...] = ()
        """Marker and first offset of the ended transactions. Both increase: a transaction that begins no later than its
        predecessor replaces it, as its marker is later. Beyond `MAX_ENDED`, the last two become one."""
        self._high_watermark = 0
        """The high watermark at the last query: markers below it need not be kept."""

    def __len__(self) -> int:
        """The number of open transactions."""
        return len(self._open)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Add a transaction that begins after all others."""
        self._open[producer_id] = first_offset
        if self._first_open == MAX_LONG:
            self._first_open = first_offset

    def end(self, producer_id: int, marker_offset: int) -> int:
        """End the producer's open transaction; return the last stable offset after its marker."""
        first = self._open[producer_id]
        kept = list(self._ended[bisect_left(self._ended, (self._high_watermark,)) :])
        while kept and kept[-1][1] >= first:
            kept.pop()
        if len(kept) >= MAX_ENDED:
            first = kept.pop()[1]
        self._ended = (*kept, (marker_offset, first))
        del self._open[producer_id]
        self._first_open = next(iter(self._open.values()), MAX_LONG)
        return min(self._first_open, marker_offset + 1)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset at a high watermark, which it never exceeds. Takes no lock.

        Transactions with markers below the high watermark are forgotten, so a later call must not have a lower one.
        """
        first, ended = self._first_open, self._ended
        if ended:
            self._high_watermark = high_watermark
            if ended[-1][0] >= high_watermark:
                first = min(first, ended[bisect_left(ended, (high_watermark,))][1])
        return min(first, high_watermark)
