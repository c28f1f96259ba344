"""Snapshots of the newest records of each key, kept beside a log's segments (offset_snapshot.py has the files).

    begin, write, install    take one of the records below an offset, in pieces; it is there as a whole, or not at all
    newest, open             read one, as who loads the partition and a replica that copies it do

A snapshot says what records said, so it never outlives them: those below its end are on the disk before it is taken,
and a truncation below its end removes it (cuttable.py). What lies there at the start and is not of this log goes too.

A disk without room for a snapshot fails the snapshot alone.
"""

from __future__ import annotations

from collections.abc import Callable

from sparklog.base.clock import Clock
from sparklog.base.errors import OffsetOutOfRange
from sparklog.base.fs import Buffer
from sparklog.log.disk import DiskGuard, without_room
from sparklog.log.offset_snapshot import OffsetSnapshots, Snapshot, SnapshotId, SnapshotWriter, what_is_stale
from sparklog.log.recovery import Loading
from sparklog.log.replaceable import ReplaceableLog
from sparklog.log.room import Room
from sparklog.log.slice import LogSlice


class SnapshottedLog(ReplaceableLog):
    """The part of a `Log` that keeps snapshots of it. Where the disk fails, methods raise KafkaStorageError."""

    def __init__(
        self, loaded: Loading, disk: DiskGuard, clock: Clock, remember: Callable[[], None], room: Room
    ) -> None:
        super().__init__(loaded, disk, clock, remember, room)
        self._offset_snapshots = OffsetSnapshots(loaded.fs, loaded.folder)
        self._offset_snapshots.tidy(loaded.end_offset)

    def newest_snapshot(self, what_is_wrong: Callable[[SnapshotId], str]) -> Snapshot | None:
        """The newest that is whole, and that `what_is_wrong` has nothing against."""
        with self._disk:
            return self._offset_snapshots.newest(what_is_wrong)

    def newest_snapshot_id(self) -> SnapshotId | None:
        """As its name says, whatever is in it."""
        with self._disk:
            return next(iter(self._offset_snapshots.ids()), None)

    def open_snapshot(self, snapshot: SnapshotId) -> LogSlice:
        """Its record batches, as another replica copies and checks them. Raises OffsetOutOfRange where it is gone."""
        with self._disk:
            try:
                file, size = self._offset_snapshots.open(snapshot)
            except FileNotFoundError:
                raise OffsetOutOfRange(f"{self} has no snapshot up to {snapshot.end_offset}") from None
            return LogSlice(file, 0, size, snapshot.end_offset, self._disk)

    def begin_snapshot(self, end_offset: int) -> SnapshotWriter:
        """Take a snapshot of the records below `end_offset`, in pieces; `install_snapshot` ends it.

        Blocks until those records are on the disk: they may not be lost before what was made of them. Raises
        OffsetOutOfRange where the log does not hold them.
        """
        snapshot = SnapshotId(end_offset, self.epochs.epoch_at(end_offset - 1))
        if not self.log_start_offset < end_offset <= self.log_end_offset or snapshot.leader_epoch < 0:
            raise OffsetOutOfRange(f"{self} has no records up to {end_offset}")
        self.flush(end_offset)
        with self._disk, without_room("a snapshot"):
            return self._offset_snapshots.begin(snapshot)

    def write_snapshot(self, writer: SnapshotWriter, data: Buffer) -> None:
        with self._disk, without_room("a snapshot"):
            writer.append(data)

    def abort_snapshot(self, writer: SnapshotWriter) -> None:
        with self._disk:
            writer.abort()

    def install_snapshot(self, writer: SnapshotWriter) -> int:
        """Put a snapshot in place, instead of older ones; -> its size. Blocks until it is on the disk.

        Raises CorruptRecord or InvalidRecord where it may not be one, OffsetOutOfRange where the log has been cut
        meanwhile; nothing is left of it then.
        """
        with self._disk, without_room("a snapshot"):
            size = writer.finish()
            with self._lock:
                if stale := what_is_stale(writer.id, self.epochs, self.log_start_offset, self.log_end_offset):
                    writer.abort()
                    raise OffsetOutOfRange(f"{self} does not take a snapshot up to {writer.id.end_offset}: {stale}")
                writer.put()
                self.generation += 1
            self._fs.flush_dir(self.folder)
            self._offset_snapshots.remove(lambda each: each < writer.id)
            return size
