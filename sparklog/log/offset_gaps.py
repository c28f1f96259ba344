"""Whether batches that are read one after the other have a record at every offset: nothing is compacted away.

A tombstone that compaction has removed leaves no trace but the gap, so who has an older state and adds to it what came
since may do so only where there is none. To be asked of the bytes that are used, as they are read: what another look at
the log tells may be otherwise by then.
"""

from __future__ import annotations

from sparklog.records.batch import BatchHeader


class OffsetGapCheck:
    """Of the batches from `next_offset` on."""

    __slots__ = ("is_unbroken", "next_offset")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.is_unbroken = True

    def take(self, header: BatchHeader) -> None:
        """The next batch; the first may begin below."""
        is_full = header.record_count == header.last_offset_delta + 1
        self.is_unbroken &= header.base_offset <= self.next_offset and is_full
        self.next_offset = header.next_offset

    def reaches(self, end_offset: int) -> bool:
        """Whether there was a record at every offset up to there."""
        return self.is_unbroken and self.next_offset >= end_offset
