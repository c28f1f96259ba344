"""Snapshots of producer state as of an offset, against which the next batches of idempotent producers are checked.

`<offset>.snapshot` describes every producer with records below `offset`. A producer may have several entries, one for
each of its last batches, oldest first. Kafka writes one, and of several it reads the last:

    position  size  field
    0         2     version: 1
    2         4     CRC-32C of everything after it
    6         4     number of entries; each:
              8     producer id
              2     producer epoch
              4     last sequence; -1: no batch
              8     last offset; -1: no batch
              4     offset delta: last offset less first offset of that batch
              8     timestamp of the last batch or transaction marker, ms
              4     coordinator epoch of the last transaction marker; -1: none
              8     first offset of the transaction in progress; -1: none

A snapshot is taken at the base offset of each new segment and at the end of a log when it is closed. The state is
rebuilt from the last snapshot and the batches after it (recovery.py). A corrupt or missing snapshot costs only a longer
walk.

A snapshot must agree with the batches below its offset. So a truncation removes the snapshots above the log's end, and
flushes the names, before new records can get those offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from crc32c import crc32c

from sparklog.base.errors import SparklogError
from sparklog.base.fs import Fs
from sparklog.log.directory.checkpoints import read_file
from sparklog.log.files import SNAPSHOT, parse_name, segment_name

VERSION = 1
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_ENTRIES_AT = 6
NONE = -1


class CorruptSnapshot(SparklogError):
    """A snapshot file cannot be read."""


class ProducerEntry(NamedTuple):
    """The state of one producer after a batch; -1 for every value that does not exist."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int

    @property
    def first_sequence(self) -> int:
        """The first sequence number of the batch; sequence numbers wrap around at 2^31."""
        return (self.last_sequence - self.offset_delta) % (1 << 31)


def write_snapshot(entries: Iterable[ProducerEntry] = ()) -> bytes:
    """Return a snapshot file's content."""
    rows = list(entries)
    body = struct.pack(">i", len(rows)) + b"".join(_ENTRY.pack(*row) for row in rows)
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def read_snapshot(data: bytes) -> list[ProducerEntry]:
    """Return the entries of a snapshot file. Raises CorruptSnapshot, with DumpLogSegments' texts where it has one."""
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(f"Snapshot failed schema validation: {len(data)} bytes")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"Snapshot contained an unknown file version {version}")
    if not 0 <= count <= (len(data) - _HEAD.size) // _ENTRY.size:
        raise CorruptSnapshot(f"Snapshot failed schema validation: {count} entries in {len(data)} bytes")
    computed = crc32c(memoryview(data)[_ENTRIES_AT:])
    if crc != computed:
        raise CorruptSnapshot(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {computed}"
        )
    end = _HEAD.size + count * _ENTRY.size
    return [ProducerEntry._make(row) for row in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size : end])]


class ProducerSnapshots:
    """The snapshots in a partition's folder. Each is flushed with the segment that begins at its offset."""

    def __init__(self, fs: Fs, folder: str, offsets: Iterable[int]) -> None:
        self.folder = folder
        self._fs = fs
        self._offsets = set(offsets)

    @classmethod
    def open(cls, fs: Fs, folder: str) -> ProducerSnapshots:
        """Return the snapshots that the folder has. Raises OSError."""
        names = [file for file in map(parse_name, fs.list(folder)) if file]
        return cls(fs, folder, (file.base_offset for file in names if file.suffix == SNAPSHOT and not file.mark))

    @property
    def offsets(self) -> list[int]:
        """The offsets of the snapshots, increasing. Any thread."""
        return sorted(self._offsets)

    def take(self, offset: int, entries: Iterable[ProducerEntry], *, flush: bool = False) -> bool:
        """Write a snapshot as of `offset`, unless this or a later one exists; return whether it was written.

        No snapshot is written for offset 0. Raises OSError.
        """
        if offset <= max(self._offsets, default=0):
            return False
        file = self._fs.open(self._path(offset), create=True)
        try:
            file.truncate(0)
            file.append(write_snapshot(entries))
            if flush:
                file.flush()
        finally:
            file.close()
        self._offsets.add(offset)
        return True

    def move(self, folder: str) -> None:
        """Record that the snapshots are in `folder` now."""
        self.folder = folder

    def read(self, offset: int) -> list[ProducerEntry]:
        """Return the entries of the snapshot at `offset`. Raises CorruptSnapshot or OSError."""
        return read_snapshot(read_file(self._fs, self._path(offset)))

    def remove(self, which: Callable[[int], bool]) -> bool:
        """Remove the snapshots whose offsets `which` selects; return whether there were any. Raises OSError."""
        found = [offset for offset in self._offsets if which(offset)]
        for offset in found:
            self._fs.remove(self._path(offset))
            self._offsets.discard(offset)
        return bool(found)

    def _path(self, offset: int) -> str:
        return f"{self.folder}/{segment_name(offset, SNAPSHOT)}"
