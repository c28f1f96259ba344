"""The writer of the active segment: appends, index entries, when to roll.

    append      write the batches at once; then, for each batch more than index.interval.bytes after the last entry, add
                an entry to both indexes: its last offset and position, and the greatest timestamp so far
    roll        before an append that would make the file larger than segment.bytes; that is more than segment.ms later
                than the first batch (by record timestamps; by the clock if there are none); or whose offsets an index
                cannot hold. Also once an index is full (the time index one entry earlier, because closing adds one)
    abort       after the marker of an aborted transaction, add it to the transaction index and write that entry
    finish      add a last entry to the time index and write the rest of the indexes to their files, before the next
                segment exists: a reader that sees the next segment can rely on this time index

Kafka does the same (LogSegment.append, shouldRoll, onBecomeInactiveSegment), so the files are identical. Index entries
are buffered and written `INDEX_WRITE_BYTES` at a time, so a reader of a live file walks a little further. They stay
buffered while the disk has no room for them, or the process no file descriptor: their batches are written already.

A failed write leaves the file at its former length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

from sparklog.base.fs import Buffer, File, Fs
from sparklog.base.topic_config import TopicConfig
from sparklog.log.disk import NO_ROOM, NOT_THE_DISK, undoing
from sparklog.log.files import LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from sparklog.log.segment.indexes import MAX_RELATIVE_OFFSET, OffsetIndex, TimeEntry, TimeIndex
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.transaction_index import AbortedTransaction, TransactionIndex

INDEX_WRITE_BYTES = 512


class PreparedBatch(NamedTuple):
    """A batch of an append, with its offsets assigned."""

    size: int
    last_offset: int
    max_timestamp_ms: int


class SegmentWriter:
    """Writer of a log's active segment. One writer at a time."""

    __slots__ = (
        "_aborted", "_aborted_file", "_bytes_since_entry", "_created_ms", "_file", "_first_timestamp_ms", "_index_file",
        "_index_interval_bytes", "_is_index_full", "_jitter_ms", "_largest", "_max_age_ms", "_max_bytes", "_max_offset",
        "_max_offsets_bytes", "_max_times_bytes", "_offsets", "_time_file", "_times", "segment",
    )  # fmt: skip

    def __init__(self, segment: Segment, config: TopicConfig, files: _Files, now_ms: int, jitter_ms: int) -> None:
        self.segment = segment
        self._created_ms = now_ms
        self._jitter_ms = jitter_ms
        self._bytes_since_entry = 0
        self._is_index_full = False
        self._file, self._offsets, self._index_file, self._times, self._time_file = files[:5]
        self._aborted, self._aborted_file = files.aborted, files.aborted_file
        self._largest: TimeEntry = self._times.last
        segment.set_largest(self._largest)  # set early: a reader's lazy load would overwrite updates
        self._first_timestamp_ms: int | None = None  # read from the file when needed, unless written here
        self._max_offset = segment.base_offset + MAX_RELATIVE_OFFSET
        self.configure(config)
        segment.pin(self._file, self._offsets, self._times, self._aborted)

    @classmethod
    def open(
        cls,
        fs: Fs,
        segment: Segment,
        config: TopicConfig,
        now_ms: int,
        *,
        jitter_ms: int = 0,
        rebuild_indexes: bool = False,
    ) -> SegmentWriter:
        """Return the writer of `segment`; missing files are created.

        jitter_ms: roll this much earlier than segment.ms says. rebuild_indexes: start with empty indexes, which the
        caller fills with `add`. Raises OSError.
        """
        file = fs.open(segment.path(LOG), create=True)
        # Load the indexes before opening their files: loading replaces the files that do not match this segment.
        offsets = OffsetIndex(segment.base_offset) if rebuild_indexes else segment.offsets
        times = TimeIndex(segment.base_offset) if rebuild_indexes else segment.times
        aborted = TransactionIndex() if rebuild_indexes else segment.aborted
        index_file = _IndexFile.open(fs, segment, OFFSET_INDEX, offsets.size_bytes)
        time_file = _IndexFile.open(fs, segment, TIME_INDEX, times.size_bytes)
        aborted_file = _IndexFile(fs, segment, TXN_INDEX)
        if segment.has_aborted or fs.exists(segment.path(TXN_INDEX)):
            aborted_file = _IndexFile.open(fs, segment, TXN_INDEX, aborted.size_bytes)
        files = _Files(file, offsets, index_file, times, time_file, aborted, aborted_file)
        return cls(segment, config, files, now_ms, jitter_ms)

    @property
    def size_bytes(self) -> int:
        """The bytes of the segment's batches, which is also the position of the next one."""
        return self._file.size

    def configure(self, config: TopicConfig) -> None:
        """Apply a new topic configuration."""
        offset_entry, time_entry = OffsetIndex.LAYOUT.size, TimeIndex.LAYOUT.size
        self._max_bytes = config.roll_bytes
        self._max_age_ms = config.segment_ms - self._jitter_ms
        self._index_interval_bytes = config.index_interval_bytes
        self._max_offsets_bytes = config.segment_index_bytes // offset_entry * offset_entry
        self._max_times_bytes = (config.segment_index_bytes // time_entry - 1) * time_entry
        self._look_at_index_sizes()

    def should_roll(self, size: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> bool:
        """Return whether an append of `size` bytes up to `last_offset` must go to a new segment."""
        position = self._file.size
        if position == 0:
            return last_offset > self._max_offset
        first = self._first_timestamp_ms
        if first is None:
            first = self._first_timestamp_ms = self.segment.first_timestamp_ms
        age_ms = max_timestamp_ms - first if first >= 0 else now_ms - self._created_ms
        return (
            position > self._max_bytes - size
            or age_ms > self._max_age_ms
            or self._is_index_full
            or last_offset > self._max_offset
        )

    def has_room_for(self, last_offset: int) -> bool:
        """Return whether this segment's indexes can hold that offset."""
        return last_offset <= self._max_offset

    def append(self, data: Buffer, batches: Sequence[PreparedBatch]) -> None:
        """Write `data`, which consists of `batches`. Raises OSError, and leaves the segment unchanged then."""
        position = self._file.size
        try:
            self._file.append(data)
        except OSError:
            with undoing(f"a part of an append to {self.segment}"):
                _cut_to(self._file, position)
            raise
        self.segment.extend_to(self._file.size)  # set before the timestamp: readers scan only up to the size
        if not position:
            self._first_timestamp_ms = batches[0].max_timestamp_ms
        for size, last_offset, timestamp in batches:
            self.add(position, size, last_offset, timestamp)
            position += size

    def add(self, position: int, size: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Account for a batch in the file: update the greatest timestamp, and add index entries if they are due."""
        if max_timestamp_ms > self._largest.timestamp_ms:
            self._largest = TimeEntry(max_timestamp_ms, last_offset)
            self.segment.set_largest(self._largest)
        if self._bytes_since_entry > self._index_interval_bytes and not self._is_index_full:
            offsets_bytes = self._offsets.append(last_offset, position)
            times_bytes = self._times.append(*self._largest)
            self._is_index_full = offsets_bytes >= self._max_offsets_bytes or times_bytes >= self._max_times_bytes
            self._bytes_since_entry = 0
            if offsets_bytes - self._index_file.size >= INDEX_WRITE_BYTES:
                self._write_now_or_later(self._write_indexes)
        self._bytes_since_entry += size

    def add_aborted(self, transaction: AbortedTransaction) -> bool:
        """Add a transaction whose abort marker is the last batch; return whether its file is new. Raises OSError."""
        self._aborted.append(transaction)
        is_new = not self.segment.has_aborted
        self.segment.expect_aborted()
        self._write_now_or_later(self._write_aborted)
        return is_new

    def truncate(self, offset: int, position: int, now_ms: int) -> None:
        """Remove the batches from `position` on, which hold `offset` and above, and flush. Raises OSError."""
        self._offsets.truncate(offset)
        self._times.truncate(offset)
        self._look_at_index_sizes()
        self._index_file.cut_to(self._offsets.size_bytes)
        self._time_file.cut_to(self._times.size_bytes)
        self._aborted.truncate(offset)
        self._aborted_file.cut_to(self._aborted.size_bytes)
        self._file.truncate(position)
        self._file.flush()
        self.segment.was_cut(position)
        self._bytes_since_entry = 0
        if position == 0:
            self._created_ms = now_ms
            self._first_timestamp_ms = None
        self._find_largest()

    def index_files(self) -> dict[str, bytes]:
        """Return the contents of the index files with all entries so far, by suffix."""
        files = {OFFSET_INDEX: self._offsets.bytes_from(0), TIME_INDEX: self._times.bytes_from(0)}
        return files | {TXN_INDEX: self._aborted.bytes_from(0)} if self.segment.has_aborted else files

    def change_directory(self, folder: str, file: File) -> None:
        """Continue in `folder`, whose index files have the contents of `index_files`. file: the `.log` file there"""
        self._file = file
        self.segment.write_in(folder, file)
        self._index_file.size = self._offsets.size_bytes
        self._time_file.size = self._times.size_bytes
        self._aborted_file.size = self._aborted.size_bytes

    def finish(self) -> None:
        """Complete the indexes and write them to their files. Raises OSError."""
        self._times.append(*self._largest)
        self._look_at_index_sizes()
        self._write_indexes()

    def flush_indexes(self) -> None:
        """Complete and flush the indexes. Raises OSError."""
        self.finish()
        self._index_file.flush()
        self._time_file.flush()
        if self.segment.has_aborted:
            self._aborted_file.flush()

    def close(self) -> None:
        """Complete the indexes and stop writing. Raises OSError."""
        self.finish()
        self.abandon()

    def close_without_room(self) -> None:
        """Complete the indexes and stop writing; on a full disk they stay in memory, and are built again when needed.

        Raises OSError.
        """
        try:
            self.finish()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        self.abandon()

    def abandon(self) -> None:
        """Stop writing, without completing the indexes."""
        self.segment.unpin()
        del self._file  # the last reader closes it

    def _write_indexes(self) -> None:
        self._index_file.append(self._offsets.bytes_from(self._index_file.size))
        self._time_file.append(self._times.bytes_from(self._time_file.size))
        self._write_aborted()

    def _write_aborted(self) -> None:
        self._aborted_file.append(self._aborted.bytes_from(self._aborted_file.size))

    def _write_now_or_later(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            if error.errno not in NO_ROOM | NOT_THE_DISK:
                raise

    def _look_at_index_sizes(self) -> None:
        self._is_index_full = (
            self._offsets.size_bytes >= self._max_offsets_bytes or self._times.size_bytes >= self._max_times_bytes
        )

    def _find_largest(self) -> None:
        """Set the greatest timestamp after a truncation: the last entry's, or that of a batch after it."""
        largest = self._times.last
        start = self._offsets.position_for(largest.offset)
        for place in self.segment.walk(start, self.size_bytes):
            if place.max_timestamp_ms > largest.timestamp_ms:
                largest = TimeEntry(place.max_timestamp_ms, place.last_offset)
        self._largest = largest
        self.segment.set_largest(largest)


class _IndexFile:
    """An index file that is opened for each write.

    A broker has as many active segments as partitions, and the number of open files per process is limited.
    """

    __slots__ = ("_fs", "_segment", "_suffix", "size")

    def __init__(self, fs: Fs, segment: Segment, suffix: str) -> None:
        self._fs = fs
        self._segment = segment
        self._suffix = suffix
        self.size = 0

    @classmethod
    def open(cls, fs: Fs, segment: Segment, suffix: str, size: int) -> _IndexFile:
        """Truncate the file to `size`; a missing one is created. Raises OSError, as all methods do."""
        index_file = cls(fs, segment, suffix)
        with index_file._open_file(create=True) as file:
            _cut_to(file, size)
            index_file.size = file.size
        return index_file

    def append(self, data: Buffer) -> None:
        if not data:
            return
        with self._open_file(create=not self.size) as file:
            _cut_to(file, self.size)  # a failed write may have left bytes
            file.append(data)
            self.size = file.size

    def cut_to(self, size: int) -> None:
        if self.size > size:
            with self._open_file() as file:
                _cut_to(file, size)
                self.size = file.size

    def flush(self) -> None:
        with self._open_file() as file:
            file.flush()

    def _open_file(self, *, create: bool = False) -> closing[File]:
        return closing(self._fs.open(self._segment.path(self._suffix), create=create))


class _Files(NamedTuple):
    """The open file of a segment, and its indexes with their files."""

    log: File
    offsets: OffsetIndex
    index_file: _IndexFile
    times: TimeIndex
    time_file: _IndexFile
    aborted: TransactionIndex
    aborted_file: _IndexFile


def _cut_to(file: File, size: int) -> None:
    if file.size > size:
        file.truncate(size)
