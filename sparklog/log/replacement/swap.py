"""The on-disk procedure that replaces adjacent closed segments: the order of its steps, and recovery after a crash.

Segments s0 … sk become one segment with s0's base offset X. Its last batch ends at the offset where the last batch of
the sources ended, if necessary as a header without records. So the new file itself shows which offsets it covers, and
the next offsets follow without a gap. Several new segments are described below.

    A  The caller writes X.log.cleaned, and it is verified: its size and CRC-32C as a whole; for every batch, format v2,
       the CRC, and the offsets (they increase, lie in the sources' range, and end where the sources end).
       X.index.cleaned and X.timeindex.cleaned are built on the way, and X.txnindex.cleaned if the segment has aborted
       transactions, or X has had some. All these files and their names are flushed
    B  the indexes are renamed to .swap and flushed, then the log: from here on, the new segment is in force
    C  X.timeindex.swap is renamed to X.timeindex and flushed, then X.log.swap to X.log, over the old files; flushed.
       The time index goes first: the new time index is valid for the batches of the old log that stay; the old index
       is not valid for the new log, because it lacks the entries of s1 … sk
    D  s1 … sk are renamed to .deleted; flushed
    E  X.txnindex.swap is renamed to X.txnindex, and X.index.swap to X.index; flushed. Until then the mark of X.index
       means that s1 … sk may still exist

Several new segments n0 … nm, where n0 has s0's base offset: each ends where the next one begins, the last one where the
sources ended. Each step is done for all segments before the next step; B and C go from the highest to the lowest, one
rename and one flush after the other. The new segments are in force once n0's log, the last of them, is .swap. During C
new and old segments may overlap: one may begin in the middle of the other. But the segment after a new one is in place
before it, so each file has the offsets up to where the next file begins. An sj with the base offset of a new segment
loses its name to it in C, and is not part of D.

At every moment each offset lies in a file that is in use, so a reader of the folder finds no hole. Between C and D it
finds segments that overlap, and the mark of X.index shows that the new segment's offsets count (reader.py). The offset
index is a hint (read_segment.py), so a reader can use the old one. The old and new transaction indexes together, with
X.txnindex.swap, always name the aborted transactions of the batches that a reader finds. They may also name
transactions whose markers a cleaner has removed.

Opening the folder after a crash (`finish_swaps`) leaves either the old segments or the new one, never a mixture:

    before the log is renamed in B    X.log.cleaned exists: all marked files of X are removed, and those above X
    later      X.log.swap, if it still exists, is renamed to X.log. Segments that begin in the range of X.log are
               removed. The indexes of X are removed and rebuilt: renames may have reached the disk in another order, so
               it is unknown which index belongs to which file. X.txnindex is made unreadable, so that an opening builds
               it again, even after another crash. X.index.swap is removed last

Files that Apache Kafka left as .swap are completed in the same way. Kafka marks the log before the indexes, and several
segments at once, the last one first; so a Kafka .swap at or above a .cleaned is not complete.

Everything is read in pieces: memory does not grow with the size of a segment.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

from crc32c import crc32c
from msgspec import Struct

from sparklog.base.config_keys import MAX_INT, MAX_LONG
from sparklog.base.errors import CorruptRecord, InvalidRecord, InvalidUpdateVersion, KafkaStorageError, ResourceNotFound
from sparklog.base.fs import Buffer, File, Fs, ReadFile
from sparklog.base.topic_config import TopicConfig
from sparklog.log.disk import DiskGuard, without_room
from sparklog.log.files import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    SegmentFile,
    parse_name,
    path_in,
    segment_name,
)
from sparklog.log.segment.cache import SegmentCache
from sparklog.log.segment.indexes import MAX_RELATIVE_OFFSET
from sparklog.log.segment.scan import BatchPlace, check_batches, walk
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.segment_writer import SegmentWriter
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.records.batch import MAGIC

INDEXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
UNREADABLE = b"?"
"""The content of an unreadable transaction index: half an entry, so that an opening rebuilds it."""
LookForAborted = Callable[[ReadFile, BatchPlace], AbortedTransaction | None]
logger = logging.getLogger(__name__)


class ExpectedSegment(Struct, frozen=True, kw_only=True):
    """The expected properties of a staged file."""

    last_offset: int
    """The last offset of the sources' last batch; -1 if they have none."""
    latest_epoch: int
    """The greatest leader epoch that a batch may have."""
    size_bytes: int
    crc32c: int


