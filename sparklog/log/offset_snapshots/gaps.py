"""Check that consecutive batches have a record at every offset, so that compaction has removed none.

A tombstone that compaction removed leaves no trace but the gap. So apply a tail to an older snapshot only if the tail
has no gaps. Check the very bytes that are used, as they are read: a second read of the log may give another answer.
"""

from __future__ import annotations

from sparklog.records.batch import BatchHeader


class OffsetGapCheck:
    """Gap check of the batches from `next_offset` on."""

    __slots__ = ("is_unbroken", "next_offset")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.is_unbroken = True

    def take(self, header: BatchHeader) -> None:
        """Add the next batch; the first batch may begin below `next_offset`."""
        is_full = header.record_count == header.last_offset_delta + 1
        self.is_unbroken &= header.base_offset <= self.next_offset and is_full
        self.next_offset = header.next_offset

    def reaches(self, end_offset: int) -> bool:
        """Return whether there was a record at every offset below `end_offset`."""
        return self.is_unbroken and self.next_offset >= end_offset
