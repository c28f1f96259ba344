"""The time index: the greatest timestamp of a segment's records up to an offset.

    position  size  field
    0         8     timestamp, ms: the greatest so far
    8         4     last offset of the first batch with that timestamp, less the segment's base offset

An entry (T, O) says: every record at or before O has a timestamp at or below T. An entry is added with each entry of
the offset index if the greatest timestamp has grown since the last one, and once more when the segment is closed. So
the last entry of a closed segment holds its greatest timestamp.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from sparklog.log.segment.entries import Entries
from sparklog.records.batch import NO_TIMESTAMP


class TimeEntry(NamedTuple):
    timestamp_ms: int
    offset: int


class TimeIndex(Entries):
    """The entries of one segment's time index."""

    LAYOUT = struct.Struct(">qi")
    __slots__ = ()

    def __getitem__(self, number: int) -> TimeEntry:
        timestamp, offset = self._unpack(number)
        return TimeEntry(timestamp, self.base_offset + offset)

    @property
    def last(self) -> TimeEntry:
        """The last entry; (-1, base offset) if there is none."""
        count = len(self)
        return self[count - 1] if count else TimeEntry(NO_TIMESTAMP, self.base_offset)

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry if the timestamp is greater than the last entry's."""
        if timestamp_ms > self.last.timestamp_ms:
            self._data += self.LAYOUT.pack(timestamp_ms, offset - self.base_offset)

    def offset_for(self, timestamp_ms: int) -> int:
        """Return an offset before or in the first batch that reaches `timestamp_ms`; the base offset at worst."""
        number = self._count_below(timestamp_ms, field=0)
        return self[number - 1].offset if number else self.base_offset

    def truncate(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        self._truncate(self._count_below(offset - self.base_offset, field=1))
