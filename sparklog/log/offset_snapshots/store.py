"""The snapshots of a log: taken, read and removed together with its segments (snapshot.py has the file format).

    begin, write, install    take a snapshot of the records below an offset, in pieces; the installation is atomic
    newest, open             read a snapshot, to load the partition or to copy it to a replica

A snapshot never outlives its records: the records below its end are flushed before it is taken, and a truncation below
its end removes it (truncate.py). A start removes unfinished snapshots and those above the log's end. On a full disk
only the snapshot fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparklog.base.errors import OffsetOutOfRange
from sparklog.base.fs import Buffer, Fs
from sparklog.log.disk import without_room
from sparklog.log.flush import Flusher
from sparklog.log.offset_snapshots.snapshot import OffsetSnapshots, Snapshot, SnapshotId, SnapshotWriter, what_is_stale
from sparklog.log.slice import LogSlice
from sparklog.log.state import LogState

Result = TypeVar("Result")


class SnapshotStore:
    """The snapshots beside a log's segments. Methods raise KafkaStorageError if the disk fails."""

    def __init__(self, state: LogState, flusher: Flusher, fs: Fs) -> None:
        self._state = state
        self._flusher = flusher
        self._fs = fs
        self._files = OffsetSnapshots(fs, state.folder)

    def tidy(self) -> None:
        """Remove unfinished snapshots and those above the log's end, at a start. Raises OSError."""
        self._files.tidy(self._state.end_offset)

    def remove_above(self, end_offset: int) -> None:
        """Remove the snapshots above `end_offset`, where the log is truncated. Raises OSError."""
        if self._files.remove(lambda each: each.end_offset > end_offset):
            self._flusher.names_changed()

    def move(self, folder: str) -> None:
        """Record that the log's folder is `folder` now."""
        self._files.move(folder)

    def ids(self) -> list[SnapshotId]:
        """Return the ids of the snapshots, newest first. Raises OSError."""
        return self._files.ids()

    def newest(self, what_is_wrong: Callable[[SnapshotId], str]) -> Snapshot | None:
        """Return the newest intact snapshot for which `what_is_wrong` returns an empty string, or None."""
        with self._state.disk:
            return self._retry(lambda: self._files.newest(what_is_wrong))

    def newest_id(self) -> SnapshotId | None:
        """Return the id of the newest snapshot, unchecked; None if there is none."""
        with self._state.disk:
            return next(iter(self._retry(self._files.ids)), None)

    def open(self, snapshot: SnapshotId) -> LogSlice:
        """Return the snapshot's record batches, for a replica to copy. Raises OffsetOutOfRange if it is gone."""
        with self._state.disk:
            try:
                file, size = self._retry(lambda: self._files.open(snapshot))
            except FileNotFoundError:
                raise OffsetOutOfRange(f"{self._state} has no snapshot up to {snapshot.end_offset}") from None
            return LogSlice(file, 0, size, snapshot.end_offset, self._state.disk)

    def _retry(self, look: Callable[[], Result]) -> Result:
        """Return the result of `look`, called again if the log's folder was renamed meanwhile."""
        folder = self._state.folder
        try:
            return look()
        except FileNotFoundError:
            with self._state.lock:
                if self._state.folder == folder:
                    raise
            return look()

    def begin(self, end_offset: int) -> SnapshotWriter:
        """Return the writer of a snapshot of the records below `end_offset`; `install` completes it.

        Blocks until those records are flushed. Raises OffsetOutOfRange if the log does not hold them.
        """
        state = self._state
        snapshot = SnapshotId(end_offset, state.epochs.epoch_at(end_offset - 1))
        if not state.start_offset < end_offset <= state.end_offset or snapshot.leader_epoch < 0:
            raise OffsetOutOfRange(f"{state} has no records up to {end_offset}")
        self._flusher.flush(end_offset)
        with state.disk, without_room("a snapshot"):
            return self._files.begin(snapshot)

    def write(self, writer: SnapshotWriter, data: Buffer) -> None:
        """Append the next bytes of record batches, split at any position."""
        with self._state.disk, without_room("a snapshot"):
            writer.append(data)

    def abort(self, writer: SnapshotWriter) -> None:
        """Remove an unfinished snapshot."""
        with self._state.disk:
            writer.abort()

    def install(self, writer: SnapshotWriter) -> int:
        """Install a snapshot, which replaces older ones, and return its size in bytes. Blocks until it is durable.

        Raises CorruptRecord or InvalidRecord if it is no valid snapshot, OffsetOutOfRange if the log was truncated
        meanwhile; the snapshot is then removed.
        """
        state = self._state
        with state.disk, without_room("a snapshot"):
            size = writer.finish()
            with state.lock:
                if stale := what_is_stale(writer.id, state.epochs, state.start_offset, state.end_offset):
                    writer.abort()
                    raise OffsetOutOfRange(f"{state} does not take a snapshot up to {writer.id.end_offset}: {stale}")
                writer.put()
                state.segments_changed()
            self._fs.flush_dir(state.folder)
            self._files.remove(lambda each: each < writer.id)
            return size
