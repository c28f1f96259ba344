"""A segment of a broker's log: read (read_segment.py), cached, checked, flushed, renamed and removed.

`SegmentCache` limits the open files and loaded indexes of closed segments. `SegmentWriter` (segment_writer.py) writes
the active segment.
"""

from __future__ import annotations

import errno
import logging
import uuid
from collections.abc import Iterable, Iterator

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import File, Fs, ReadFile
from sparklog.log.disk import NO_ROOM
from sparklog.log.files import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
)
from sparklog.log.segment.cache import SegmentCache
from sparklog.log.segment.index_checks import build, offsets_fit, times_fit
from sparklog.log.segment.indexes import OffsetIndex, TimeEntry, TimeIndex
from sparklog.log.segment.read_segment import ReadSegment
from sparklog.log.segment.scan import BatchPlace, BatchRange, file_crc32c, walk
from sparklog.log.segment.transaction_index import AbortedTransaction, TransactionIndex

logger = logging.getLogger(__name__)


class Segment(ReadSegment):
    """A segment of a broker's log."""

    __slots__ = ("_cache", "_disk", "_kept", "crc32c", "has_aborted", "identity", "is_flushed", "is_pinned")

    def __init__(
        self, fs: Fs, folder: str, base_offset: int, size_bytes: int, cache: SegmentCache, *, mark: str = ""
    ) -> None:
        super().__init__(fs, folder, base_offset, size_bytes, mark=mark)
        self.identity = uuid.uuid4().hex
        """An opaque id that changes with replacement, truncation, every start, and when it is written again."""
        self.is_flushed = False
        """Whether batches, names and indexes are all on the disk; never true of the active segment."""
        self.is_pinned = False
        """Whether the segment is being written, so that its file and indexes stay loaded."""
        self._disk = fs
        self._cache = cache
        self._kept: ReadFile | None = None
        self.crc32c: int | None = None
        """The CRC-32C of a closed segment's file; None until `checksum` has read it."""
        self.has_aborted = False
        """Whether the segment may have an index of aborted transactions; most have none."""

    def _load_aborted(self) -> TransactionIndex:
        if not self.has_aborted:
            return TransactionIndex()
        file = self._open_read(TXN_INDEX)
        try:
            return TransactionIndex(file.read_at(0, file.size))
        finally:
            file.close()

    def collect_aborted(self, offset: int, upper_bound: int, found: list[AbortedTransaction]) -> bool:
        """Return what `TransactionIndex.collect` returns; False if the segment has no such index.

        Raises CorruptRecord or OSError.
        """
        if not self.has_aborted:
            return False
        is_complete = self.aborted.collect(offset, upper_bound, found)
        if not self.is_pinned:
            self._mark_used()
        return is_complete

    def expect_aborted(self) -> None:
        """Record that the segment has an index of aborted transactions."""
        self.has_aborted = True

    def put_aborted(self, index: TransactionIndex) -> None:
        """Replace the index of aborted transactions, atomically. Not for the active segment. Raises OSError."""
        self._replace_indexes(((TXN_INDEX, index),))
        self._aborted, self.has_aborted = None, len(index) > 0

    def _load_offsets(self) -> OffsetIndex:
        """Return the index on the disk, or a rebuilt one if that does not match the file."""
        index = OffsetIndex(self.base_offset, self._read(OFFSET_INDEX))
        if self._kept is not None or not len(index) or offsets_fit(index, self.file, self.size_bytes):
            return index
        return self._build_indexes()[0]

    def _load_times(self) -> TimeIndex:
        index = TimeIndex(self.base_offset, self._read(TIME_INDEX))
        is_new = not self.size_bytes and not len(index)
        if self._kept is not None or is_new or times_fit(index, self.offsets, self.file, self.size_bytes):
            return index
        return self._build_indexes()[1]

    def _read_last_times(self) -> TimeIndex:
        """Return the whole index, checked, because retention deletes by its last entry. Files are not kept open."""
        was_loaded = self._file is not None or self._offsets is not None
        times = self.times
        if not was_loaded:
            self.release()
        return times

    def _build_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        logger.warning("%s: its indexes are not of this file; building them again", self)
        indexes = build(self.base_offset, self._sound_batches())
        self._put_if_there_is_room(indexes)
        return indexes

    def build_indexes(self, interval_bytes: int) -> tuple[OffsetIndex, TimeIndex]:
        """Rebuild both indexes from headers, and return them; batches after a bad one are left out.

        Each file is replaced atomically. On a full disk the files stay as they are. Not for the active segment. Raises
        OSError.
        """
        indexes = build(self.base_offset, self._sound_batches(), interval_bytes)
        self._put_if_there_is_room(indexes)
        return indexes

    def _put_if_there_is_room(self, indexes: tuple[OffsetIndex, TimeIndex]) -> None:
        try:
            self._replace_indexes(zip((OFFSET_INDEX, TIME_INDEX), indexes, strict=True))
        except OSError as error:  # the indexes in memory are right: a full disk must not prevent reads
            if error.errno not in NO_ROOM:
                raise

    def _replace_indexes(self, indexes: Iterable[tuple[str, OffsetIndex | TimeIndex | TransactionIndex]]) -> None:
        for suffix, index in indexes:
            file = self._disk.open(self.path(suffix) + CLEANED, create=True)
            try:
                file.truncate(0)
                file.append(index.bytes_from(0))
                file.flush()
            finally:
                file.close()
            self._disk.rename(self.path(suffix) + CLEANED, self.path(suffix))
        self._disk.flush_dir(self.folder)

    def _sound_batches(self) -> Iterator[BatchPlace]:
        try:
            yield from walk(self.file, 0, self.size_bytes)
        except CorruptRecord as error:
            logger.warning("%s: %s", self, error)

    def find(self, offset: int, end: int) -> BatchPlace | None:
        found = super().find(offset, end)
        if not self.is_pinned:
            self._mark_used()
        return found

    def locate(self, offset: int, max_bytes: int, max_offset: int, *, min_one_batch: bool) -> BatchRange | None:
        found = super().locate(offset, max_bytes, max_offset, min_one_batch=min_one_batch)
        if not self.is_pinned:
            self._mark_used()
        return found

    def flush(self) -> None:
        """Flush all files, but not their names; of the active segment, whose indexes are unfinished, only the batches.

        Raises OSError.
        """
        for suffix in (LOG,) if self.is_pinned else (*SEGMENT_SUFFIXES, SNAPSHOT):
            path = self.path(suffix)
            if suffix in (LOG, OFFSET_INDEX, TIME_INDEX) or self._disk.exists(path):
                file = self._disk.open(path)
                try:
                    file.flush()
                finally:
                    file.close()

    def release(self) -> None:
        """Drop the references to file and indexes; the file's last reader closes it."""
        if not self.is_pinned:
            self._file = self._offsets = self._times = None
            if self._kept is None:
                self._aborted = None

    def pin(self, file: File, offsets: OffsetIndex, times: TimeIndex, aborted: TransactionIndex) -> None:
        """Use the writer's file and indexes from now on; they stay loaded until `unpin`."""
        self._cache.forget(self)
        self.is_pinned, self.is_flushed = True, False
        self.crc32c = None
        self.identity = uuid.uuid4().hex
        self._file, self._offsets, self._times, self._aborted = file, offsets, times, aborted

    def unpin(self) -> None:
        """Allow file and indexes to be released again: the segment is no longer written."""
        self.is_pinned = False
        self._mark_used()

    def checksum(self) -> int:
        """Return the CRC-32C of a closed segment's file; read once, in pieces. Raises OSError."""
        if self.crc32c is not None:
            return self.crc32c
        identity = self.identity
        found = file_crc32c(self._file or self._open_read(LOG), self.size_bytes)
        if identity == self.identity:  # otherwise the file was truncated, or is written again
            self.crc32c = found
        return found

    def extend_to(self, size_bytes: int) -> None:
        """Record that the batches end at `size_bytes`; readers walk up to there."""
        self.size_bytes = size_bytes

    def set_largest(self, entry: TimeEntry) -> None:
        """Set the greatest timestamp of a segment that is being written, and the last offset of its first batch."""
        self._largest = entry

    def mark_flushed(self, crc32c: int | None = None) -> None:
        """Record that batches, names and indexes are on the disk, and the file's checksum where it is known."""
        self.is_flushed = True
        if crc32c is not None:
            self.crc32c = crc32c

    def move(self, folder: str) -> None:
        """Record that the segment's folder has been renamed to `folder`."""
        self.folder = folder

    def change_directory(self, folder: str) -> None:
        """Use the copies of the files in `folder`, a folder on another disk. Not for the active segment."""
        self.folder = folder
        self.identity = uuid.uuid4().hex
        self._cache.forget(self)
        self.release()

    def write_in(self, folder: str, file: File) -> None:
        """Like `change_directory`, for the active segment: `file` is its `.log` file there."""
        self.folder, self._file = folder, file
        self.identity = uuid.uuid4().hex

    def was_cut(self, size_bytes: int) -> None:
        """Update size, checksum and identity after the file was truncated to `size_bytes`."""
        self.size_bytes = size_bytes
        self.crc32c = None
        self.identity = uuid.uuid4().hex
        if not size_bytes:
            self._first_timestamp_ms = None

    def hold_open(self) -> None:
        """Hold the present file open for current readers, before another file takes its name.

        Raises OSError.
        """
        _ = self.largest
        aborted = self.aborted
        self._kept = self.file
        self._aborted = aborted
        self._cache.forget(self)

    def release_hold(self) -> None:
        """Undo `hold_open`: no other file has taken the name."""
        self._kept = None

    def unmark(self) -> None:
        """Record that the files' names have lost their mark."""
        self._mark = ""

    def rename(self, mark: str) -> None:
        """Append a mark to all file names. Raises OSError."""
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if suffix == LOG or self._disk.exists(path):
                self._disk.rename(path, path + mark)
        self._mark = mark

    def remove(self) -> None:
        """Remove the files; missing ones are ignored. Raises OSError."""
        self._cache.forget(self)
        for suffix in reversed(SEGMENT_SUFFIXES):
            if self._disk.exists(self.path(suffix)):
                self._disk.remove(self.path(suffix))

    def _open_read(self, suffix: str) -> ReadFile:
        try:
            opened = super()._open_read(suffix)
        except FileNotFoundError:
            opened = super()._open_read(suffix)  # the file was renamed after the path was computed
        if self._kept is None:
            return opened
        opened.close()  # the name may belong to the other file by now
        if suffix == LOG:
            return self._kept
        raise FileNotFoundError(errno.ENOENT, "replaced", self.path(suffix))

    def _mark_used(self) -> None:
        if not self.is_pinned and self._kept is None:  # a replaced file is closed by its last reader
            held = (self._offsets, self._times, self._aborted)
            self._cache.use(self, sum(index.size_bytes for index in held if index))
