"""Snapshots of a compacted partition: the newest record of each key below an offset, for loading without a full read.

The file is `<20-digit end offset>-<10-digit leader epoch>.checkpoint` in the partition's folder, named like KRaft's
snapshots; the epoch is that of the record before the end offset.

    record batches    format v2, offsets as in the log and increasing, all below the end offset; no tombstones
    footer            40 bytes, big-endian:
        0     8       "sparksnp"
        8     8       bytes of record batches
        16    8       number of records
        24    8       end offset
        32    4       CRC-32C of the record batches
        36    4       CRC-32C of the footer before it

A snapshot is written as `….checkpoint.<n>.part`, verified, flushed, renamed, and the folder flushed: a crash leaves a
complete file or none, and the footer reveals a file that is torn nevertheless. The caller flushes the log below the end
offset first: otherwise a power cut could leave a snapshot of records that are lost.

A snapshot is valid while the log reaches its end offset, with the same leader epoch there. Truncation below its end, a
newer snapshot, and deletion of the partition remove it. A loader must check that the log above the end has no gaps.
Otherwise compaction may have removed tombstones there, and the keys that they deleted would reappear.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from crc32c import crc32c

from sparklog.base.errors import CorruptRecord, InvalidRecord
from sparklog.base.fs import Buffer, File, Fs, ReadFile
from sparklog.log.epochs import LeaderEpochs
from sparklog.log.files import CHECKPOINT, snapshot_name, snapshot_of
from sparklog.log.segment.scan import PIECE_BYTES, check_batches, file_crc32c
from sparklog.records.batch import HEADER_SIZE, MAGIC, BatchHeader, iterate_headers, read_header

_MAGIC = b"sparksnp"
_FOOTER = struct.Struct(">8sqqqI")
_CRC = struct.Struct(">I")
FOOTER_BYTES = _FOOTER.size + _CRC.size
_PART = ".part"
logger = logging.getLogger(__name__)


class SnapshotId(NamedTuple):
    """The end of the records in a snapshot: the end offset, and the leader epoch of the record before it."""

    end_offset: int
    leader_epoch: int


class SnapshotWriter:
    """Writer of a snapshot in pieces: end with `finish` and `put`, or with `abort`. Methods block and raise OSError."""

    def __init__(self, fs: Fs, file: File, part: str, path: str, snapshot: SnapshotId) -> None:
        self.id = snapshot
        self._fs = fs
        self._file = file
        self._part = part
        self._path = path
        self._size = self._crc = 0

    @classmethod
    def create(cls, fs: Fs, folder: str, snapshot: SnapshotId, number: int) -> SnapshotWriter:
        """Return the writer of a new file under a working name with `number` in it; an older such file is emptied."""
        path = f"{folder}/{snapshot_name(*snapshot)}"
        part = f"{path}.{number}{_PART}"
        file = fs.open(part, create=True)
        file.truncate(0)
        return cls(fs, file, part, path, snapshot)

    def append(self, data: Buffer) -> None:
        """Append the next bytes of record batches, split at any position."""
        self._file.append(data)
        self._crc = crc32c(data, self._crc)
        self._size += len(data)

    def finish(self) -> int:
        """Verify and flush the file, still under its working name, and return its size in bytes.

        Raises CorruptRecord or InvalidRecord if it is no valid snapshot, and removes it.
        """
        try:
            records = self._verify()
            footer = _FOOTER.pack(_MAGIC, self._size, records, self.id.end_offset, self._crc)
            self._file.append(footer + _CRC.pack(crc32c(footer)))
            self._file.flush()
        except BaseException:
            self.abort()
            raise
        self._file.close()
        return self._size + FOOTER_BYTES

    def put(self) -> None:
        """Rename the finished snapshot to its final name."""
        self._fs.rename(self._part, self._path)

    def abort(self) -> None:
        """Close and remove the unfinished file. Raises OSError."""
        self._file.close()
        self._fs.remove(self._part)

    def _verify(self) -> int:
        """Check the batches and return the number of records. Raises CorruptRecord or InvalidRecord."""
        position = records = 0
        for place in check_batches(self._file, 0, self._size, 0):
            if place.magic != MAGIC or place.last_offset >= self.id.end_offset:
                raise InvalidRecord(f"a snapshot up to {self.id.end_offset} holds a batch up to {place.last_offset}")
            header = read_header(self._file.read_at(place.position, HEADER_SIZE))
            if header.is_transactional or header.is_control:
                raise InvalidRecord(f"a snapshot holds a transactional batch at offset {place.base_offset}")
            position, records = place.end, records + header.record_count
        if position != self._size:
            raise CorruptRecord(f"a snapshot holds no sound batch at position {position} of {self._size}")
        return records


class Snapshot(NamedTuple):
    """A complete, open snapshot. It stays readable after its removal."""

    id: SnapshotId
    records: int
    file: ReadFile

    def read(self) -> Iterator[bytes]:
        """Yield the record batches in pieces of whole batches. Raises OSError or CorruptRecord."""
        position, end = 0, self.file.size - FOOTER_BYTES
        while position < end:
            data = self.file.read_at(position, min(PIECE_BYTES, end - position))
            if (size := read_header(data).size) > len(data):
                data = self.file.read_at(position, size)
            whole = sum(header.size for _, header in iterate_headers(data))
            if not whole:
                raise CorruptRecord(f"the snapshot up to {self.id.end_offset} has no batch at position {position}")
            yield data[:whole]
            position += whole


class OffsetSnapshots:
    """The snapshots in a partition's folder. Methods block and raise OSError."""

    def __init__(self, fs: Fs, folder: str) -> None:
        self._fs = fs
        self.folder = folder
        self._numbers = count(1)

    def move(self, folder: str) -> None:
        """Record that the snapshots are in `folder` now."""
        self.folder = folder

    def ids(self) -> list[SnapshotId]:
        """Return the ids of the snapshots in the folder, newest first."""
        found = [snapshot_of(name) for name in self._fs.list(self.folder)]
        return sorted((SnapshotId(*each) for each in found if each), reverse=True)

    def open(self, snapshot: SnapshotId) -> tuple[ReadFile, int]:
        """Open a snapshot unchecked; return the file and its bytes of record batches. Raises FileNotFoundError too."""
        file = self._fs.open_read(self._path(snapshot))
        return file, max(0, file.size - FOOTER_BYTES)

    def begin(self, snapshot: SnapshotId) -> SnapshotWriter:
        """Return the writer of a new snapshot, whose file is there. Raises OSError."""
        return SnapshotWriter.create(self._fs, self.folder, snapshot, next(self._numbers))

    def remove(self, which: Callable[[SnapshotId], bool]) -> bool:
        """Remove the snapshots that `which` selects; return whether there were any."""
        gone = [each for each in self.ids() if which(each)]
        for each in gone:
            self._fs.remove(self._path(each))
        return bool(gone)

    def tidy(self, end_offset: int) -> bool:
        """Remove unfinished snapshots, and those above `end_offset`; return whether there were any of the latter."""
        for name in self._fs.list(self.folder):
            if name.endswith(_PART) and snapshot_of(name.partition(CHECKPOINT)[0] + CHECKPOINT):
                self._fs.remove(f"{self.folder}/{name}")
        return self.remove(lambda each: each.end_offset > end_offset)

    def newest(self, what_is_wrong: Callable[[SnapshotId], str]) -> Snapshot | None:
        """Return the newest complete snapshot for which `what_is_wrong` returns an empty string, or None.

        The caller closes it. Skipped snapshots are logged with the reason.
        """
        for each in self.ids():
            fault = what_is_wrong(each)
            if not fault:
                file = self._fs.open_read(self._path(each))
                found = _read_footer(file, each)
                if isinstance(found, Snapshot):
                    return found
                file.close()
                fault = found
            logger.warning("%s is not used: %s", self._path(each), fault)
        return None

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self.folder}/{snapshot_name(*snapshot)}"


