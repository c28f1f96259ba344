"""The offset index and the time index of a segment: pairs of numbers that increase together, as in their files.

    .index        position  size  field
                  0         4     last offset of a batch, less the segment's base offset
                  4         4     position of that batch in the .log file

    .timeindex    position  size  field
                  0         8     timestamp, ms: the greatest so far
                  8         4     last offset of the first batch with that timestamp, less the segment's base offset

An entry of the offset index is added for the first batch after more than `index.interval.bytes` of others, so never for
the first batch of a segment. A lookup finds the last entry at or below an offset; the log is walked from there.

An entry (T, O) of the time index says: every record at or before O has a timestamp at or below T. An entry is added
with each entry of the offset index if the greatest timestamp has grown since the last one, and once more when the
segment is closed. So the last entry of a closed segment holds its greatest timestamp.

Entries live in memory and are written to their file a few at a time, at the latest when the segment is closed. No entry
has to be on the disk earlier: after an unclean stop, the indexes of unflushed segments are rebuilt. A file may end in a
torn entry, or in zeros, since Kafka preallocates the index files of an active segment; both are dropped when the file
is read.
"""

from __future__ import annotations

import struct
from typing import ClassVar, NamedTuple

from sparklog.base.fs import Buffer
from sparklog.records.batch import NO_TIMESTAMP

MAX_RELATIVE_OFFSET = 2**31 - 1


class IndexEntries:
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
        """The bytes of all entries, including those that are not in the file yet."""
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
        low, high = 0, len(data) // size
        while low < high:  # faster than bisect with a key, which calls a function at each step of every read
            middle = (low + high) // 2
            if unpack_from(data, middle * size)[field] < value:
                low = middle + 1
            else:
                high = middle
        return low

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


class OffsetIndex(IndexEntries):
    """The entries of one segment's offset index."""

    LAYOUT = struct.Struct(">ii")
    __slots__ = ()

    def __getitem__(self, number: int) -> tuple[int, int]:
        """Return the absolute offset and the position of an entry."""
        offset, position = self._unpack(number)
        return self.base_offset + offset, position

    def append(self, offset: int, position: int) -> int:
        """Add an entry in memory, and return `size_bytes`.

        offset: absolute, the last of a batch; position: of that batch in the file
        """
        self._data += self.LAYOUT.pack(offset - self.base_offset, position)
        return len(self._data)

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


class TimeEntry(NamedTuple):
    timestamp_ms: int
    offset: int


class TimeIndex(IndexEntries):
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

    def append(self, timestamp_ms: int, offset: int) -> int:
        """Add an entry if the timestamp is greater than the last entry's, and return `size_bytes`."""
        data, layout = self._data, self.LAYOUT
        if timestamp_ms > (layout.unpack_from(data, len(data) - layout.size)[0] if data else NO_TIMESTAMP):
            data += layout.pack(timestamp_ms, offset - self.base_offset)
        return len(data)

    def offset_for(self, timestamp_ms: int) -> int:
        """Return an offset before or in the first batch that reaches `timestamp_ms`; the base offset at worst."""
        number = self._count_below(timestamp_ms, field=0)
        return self[number - 1].offset if number else self.base_offset

    def truncate(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        self._truncate(self._count_below(offset - self.base_offset, field=1))