class Swap:
    """The replacement by one staged segment, alone or as one of `Swaps`. Methods raise OSError."""

    def __init__(self, fs: Fs, folder: str, base_offset: int, config: TopicConfig, cache: SegmentCache) -> None:
        """Prepare the object; touch no file yet."""
        self.segment = Segment(fs, folder, base_offset, 0, cache, mark=CLEANED)
        """The new segment; pinned until `close`, with its indexes in memory."""
        self._fs = fs
        self._folder = folder
        self._config = config
        self._active: SegmentWriter | None = None

    def verify(
        self,
        expected: ExpectedSegment,
        now_ms: int,
        is_wanted: Callable[[], bool] = lambda: True,
        look_for_aborted: LookForAborted = lambda *_: None,
    ) -> None:
        """Do step A. Raises ResourceNotFound, CorruptRecord, InvalidRecord or KafkaStorageError too.

        Raises InvalidUpdateVersion once `is_wanted` returns False. look_for_aborted: called for each batch; returns the
        transaction that it aborts.
        """
        if not self._fs.exists(self.segment.path(LOG)):
            raise ResourceNotFound(f"nothing is staged at {self.segment.path(LOG)}")
        try:
            self._fs.open(self.segment.path(LOG)).close()
        except PermissionError as error:  # another user's file: the disk is fine
            raise KafkaStorageError(f"the staged file may not be read and written: {error}") from error
        if self.segment.file.size != expected.size_bytes or expected.size_bytes > MAX_INT:
            raise CorruptRecord(f"{self.segment} has {self.segment.file.size} bytes, expected {expected.size_bytes}")
        with without_room(f"the indexes of {self.segment}"):
            self.segment.extend_to(expected.size_bytes)
            self._remove(INDEXES, CLEANED)
            self._active = SegmentWriter.open(self._fs, self.segment, self._config, now_ms, rebuild_indexes=True)
            self._check_batches(expected, self._active, is_wanted, look_for_aborted)
            if self._fs.exists(path_in(self._folder, SegmentFile(self.segment.base_offset, TXN_INDEX, ""))):
                self._fs.open(self.segment.path(TXN_INDEX), create=True).close()
                self.segment.expect_aborted()
            self._active.flush_indexes()
            self.segment.flush()
            self._fs.flush_dir(self._folder)
        self.segment.mark_flushed(expected.crc32c)

    def _check_batches(
        self,
        expected: ExpectedSegment,
        active: SegmentWriter,
        is_wanted: Callable[[], bool],
        look_for_aborted: LookForAborted,
    ) -> None:
        file = _ChecksummedFile(self.segment.file)
        position, last_offset = 0, -1
        for place in check_batches(file, 0, expected.size_bytes, self.segment.base_offset):
            self._check(expected, place)
            if not is_wanted():
                raise InvalidUpdateVersion(f"{self.segment} is not wanted any more")
            active.add(place.position, place.size, place.last_offset, place.max_timestamp_ms)
            if aborted := look_for_aborted(file, place):
                active.add_aborted(aborted)
            position, last_offset = place.end, place.last_offset
        if position != expected.size_bytes:
            raise CorruptRecord(f"{self.segment}: no whole batch after offset {last_offset} at position {position}")
        if file.crc != expected.crc32c:
            raise CorruptRecord(f"{self.segment} has the CRC-32C {file.crc}, expected {expected.crc32c}")
        if last_offset != expected.last_offset:
            raise InvalidRecord(
                f"{self.segment} ends with offset {last_offset}, its sources with {expected.last_offset}"
            )

    def _check(self, expected: ExpectedSegment, place: BatchPlace) -> None:
        if place.magic != MAGIC:
            raise InvalidRecord(f"{self.segment}: message format v{place.magic} at offset {place.base_offset}")
        if (
            place.last_offset > expected.last_offset
            or place.last_offset - self.segment.base_offset > MAX_RELATIVE_OFFSET
        ):
            raise InvalidRecord(f"{self.segment}: offset {place.last_offset} is above {expected.last_offset}")
        if place.leader_epoch > expected.latest_epoch:
            raise InvalidRecord(f"{self.segment}: leader epoch {place.leader_epoch}, after {expected.latest_epoch}")

    def mark_indexes(self) -> None:
        """Rename the indexes from .cleaned to .swap."""
        for suffix in INDEXES:
            if suffix != TXN_INDEX or self.segment.has_aborted:
                self._rename(suffix, CLEANED, SWAP)

    def mark_log(self) -> None:
        """Rename the log from .cleaned to .swap."""
        self._rename(LOG, CLEANED, SWAP)

    def unmark_log(self) -> None:
        """Remove .swap from the time index's name, then from the log's; each rename is flushed."""
        for suffix in (TIME_INDEX, LOG):
            self._rename(suffix, SWAP, "")
            self._fs.flush_dir(self._folder)
        self.segment.unmark()

    def unmark_indexes(self) -> None:
        """Remove .swap from the transaction index's name, then from the offset index's."""
        if self.segment.has_aborted:
            self._rename(TXN_INDEX, SWAP, "")
        self._rename(OFFSET_INDEX, SWAP, "")

    def drop_mark(self) -> None:
        """Remove the log marked .swap before it comes into force."""
        self._remove((LOG,), SWAP)

    def close(self) -> None:
        """Close the segment writer."""
        if self._active:
            self._active.close()
            self._active = None

    def discard(self) -> None:
        """Remove the staged files of a replacement that is not in force."""
        with contextlib.suppress(OSError):  # on a full disk; the files are removed anyway
            self.close()
        self._remove(INDEXES, SWAP)
        self.segment.remove()

    def _rename(self, suffix: str, mark: str, to: str) -> None:
        path = f"{self._folder}/{segment_name(self.segment.base_offset, suffix)}"
        self._fs.rename(path + mark, path + to)

    def _remove(self, suffixes: tuple[str, ...], mark: str) -> None:
        for suffix in suffixes:
            _remove(self._fs, path_in(self._folder, SegmentFile(self.segment.base_offset, suffix, mark)))


