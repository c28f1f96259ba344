"""Index entries: pairs of numbers that increase together, packed one behind the other, as in an index file.

What the offset index and the time index share. Entries live in memory and are written to their file a few at a time,
when the segment is closed at the latest: after an unclean stop the indexes of what was not flushed are built again,
so no entry has to reach the disk before that. A file may end in a torn entry, or, as Kafka lays out the files of an
active segment in full size, in zeros; both are dropped when it is read.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import ClassVar

from sparklog.base.fs import Buffer

MAX_RELATIVE_OFFSET = 2**31 - 1


class Entries:
    """The entries of one index file, in memory. Reads may run beside one writer."""

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
        """What the file contains from a byte on."""
        return bytes(self._data[position:])

    def is_in_order(self) -> bool:
        """Whether both numbers grow from one entry to the next, and neither is negative."""
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
        """How many entries have field 0 or 1 below `value`."""
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
