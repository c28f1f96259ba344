"""The segment that is written: appends, its indexes' entries, when to roll.

    append      the batches in one write; then for each batch, if more than index.interval.bytes came since the last
                entry, an entry in both indexes: its last offset and position, and the greatest timestamp so far
    roll        before an append that would make the file larger than segment.bytes, or that is more than segment.ms
                later than the first batch (by their records' timestamps; by the clock where they have none), or
                whose offsets an index cannot hold, or once an index is full (the time index one entry earlier, as
                closing adds one)
    finish      a last entry in the time index, the rest of both indexes written to their files; before there is a
                next segment, so that who sees one may rely on the time index of this

Kafka does the same (LogSegment.append, shouldRoll, onBecomeInactiveSegment), so the files come out equal. Index entries
wait in memory and are written `INDEX_WRITE_BYTES` at a time: a reader of a live file walks a little further. Where
there is no room for them they wait longer.

A write that fails leaves the file as long as it was before.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from sparklog.base.fs import Buffer, File, Fs
from sparklog.base.topic_config import TopicConfig
from sparklog.log.disk import NO_ROOM, undoing
from sparklog.log.files import LOG, OFFSET_INDEX, TIME_INDEX
from sparklog.log.segment.entries import MAX_RELATIVE_OFFSET
from sparklog.log.segment.offset_index import OffsetIndex
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.time_index import TimeEntry, TimeIndex

INDEX_WRITE_BYTES = 512


class Placed(NamedTuple):
    """A batch of an append, once it has its offsets."""

    size: int
    last_offset: int
    max_timestamp_ms: int


class SegmentWriter:
    """Writes to the last segment of a log. One writer at a time."""

    __slots__ = (
        "_bytes_since_entry", "_created_ms", "_file", "_index_file", "_index_interval_bytes", "_jitter_ms",
        "_max_age_ms", "_max_bytes", "_max_offset", "_max_offsets_bytes", "_max_times_bytes", "_offsets", "_time_file",
        "_times", "segment",
    )  # fmt: skip

    def __init__(
        self,
        fs: Fs,
        segment: Segment,
        config: TopicConfig,
        now_ms: int,
        *,
        jitter_ms: int = 0,
        index_anew: bool = False,
    ) -> None:
        """Open `segment`, whose files exist or are made.

        jitter_ms: roll so much before segment.ms. index_anew: both indexes are empty, and their entries about to be
        made with `add`. Raises OSError.
        """
        self.segment = segment
        self._created_ms = now_ms
        self._jitter_ms = jitter_ms
        self._bytes_since_entry = 0
        self._file: File = fs.open(segment.path(LOG), create=True)
        # Loaded before their files are opened: others take the place of those that are not of this segment.
        self._offsets: OffsetIndex = OffsetIndex(segment.base_offset) if index_anew else segment.offsets
        self._times: TimeIndex = TimeIndex(segment.base_offset) if index_anew else segment.times
        self._index_file = _IndexFile(fs, segment, OFFSET_INDEX, self._offsets.size_bytes)
        self._time_file = _IndexFile(fs, segment, TIME_INDEX, self._times.size_bytes)
        segment.largest = self._times.last  # before others see it: they would write over what is added
        self._max_offset = segment.base_offset + MAX_RELATIVE_OFFSET
        self.configure(config)
        segment.pin(self._file, self._offsets, self._times)

    @property
    def size_bytes(self) -> int:
        return self._file.size

    def configure(self, config: TopicConfig) -> None:
        """From now on, go by `config`."""
        offset_entry, time_entry = OffsetIndex.LAYOUT.size, TimeIndex.LAYOUT.size
        self._max_bytes = config.roll_bytes
        self._max_age_ms = config.segment_ms - self._jitter_ms
        self._index_interval_bytes = config.index_interval_bytes
        self._max_offsets_bytes = config.segment_index_bytes // offset_entry * offset_entry
        self._max_times_bytes = (config.segment_index_bytes // time_entry - 1) * time_entry

    def should_roll(self, size: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> bool:
        """Whether an append of `size` bytes up to `last_offset` goes to a new segment."""
        position = self._file.size
        if position == 0:
            return last_offset > self._max_offset
        return (
            position > self._max_bytes - size
            or self._age_ms(max_timestamp_ms, now_ms) > self._max_age_ms
            or self._is_index_full()
            or last_offset > self._max_offset
        )

    def has_room_for(self, last_offset: int) -> bool:
        """Whether an index of this segment can hold that offset."""
        return last_offset <= self._max_offset

    def append(self, data: Buffer, batches: Sequence[Placed]) -> None:
        """Write `data`, which consists of `batches`. Raises OSError; the segment is then as it was."""
        position = self._file.size
        try:
            self._file.append(data)
        except OSError:
            with undoing(f"a part of an append to {self.segment}"):
                _cut_to(self._file, position)
            raise
        self.segment.size_bytes = self._file.size  # first: who learns of a timestamp looks for it up to there
        for size, last_offset, timestamp in batches:
            self.add(position, size, last_offset, timestamp)
            position += size

    def add(self, position: int, size: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Note a batch that is in the file: greatest timestamp, and index entries when they are due."""
        if max_timestamp_ms > self.segment.largest.timestamp_ms:
            self.segment.largest = TimeEntry(max_timestamp_ms, last_offset)
        if self._bytes_since_entry > self._index_interval_bytes and not self._is_index_full():
            self._offsets.append(last_offset, position)
            self._times.append(*self.segment.largest)
            self._bytes_since_entry = 0
            if self._offsets.size_bytes - self._index_file.size >= INDEX_WRITE_BYTES:
                self._write_indexes_if_there_is_room()
        self._bytes_since_entry += size

    def truncate(self, offset: int, position: int, now_ms: int) -> None:
        """Cut off the batches from `position` on, which hold `offset` and what is above it; flushed. Raises OSError."""
        self._offsets.truncate(offset)
        self._times.truncate(offset)
        self._index_file.cut_to(self._offsets.size_bytes)
        self._time_file.cut_to(self._times.size_bytes)
        self._file.truncate(position)
        self._file.flush()
        self.segment.was_cut(position)
        self._bytes_since_entry = 0
        if position == 0:
            self._created_ms = now_ms
        self._find_largest()

    def finish(self) -> None:
        """Complete the indexes, files included. Raises OSError."""
        self._times.append(*self.segment.largest)
        self._write_indexes()

    def flush_indexes(self) -> None:
        """Complete and flush both. Raises OSError."""
        self.finish()
        self._index_file.flush()
        self._time_file.flush()

    def close(self) -> None:
        """Complete the indexes, and write no more. Raises OSError."""
        self.finish()
        self.let_go()

    def let_go(self) -> None:
        """Write no more."""
        self.segment.unpin()
        del self._file  # its readers close it

    def _write_indexes(self) -> None:
        self._index_file.append(self._offsets.bytes_from(self._index_file.size))
        self._time_file.append(self._times.bytes_from(self._time_file.size))

    def _write_indexes_if_there_is_room(self) -> None:
        try:
            self._write_indexes()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def _is_index_full(self) -> bool:
        return self._offsets.size_bytes >= self._max_offsets_bytes or self._times.size_bytes >= self._max_times_bytes

    def _age_ms(self, max_timestamp_ms: int, now_ms: int) -> int:
        first = self.segment.first_timestamp_ms
        return max_timestamp_ms - first if first >= 0 else now_ms - self._created_ms

    def _find_largest(self) -> None:
        """The greatest timestamp after a truncation: the last entry's, or that of a batch behind it."""
        largest = self._times.last
        start = self._offsets.position_for(largest.offset)
        for place in self.segment.walk(start, self.size_bytes):
            if place.max_timestamp_ms > largest.timestamp_ms:
                largest = TimeEntry(place.max_timestamp_ms, place.last_offset)
        self.segment.largest = largest


class _IndexFile:
    """An index's file, written now and then. It is opened each time: a broker has as many active segments as
    partitions, and a process may have only so many files open.
    """

    __slots__ = ("_fs", "_segment", "_suffix", "size")

    def __init__(self, fs: Fs, segment: Segment, suffix: str, size: int) -> None:
        """`size`: what is behind it is cut off. Raises OSError, as all methods do."""
        self._fs = fs
        self._segment = segment
        self._suffix = suffix
        with self._opened(create=True) as file:
            _cut_to(file, size)
            self.size = file.size

    def append(self, data: Buffer) -> None:
        if not data:
            return
        with self._opened() as file:
            _cut_to(file, self.size)  # a write that failed may have left something
            file.append(data)
            self.size = file.size

    def cut_to(self, size: int) -> None:
        if self.size > size:
            with self._opened() as file:
                _cut_to(file, size)
                self.size = file.size

    def flush(self) -> None:
        with self._opened() as file:
            file.flush()

    def _opened(self, *, create: bool = False) -> closing[File]:
        return closing(self._fs.open(self._segment.path(self._suffix), create=create))


def _cut_to(file: File, size: int) -> None:
    if file.size > size:
        file.truncate(size)