class Swaps:
    """The replacement by several staged segments, in the order of their offsets. Methods raise OSError."""

    def __init__(self, fs: Fs, folder: str, swaps: Sequence[Swap]) -> None:
        self.is_in_force = False
        """The replacement can no longer be undone: it is completed now, or when the folder is next opened."""
        self._fs = fs
        self._folder = folder
        self._swaps = swaps

    @property
    def segments(self) -> list[Segment]:
        """The new segments, in the order of their offsets."""
        return [swap.segment for swap in self._swaps]

    def commit(self) -> None:
        """Do step B. First remove other staged files in the folder, which have no owner."""
        bases = {segment.base_offset for segment in self.segments}
        with without_room(f"the names of {self.segments}"):
            for file in _files_in(self._fs, self._folder):
                if file.mark == CLEANED and file.base_offset not in bases:
                    self._fs.remove(path_in(self._folder, file))
            for swap in self._swaps:
                swap.mark_indexes()
            self._fs.flush_dir(self._folder)
            for swap in reversed(self._swaps[1:]):
                swap.mark_log()
                self._fs.flush_dir(self._folder)
            self._swaps[0].mark_log()
        self.is_in_force = True
        self._fs.flush_dir(self._folder)

    def put_in_place(self) -> None:
        """Do step C."""
        for swap in reversed(self._swaps):
            swap.unmark_log()

    def finish(self) -> None:
        """Flush the renames of step D, which the caller has done, and do step E."""
        self._fs.flush_dir(self._folder)
        for swap in self._swaps:
            swap.unmark_indexes()
        self._fs.flush_dir(self._folder)
        for swap in self._swaps:
            swap.close()

    def discard(self) -> None:
        """Remove the staged files of a replacement that is not in force.

        The .swap logs go first: without a .cleaned file at a lower offset, they would count as in force.
        """
        for swap in self._swaps[1:]:
            swap.drop_mark()
        if self._swaps[1:]:
            self._fs.flush_dir(self._folder)
        for swap in self._swaps:
            swap.discard()


class StagedFile:
    """A staged file, empty at first. Methods block and raise KafkaStorageError; a full disk affects only this file."""

    def __init__(self, file: File, path: str, disk: DiskGuard) -> None:
        self._file = file
        self._path = path
        self._disk = disk

    @classmethod
    def create(cls, fs: Fs, path: str, disk: DiskGuard) -> StagedFile:
        """Create the file, or open the one that is there. Raises KafkaStorageError."""
        with disk, without_room(path):
            return cls(fs.open(path, create=True), path, disk)

    def append(self, data: Buffer) -> None:
        """Append bytes at the end."""
        with self._disk, without_room(self._path):
            self._file.append(data)

    def close(self) -> None:
        """Close the file. Dropping the last reference to a staged file closes it, too."""
        self._file.close()


