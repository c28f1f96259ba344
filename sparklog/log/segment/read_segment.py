"""A segment that is read: a `.log` file of batches, its two indexes, and its aborted transactions.

Works over any file system; file and indexes are opened when first needed. `Segment` (segment.py) is a segment of a
broker's log. Any thread may read: a concurrent writer only appends, except for truncation, which the log limits to
offsets that readers never see.

An index is a hint. It may be older or newer than the file, because a reader of a live folder opens them one after the
other. So an index entry is used only if the batch at its position begins at or below the requested offset; otherwise
the walk begins at 0. A malformed index counts as empty; a broker rebuilds it (index_checks.py).

The index of aborted transactions is not a hint: without it their records would seem committed. A broker checks it when
it opens a log (recovery.py); a later use of a malformed index raises CorruptRecord.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import ReadFile, ReadFs
from sparklog.log.files import (
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    TXN_INDEX,
    segment_name,
)
from sparklog.log.segment.indexes import OffsetIndex, TimeEntry, TimeIndex
from sparklog.log.segment.scan import CHUNK_BYTES, BatchPlace, BatchRange, locate, walk
from sparklog.log.segment.transaction_index import TransactionIndex

SMALL_BYTES = 20 << 10
"""Maximum size of a small read. One read of all its bytes costs less than a read at each end and one of the batches."""


class ReadSegment:
    """A segment in `folder`. `size_bytes`: the part of its file that holds batches."""

    __slots__ = (
        "_aborted", "_file", "_first_timestamp_ms", "_fs", "_largest", "_mark", "_offsets", "_times",
        "base_offset", "folder", "size_bytes",
    )  # fmt: skip

    def __init__(self, fs: ReadFs, folder: str, base_offset: int, size_bytes: int = 0, *, mark: str = "") -> None:
        self.folder = folder
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self._fs = fs
        self._mark = mark
        self._file: ReadFile | None = None
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._aborted: TransactionIndex | None = None
        self._largest: TimeEntry | None = None
        self._first_timestamp_ms: int | None = None

    @classmethod
    def whole(cls, fs: ReadFs, folder: str, base_offset: int, *, mark: str) -> ReadSegment:
        """Open the file, and return the segment of all its batches. Raises OSError."""
        segment = cls(fs, folder, base_offset, mark=mark)
        segment.size_bytes = segment.file.size
        return segment

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path(LOG)!r}, {self.size_bytes} bytes)"

    @property
    def is_marked(self) -> bool:
        """Whether its files are being replaced or deleted, so that their names have a mark such as .swap."""
        return bool(self._mark)

    def path(self, suffix: str) -> str:
        """Return the path of the segment's file with that suffix, under its present name."""
        return f"{self.folder}/{segment_name(self.base_offset, suffix)}{self._mark}"

    @property
    def file(self) -> ReadFile:
        """The `.log` file. Raises OSError."""
        file = self._file
        if file is None:
            file = self._file = self._open_read(LOG)
        return file

    @property
    def offsets(self) -> OffsetIndex:
        """The offset index. Raises OSError."""
        index = self._offsets
        if index is None:
            index = self._offsets = self._load_offsets()
        return index

    @property
    def times(self) -> TimeIndex:
        """The time index. Raises OSError."""
        index = self._times
        if index is None:
            index = self._times = self._load_times()
        return index

    @property
    def aborted(self) -> TransactionIndex:
        """The transactions whose abort markers lie in the segment. Raises CorruptRecord or OSError."""
        index = self._aborted
        if index is None:
            index = self._aborted = self._load_aborted()
        return index

    def _load_aborted(self) -> TransactionIndex:
        return TransactionIndex(self._read(TXN_INDEX))

    def _load_offsets(self) -> OffsetIndex:
        index = OffsetIndex(self.base_offset, self._read(OFFSET_INDEX))
        return index if index.is_in_order() else OffsetIndex(self.base_offset)

    def _load_times(self) -> TimeIndex:
        index = TimeIndex(self.base_offset, self._read(TIME_INDEX))
        return index if index.is_in_order() else TimeIndex(self.base_offset)

    @property
    def largest(self) -> TimeEntry:
        """The greatest timestamp, and the last offset of the first batch with it; timestamp -1 if there is none.

        Of a closed segment, this is the time index's last entry. Raises OSError.
        """
        if self._largest is None:
            self._largest = (self._times or self._read_last_times()).last
        return self._largest

    @property
    def first_timestamp_ms(self) -> int:
        """The max timestamp of the first batch; -1 if there is none. Raises OSError."""
        if self._first_timestamp_ms is None and self.size_bytes:
            file = self._file or self._open_read(LOG)  # not kept open: most segments are not read further
            first = next(walk(file, 0, self.size_bytes), None)
            self._first_timestamp_ms = first.max_timestamp_ms if first else -1
        return -1 if self._first_timestamp_ms is None else self._first_timestamp_ms

    def walk(self, position: int, end: int) -> Iterator[BatchPlace]:
        """Yield the batches from `position`, where one begins, to `end`. Raises CorruptRecord or OSError."""
        return walk(self.file, position, end)

    def find(self, offset: int, end: int) -> BatchPlace | None:
        """Return the first batch that ends at or after `offset`; None if there is none before position `end`.

        Raises CorruptRecord or OSError.
        """
        return self._find_from(self.offsets.position_for(offset), offset, end)

    def _find_from(self, start: int, offset: int, end: int) -> BatchPlace | None:
        """Find a batch as `find` does. start: the position of an indexed batch at or below `offset`"""
        if start:
            try:
                for place in walk(self.file, start, end):
                    if place.position == start and place.base_offset > offset:
                        break
                    if place.last_offset >= offset:
                        return place
            except CorruptRecord:
                pass  # the index does not match the file: the walk from 0 shows whether the file is intact
        for place in walk(self.file, 0, end):
            if place.last_offset >= offset:
                return place
        return None

    def end_before(self, position: int) -> int:
        """Return the offset after the last batch before `position`, where one ends; the base offset if there is none.

        Raises CorruptRecord or OSError.
        """
        places = self.walk(self.offsets.last_position(position), position)
        return max((place.last_offset + 1 for place in places), default=self.base_offset)

    def locate(self, offset: int, max_bytes: int, max_offset: int, *, min_one_batch: bool) -> BatchRange | None:
        """Find the batches from the one that holds `offset` on, at most `max_bytes` of them, all below `max_offset`.

        min_one_batch: whether the first batch may be larger than `max_bytes`

        The result of a small read has the batches' bytes, since the headers were read with them. Returns None if no
        batch holds `offset` or a later one. Raises CorruptRecord or OSError.
        """
        end = self.size_bytes
        start = self.offsets.position_for(offset)
        size = min(max_bytes + CHUNK_BYTES, max(0, end - start))
        if size <= SMALL_BYTES:
            data = self.file.read_at(start, size)
            found = locate(data, start, end, offset, max_bytes, max_offset, min_one_batch=min_one_batch)
            if found is not None:
                return found
        first = self._find_from(start, offset, end)
        if first is None:
            return None
        if first.last_offset >= max_offset or (first.size > max_bytes and not min_one_batch):
            return BatchRange(first.position, 0, offset)
        stop, next_offset = self.cut(first, first.position + max(first.size, max_bytes), end, max_offset)
        return BatchRange(first.position, stop - first.position, next_offset)

    def cut(self, first: BatchPlace, stop: int, end: int, max_offset: int) -> tuple[int, int]:
        """Find the end of the whole batches from `first` on that lie before position `stop` and below `max_offset`.

        Returns that position and the offset after the last record. The next batch's base offset would not do: it may
        be greater, and a newer leader epoch may begin in the gap. `end`: where the segment's batches end.
        """
        after = start = first.end
        left = min(stop, end) - after
        if left <= 0:
            return after, first.last_offset + 1
        if left > CHUNK_BYTES:  # otherwise one read has all headers, and the indexes save nothing
            start = min(self.offsets.last_position(stop), self.offsets.position_for(max_offset - 1))
        while True:
            last = first
            try:
                for place in walk(self.file, max(start, after), end):
                    if place.end > stop or place.last_offset >= max_offset:
                        break
                    last = place
            except CorruptRecord:
                if start <= after:
                    raise
                start = 0  # the index does not match: the walk from `first` on shows whether the file is intact
                continue
            if last is not first or start <= after:
                return last.end, last.last_offset + 1
            start = self.offsets.last_position(start)  # the batch there is too far: start at an earlier entry

    def close_file(self) -> None:
        """Close the `.log` file, which is opened again when it is needed."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def open(self, suffix: str) -> ReadFile:
        """Open one of the segment's files for the caller, which closes it. Raises OSError."""
        return self._open_read(suffix)

    def _open_read(self, suffix: str) -> ReadFile:
        return self._fs.open_read(self.path(suffix))

    def _read(self, suffix: str) -> bytes:
        """Return an index file's content; empty if there is none, since an index is only a hint."""
        try:
            file = self._open_read(suffix)
        except FileNotFoundError:
            return b""
        try:
            return file.read_at(0, file.size)
        finally:
            file.close()

    def _read_last_times(self) -> TimeIndex:
        """Return a time index with only the last entry, or the whole index if the file does not end with an entry."""
        try:
            file = self._open_read(TIME_INDEX)
        except FileNotFoundError:
            return TimeIndex(self.base_offset)
        try:
            entry = TimeIndex.LAYOUT.size
            last = TimeIndex(self.base_offset, file.read_at(max(0, file.size // entry - 1) * entry, entry))
            return last if last else TimeIndex(self.base_offset, file.read_at(0, file.size))
        finally:
            file.close()
