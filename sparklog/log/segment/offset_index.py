"""The offset index: the positions in a `.log` file of one batch in every few KiB.

    position  size  field
    0         4     last offset of a batch, less the segment's base offset
    4         4     position of that batch in the .log file

An entry is added for the first batch after more than `index.interval.bytes` of others, so never for the first batch of
a segment. A lookup finds the last entry at or below an offset; the log is walked from there.
"""

from __future__ import annotations

import struct

from sparklog.log.segment.entries import Entries


class OffsetIndex(Entries):
    """The entries of one segment's offset index."""

    LAYOUT = struct.Struct(">ii")
    __slots__ = ()

    def __getitem__(self, number: int) -> tuple[int, int]:
        """Return the absolute offset and the position of an entry."""
        offset, position = self._unpack(number)
        return self.base_offset + offset, position

    def append(self, offset: int, position: int) -> None:
        self._data += self.LAYOUT.pack(offset - self.base_offset, position)

    def position_for(self, offset: int) -> int:
        """Return the position from which to walk to `offset`: that of the last entry at or below it, or 0."""
        number = self._count_below(offset - self.base_offset + 1, field=0)
        return self._unpack(number - 1)[1] if number else 0

    def last_position(self, before: int) -> int:
        """Return the greatest indexed position below `before`, where a batch begins; 0 if there is none."""
        number = self._count_below(before, field=1)
        return self._unpack(number - 1)[1] if number else 0

    def truncate(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        self._truncate(self._count_below(offset - self.base_offset, field=0))