class _ChecksummedFile:
    """A file that computes the CRC-32C of its content while it is read from start to end; rereads do not count."""

    def __init__(self, file: ReadFile) -> None:
        self.crc = 0
        self._file = file
        self._end = 0

    @property
    def size(self) -> int:
        return self._file.size

    def read_at(self, offset: int, size: int) -> bytes:
        data = self._file.read_at(offset, size)
        if offset <= self._end < offset + len(data):
            self.crc = crc32c(memoryview(data)[self._end - offset :], self.crc)
            self._end = offset + len(data)
        return data

    def close(self) -> None:
        self._file.close()


def staged_path(folder: str, base_offset: int) -> str:
    """Return the path of the file to which the new segment's batches are written."""
    return path_in(folder, SegmentFile(base_offset, LOG, CLEANED))


def remove_staged(fs: Fs, folder: str, base_offset: int) -> None:
    """Remove the staged files of a segment, if any. Raises OSError."""
    for suffix in reversed(SEGMENT_SUFFIXES):
        _remove(fs, path_in(folder, SegmentFile(base_offset, suffix, CLEANED)))


# After a crash


def finish_swaps(fs: Fs, folder: str) -> None:
    """Complete or abandon an interrupted replacement, and remove .deleted files. Can be repeated. Raises OSError."""
    files = _files_in(fs, folder)
    if not any(file.mark for file in files):
        return
    complete = _drop_incomplete(fs, folder, files)
    logs = {file.base_offset for file in complete if file.suffix == LOG}
    bases = {file.base_offset for file in complete if file.mark == SWAP} & logs
    if bases:
        _carry_on(fs, folder, complete, bases)
        logger.info("%s: carried on with the replaced segments at %s", folder, sorted(bases))
    for file in _files_in(fs, folder):
        if file.mark:
            fs.remove(path_in(folder, file))
    fs.flush_dir(folder)


def _drop_incomplete(fs: Fs, folder: str, files: list[SegmentFile]) -> list[SegmentFile]:
    """Remove the .swap files of incomplete logs; return the remaining files except .deleted and .cleaned ones."""
    incomplete = min((file.base_offset for file in files if file.mark == CLEANED), default=MAX_LONG)
    dropped = [
        file for file in files if file.mark == SWAP and file.suffix not in INDEXES and file.base_offset >= incomplete
    ]
    for file in dropped:
        fs.remove(path_in(folder, file))
    if dropped:
        fs.flush_dir(folder)
    return [file for file in files if file.mark in (SWAP, "") and file not in dropped]


def _carry_on(fs: Fs, folder: str, files: list[SegmentFile], bases: set[int]) -> None:
    """Put the segments at `bases` in place and remove the segments in their range. Keep the offset indexes' mark."""
    renamed = [file for file in files if file.mark == SWAP and file.suffix not in INDEXES]
    for file in renamed:
        fs.open(path_in(folder, file._replace(suffix=OFFSET_INDEX)), create=True).close()
    for base in {file.base_offset for file in files if file.suffix == TXN_INDEX} & bases:
        _make_unreadable(fs, path_in(folder, SegmentFile(base, TXN_INDEX, "")))
    fs.flush_dir(folder)
    for file in sorted(renamed, reverse=True):  # as in step C
        fs.rename(path_in(folder, file), path_in(folder, file._replace(mark="")))
    fs.flush_dir(folder)
    covered = [range(base + 1, _end_of(fs, folder, base)) for base in bases]
    for file in _files_in(fs, folder):
        is_old_index = file.base_offset in bases and file.suffix in (OFFSET_INDEX, TIME_INDEX)
        is_replaced = file.suffix != SNAPSHOT and any(file.base_offset in offsets for offsets in covered)
        if not file.mark and (is_old_index or is_replaced):
            fs.remove(path_in(folder, file))
    fs.flush_dir(folder)


def _make_unreadable(fs: Fs, path: str) -> None:
    file = fs.open(path, create=True)
    try:
        file.truncate(0)
        file.append(UNREADABLE)
        file.flush()
    finally:
        file.close()


def _end_of(fs: Fs, folder: str, base_offset: int) -> int:
    """Return the offset after the last batch of a segment; its base offset if it has no batches."""
    opened = fs.open_read(path_in(folder, SegmentFile(base_offset, LOG, "")))
    try:
        end = base_offset
        for place in walk(opened, 0, opened.size):
            end = place.last_offset + 1
        return end
    finally:
        opened.close()


def _files_in(fs: Fs, folder: str) -> list[SegmentFile]:
    return [file for file in map(parse_name, fs.list(folder)) if file]


def _remove(fs: Fs, path: str) -> None:
    if fs.exists(path):
        fs.remove(path)