def _read_footer(file: ReadFile, snapshot: SnapshotId) -> Snapshot | str:
    """Return the snapshot in the file, or a text with its fault."""
    size = file.size - FOOTER_BYTES
    footer = file.read_at(max(0, size), FOOTER_BYTES)
    if size < 0 or len(footer) < FOOTER_BYTES or _CRC.unpack(footer[-_CRC.size :])[0] != crc32c(footer[: -_CRC.size]):
        return "it has no sound footer"
    magic, records_size, records, end_offset, crc = _FOOTER.unpack(footer[: -_CRC.size])
    if (magic, records_size, end_offset) != (_MAGIC, size, snapshot.end_offset):
        return "its footer is of another file"
    if file_crc32c(file, size) != crc:
        return "its CRC is wrong"
    return Snapshot(snapshot, records, file)


def what_is_stale(snapshot: SnapshotId, epochs: LeaderEpochs, log_start: int, high_watermark: int) -> str:
    """Return why the snapshot cannot belong to a log with these properties; empty if it can."""
    if snapshot.end_offset > high_watermark:
        return f"it ends above the high watermark {high_watermark}"
    if snapshot.end_offset <= log_start:
        return f"the log begins behind it, at {log_start}"
    if (epoch := epochs.epoch_at(snapshot.end_offset - 1)) != snapshot.leader_epoch:
        return f"the record before its end has leader epoch {epoch}"
    return ""


class OffsetGapCheck:
    """Check that the batches from `next_offset` on have a record at every offset, so that compaction has removed none.

    A tombstone that compaction removed leaves only the gap. Check the same bytes that are loaded: a second read of the
    log may return others.
    """

    __slots__ = ("is_unbroken", "next_offset")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.is_unbroken = True

    def take(self, header: BatchHeader) -> None:
        """Add the next batch; the first batch may begin below `next_offset`."""
        is_full = header.record_count == header.last_offset_delta + 1
        self.is_unbroken &= header.base_offset <= self.next_offset and is_full
        self.next_offset = header.next_offset

    def reaches(self, end_offset: int) -> bool:
        """Return whether there was a record at every offset below `end_offset`."""
        return self.is_unbroken and self.next_offset >= end_offset
