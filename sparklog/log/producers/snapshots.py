"""Snapshots of producer state: what an idempotent producer's next batch is checked against, as of an offset.

`<offset>.snapshot` describes every producer with records below `offset`:

    position  size  field
    0         2     version: 1
    2         4     CRC-32C of everything behind it
    6         4     number of entries; each:
              8     producer id
              2     producer epoch
              4     last sequence; -1: no batch
              8     last offset; -1: no batch
              4     offset delta: last offset, less the first one's of that batch
              8     timestamp of the last batch or transaction marker, ms
              4     coordinator epoch of the last transaction marker; -1: none
              8     first offset of the transaction in progress; -1: none

A snapshot is taken where a segment begins and where a log is closed, so that state can be had from the last snapshot
and the batches behind it (recovery.py). A corrupt or missing one costs only a longer walk.

A snapshot says the same as the batches below its offset: one above the end of a log that was cut is removed, and the
names flushed, before any other records can get those offsets.
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
    """A snapshot file is not what it should be."""


class ProducerEntry(NamedTuple):
    """What is known of one producer; -1 wherever there is nothing to know."""

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
        """The first sequence number of the last batch; they wrap around at 2^31."""
        return (self.last_sequence - self.offset_delta) % (1 << 31)


def write_snapshot(entries: Iterable[ProducerEntry] = ()) -> bytes:
    """A snapshot file's content."""
    rows = list(entries)
    body = struct.pack(">i", len(rows)) + b"".join(_ENTRY.pack(*row) for row in rows)
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def read_snapshot(data: bytes) -> list[ProducerEntry]:
    """The entries of a snapshot file. Raises CorruptSnapshot, in DumpLogSegments' words where it has some."""
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


class SnapshotFiles:
    """The snapshots in a partition's folder. They are flushed with the segments that begin where they were taken."""

    def __init__(self, fs: Fs, folder: str) -> None:
        """Raises OSError."""
        self.folder = folder
        self._fs = fs
        names = [file for file in map(parse_name, fs.list(folder)) if file]
        self._offsets = {file.base_offset for file in names if file.suffix == SNAPSHOT and not file.mark}

    @property
    def offsets(self) -> list[int]:
        """Where snapshots were taken, in their order."""
        return sorted(self._offsets)

    def take(self, offset: int, entries: Iterable[ProducerEntry], *, flush: bool = False) -> bool:
        """Producer state as of `offset`, unless there is a snapshot of that or a later offset; whether there was not.

        Raises OSError.
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

    def read(self, offset: int) -> list[ProducerEntry]:
        """Raises CorruptSnapshot or OSError."""
        return read_snapshot(read_file(self._fs, self._path(offset)))

    def remove(self, which: Callable[[int], bool]) -> bool:
        """Remove the snapshots whose offsets `which` picks; whether there were any. Raises OSError."""
        found = [offset for offset in self._offsets if which(offset)]
        for offset in found:
            self._fs.remove(self._path(offset))
            self._offsets.discard(offset)
        return bool(found)

    def _path(self, offset: int) -> str:
        return f"{self.folder}/{segment_name(offset, SNAPSHOT)}"
