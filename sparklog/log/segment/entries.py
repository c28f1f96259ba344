"""Index entries: pairs of numbers that increase together, packed one after the other, as in an index file.

The base of the offset index and the time index. Entries live in memory and are written to their file a few at a time,
at the latest when the segment is closed. No entry has to be on the disk earlier: after an unclean stop, the indexes of
unflushed segments are rebuilt. A file may end in a torn entry, or in zeros, since Kafka preallocates the index files of
an active segment; both are dropped when the file is read.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import ClassVar

from sparklog.base.fs import Buffer

MAX_RELATIVE_OFFSET = 2**31 - 1


class Entries:
    """The entries of one index file, in memory. Reads may run concurrently with one writer."""

    LAYOUT: ClassVar[struct.Struct]
    __slots__ = ("_data", "base_offset")

    def __init__(self, base_offset: int, data: Buffer = b"") -> None:
        """`data` is the file's content."""
        self.base_offset = base_offset
        self._data = bytearray(data[: self._count_written(data) * self.LAYOUT.size])

    def __len__(self) -> int:
        return len(self._data) // self.LAYOUT.size

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def bytes_from(self, position: int) -> bytes:
        """Return the file's content from byte `position` on."""
        return bytes(self._data[position:])

    def is_in_order(self) -> bool:
        """Return whether both numbers increase from entry to entry and none is negative."""
        first, second = -1, -1
        for pair in self.LAYOUT.iter_unpack(self._data):
            if pair[0] <= first or pair[1] <= second:
                return False
            first, second = pair
        return True

    def _unpack(self, number: int) -> tuple[int, int]:
        first, second = self.LAYOUT.unpack_from(self._data, number * self.LAYOUT.size)
        return first, second

    def _count_below(self, value: int, *, field: int) -> int:
        """Return how many entries have the field (0 or 1) below `value`."""
        data, unpack_from, size = self._data, self.LAYOUT.unpack_from, self.LAYOUT.size
        numbers = range(len(data) // size)
        return bisect_left(numbers, value, key=lambda number: unpack_from(data, number * size)[field])

    def _truncate(self, count: int) -> None:
        del self._data[count * self.LAYOUT.size :]

    def _count_written(self, data: Buffer) -> int:
        low, high = 0, len(data) // self.LAYOUT.size
        while low < high:
            middle = (low + high) // 2
            if any(self.LAYOUT.unpack_from(data, middle * self.LAYOUT.size)):
                low = middle + 1
            else:
                high = middle
        return low
