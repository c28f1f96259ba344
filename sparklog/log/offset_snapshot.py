"""Snapshots of a compacted partition: the newest record of each key below an offset, so that who loads the partition
need not read everything below.

`<20-digit end offset>-<10-digit leader epoch>.checkpoint` in the partition's folder, named as KRaft names its own; the
epoch is that of the record before the end offset.

    record batches    format v2, offsets as in the log and increasing, all below the end offset; no tombstones
    footer            40 bytes, big-endian:
        0     8       "sparksnp"
        8     8       bytes of record batches
        16    8       number of records
        24    8       end offset
        32    4       CRC-32C of the record batches
        36    4       CRC-32C of the footer before it

Written as `….checkpoint.<n>.part`, verified, flushed, renamed, and the folder flushed: a crash leaves it whole or not
at all, and a file that is torn all the same is told by its footer. What the log below the end offset says must be
durable first, or a power cut could leave a snapshot of records that are lost: whoever installs one flushes the log.

A snapshot counts while the log holds what it was made of: up to its end offset, with the same leader epoch there.
Truncation below its end, a newer one, and the partition's end remove it. It says nothing of what the log has lost above
its end: whoever loads it sees whether the tail is as it was written. Compaction beyond the snapshot may have removed
tombstones there, and what they deleted would live again.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from crc32c import crc32c

from sparklog.base.errors import CorruptRecord, InvalidRecord
from sparklog.base.fs import Buffer, Fs, ReadFile
from sparklog.log.epochs import LeaderEpochs
from sparklog.log.files import CHECKPOINT, snapshot_name, snapshot_of
from sparklog.log.segment.scan import PIECE_BYTES, check_batches, file_crc32c
from sparklog.records.batch import HEADER_SIZE, MAGIC, iterate_headers, read_header

_MAGIC = b"sparksnp"
_FOOTER = struct.Struct(">8sqqqI")
_CRC = struct.Struct(">I")
FOOTER_BYTES = _FOOTER.size + _CRC.size
_PART = ".part"
logger = logging.getLogger(__name__)


class SnapshotId(NamedTuple):
    """Of what a snapshot is the sum."""

    end_offset: int
    leader_epoch: int


class SnapshotWriter:
    """A snapshot that comes in pieces: `finish` and `put` it, or `abort`. Methods block, and raise OSError."""

    def __init__(self, fs: Fs, folder: str, snapshot: SnapshotId, number: int) -> None:
        self._fs = fs
        self.id = snapshot
        self._path = f"{folder}/{snapshot_name(*snapshot)}"
        self._part = f"{self._path}.{number}{_PART}"
        self._file = fs.open(self._part, create=True)
        self._file.truncate(0)
        self._size = self._crc = 0

    def append(self, data: Buffer) -> None:
        """Take the next bytes of record batches, which may be cut anywhere."""
        self._file.append(data)
        self._crc = crc32c(data, self._crc)
        self._size += len(data)

    def finish(self) -> int:
        """Verify and flush it, still under its working name; -> its size.

        Raises CorruptRecord or InvalidRecord, and leaves nothing behind, where it may not be one.
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
        """Give the finished snapshot its name."""
        self._fs.rename(self._part, self._path)

    def abort(self) -> None:
        self._file.close()
        self._fs.remove(self._part)

    def _verify(self) -> int:
        """The number of records. Raises CorruptRecord or InvalidRecord."""
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
    """A whole one, open. It stays readable when it is removed."""

    id: SnapshotId
    records: int
    file: ReadFile

    def read(self) -> Iterator[bytes]:
        """Its record batches, whole ones, in pieces. Raises OSError, or CorruptRecord."""
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
    """The snapshots in a partition's folder. Methods block, and raise OSError."""

    def __init__(self, fs: Fs, folder: str) -> None:
        self._fs = fs
        self.folder = folder
        self._numbers = count(1)

    def ids(self) -> list[SnapshotId]:
        """Those that are there, newest first."""
        found = [snapshot_of(name) for name in self._fs.list(self.folder)]
        return sorted((SnapshotId(*each) for each in found if each), reverse=True)

    def open(self, snapshot: SnapshotId) -> tuple[ReadFile, int]:
        """The file, and how many bytes of record batches it has; nothing is checked. Raises FileNotFoundError too."""
        file = self._fs.open_read(self._path(snapshot))
        return file, max(0, file.size - FOOTER_BYTES)

    def begin(self, snapshot: SnapshotId) -> SnapshotWriter:
        return SnapshotWriter(self._fs, self.folder, snapshot, next(self._numbers))

    def remove(self, which: Callable[[SnapshotId], bool]) -> bool:
        """Remove those that `which` picks; whether there were any."""
        gone = [each for each in self.ids() if which(each)]
        for each in gone:
            self._fs.remove(self._path(each))
        return bool(gone)

    def tidy(self, end_offset: int) -> bool:
        """After a start: what was never finished goes, and what is of more than the log still holds."""
        for name in self._fs.list(self.folder):
            if name.endswith(_PART) and snapshot_of(name.partition(CHECKPOINT)[0] + CHECKPOINT):
                self._fs.remove(f"{self.folder}/{name}")
        return self.remove(lambda each: each.end_offset > end_offset)

    def newest(self, what_is_wrong: Callable[[SnapshotId], str]) -> Snapshot | None:
        """The newest that is whole and that `what_is_wrong` has nothing against, to be closed by the caller.

        What is passed over is logged with the reason.
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
    """The snapshot in the file, or what is wrong with it."""
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
    """Why a log is not one that the snapshot can be of; empty where it can."""
    if snapshot.end_offset > high_watermark:
        return f"it ends above the high watermark {high_watermark}"
    if snapshot.end_offset <= log_start:
        return f"the log begins behind it, at {log_start}"
    if (epoch := epochs.epoch_at(snapshot.end_offset - 1)) != snapshot.leader_epoch:
        return f"the record before its end has leader epoch {epoch}"
    return ""
