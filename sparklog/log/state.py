"""The current state of a log: segments, offsets and leader epochs.

    log start offset    the first offset that readers see; retention removes the segments below it
    recovery point      everything below is flushed: batches, file names, leader epochs
    compacted to        everything below has been compacted, as in cleaner-offset-checkpoint
    log end offset      the offset of the next record

Invariants: log start offset <= log end offset, recovery point <= log end offset, compacted to <= log end offset, and
no leader epoch begins above the log end offset.

Locks, in the order in which they are taken:

    files_lock    while names of closed segments change: retention, truncation, replacement, deletion, move, close
    (flushing)    the flusher's own lock, while it writes to the disk
    lock          for every method here that changes the state. Only a truncation waits for the disk while holding it

A read takes no lock: it works on the list of segments as it was when the read began.
"""

from __future__ import annotations

import posixpath
import threading
from itertools import count
from uuid import UUID

from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.directory.free_space import FreeSpace
from sparklog.log.disk import DiskGuard
from sparklog.log.epochs import LeaderEpochs
from sparklog.log.recovery import LoadState
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.segments import Segments


class LogChanges:
    """A count of changes, such as those of logs other than by append: log starts, closed and new segments. Any thread.

    `add` is called after each change, so a caller that finds the same `number` again has seen all changes.
    """

    __slots__ = ("_numbers", "number")

    def __init__(self) -> None:
        self.number = 0
        self._numbers = count(1)

    def add(self) -> None:
        """Set `number` to one that it has never been: threads that call this at once write two of them."""
        self.number = next(self._numbers)


class LogState:
    """The state of one log, changed by its own methods only."""

    __slots__ = (
        "_changes",
        "_promised_start",
        "compacted_to",
        "config",
        "disk",
        "end_offset",
        "files_lock",
        "folder",
        "generation",
        "lock",
        "partition",
        "recovery_point",
        "room",
        "segments",
        "start_offset",
        "stored_epochs",
        "topic_id",
        "truncations",
    )

    def __init__(self, loaded: LoadState, disk: DiskGuard, room: FreeSpace, changes: LogChanges) -> None:
        self.partition = TopicPartition.parse(posixpath.basename(loaded.folder))
        self.folder = loaded.folder
        self.config: TopicConfig = loaded.config
        self.topic_id: UUID | None = loaded.topic_id
        self.disk = disk
        self.room = room
        """The free space of the log's directory."""
        self._changes = changes
        self.files_lock = threading.RLock()
        self.lock = threading.RLock()
        self.segments = Segments(loaded.segments)
        self.start_offset = loaded.log_start_offset
        """The log start offset; a truncation below it lowers it."""
        self._promised_start = loaded.log_start_offset
        self.end_offset = loaded.end_offset
        """The log end offset."""
        self.recovery_point = loaded.recovery_point
        """The recovery point; a truncation lowers it."""
        self.compacted_to = min(loaded.compacted_to or 0, loaded.end_offset)
        """The offset below which everything has been compacted."""
        self.stored_epochs = loaded.epochs
        """The leader epochs of all stored records, including those below the log start."""
        self.generation = 0
        """A counter, incremented when closed segments, their metadata or snapshots change other than by append."""
        self.truncations = 0
        """A counter, incremented before each truncation of the log's end, and before a segment is written again."""

    def __str__(self) -> str:
        """Return a text for clients; it does not reveal the log's folder."""
        return f"{self.partition}, with offsets {self.start_offset} to {self.end_offset}"

    @property
    def promised_start(self) -> int:
        """The log start offset for the checkpoint; above the log's only while a deletion waits until it is written."""
        return max(self._promised_start, self.start_offset)

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the records from the log start on."""
        return self.stored_epochs.truncate_from_start(self.start_offset)

    @property
    def must_flush(self) -> bool:
        """Whether flush.messages records are unflushed."""
        return self.end_offset - self.recovery_point >= self.config.flush_messages

    def configure(self, config: TopicConfig) -> None:
        """Use a new topic configuration."""
        self.config = config

    def claim(self, topic_id: UUID) -> None:
        """Record the topic's id, which has been stored."""
        self.topic_id = topic_id

    def move(self, folder: str) -> None:
        """Record that the log's folder has been renamed to `folder`."""
        self.folder = folder

    def change_directory(self, folder: str, disk: DiskGuard, room: FreeSpace) -> None:
        """Record that the log has switched to `folder` in another log directory, with copies of its files.

        Operations in progress continue with the former directory's guard and files.
        """
        self.folder, self.disk, self.room = folder, disk, room
        self.segments_changed()

    def note_append(self, epoch: int, first_offset: int, next_offset: int) -> bool:
        """Record appended batches of `epoch`; a new epoch begins with them. Return `must_flush`."""
        if epoch > self.stored_epochs.latest:
            self.assign_epoch(epoch, first_offset)
        self.end_offset = next_offset
        return next_offset - self.recovery_point >= self.config.flush_messages

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`, unless it is not newer than the latest epoch."""
        if epoch > self.stored_epochs.latest:
            self.stored_epochs = self.stored_epochs.assign(epoch, start_offset)

    def advance_end(self, offset: int) -> None:
        """Set the log end offset to skip a gap in the leader's compacted log."""
        self.end_offset = offset

    def advance_start(self, offset: int) -> None:
        """Raise the log start offset to `offset`; a lower offset changes nothing."""
        self.start_offset = max(offset, self.start_offset)
        self._changes.add()

    def promise_start(self, offset: int) -> None:
        """Let the checkpoint have this log start offset, before readers see it."""
        self._promised_start = offset

    def drop_epochs_below_start(self, offset: int) -> None:
        """Drop the leader epochs below `offset`, whose segments are gone."""
        self.stored_epochs = self.stored_epochs.truncate_from_start(offset)

    def drop_epochs_above_end(self) -> None:
        """Drop the leader epochs that begin above the log end."""
        self.stored_epochs = self.stored_epochs.truncate_from_end(self.end_offset)

    def advance_recovery_point(self, offset: int, truncations: int) -> bool:
        """Set the recovery point after a flush; return False if the log was truncated since `truncations` was read."""
        if truncations != self.truncations:
            return False
        self.recovery_point = offset
        return True

    def set_compacted_to(self, offset: int) -> None:
        """Record that everything below `offset` is compacted."""
        self.compacted_to = offset
        self.segments_changed()

    def segments_changed(self) -> None:
        """Increment `generation`: closed segments were replaced, or a snapshot was installed."""
        self.generation += 1
        self._changes.add()

    def add_segment(self, segment: Segment) -> None:
        """Add the new active segment, which begins at the log end."""
        self.segments.add(segment)
        self._changes.add()

    def lower_promises(self, offset: int) -> None:
        """Lower the recovery point and the compacted offset to `offset`, before the log is truncated there."""
        self.truncations += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.compacted_to = min(self.compacted_to, offset)

    def cut_end(self, offset: int) -> None:
        """Set the log end to `offset`; `lower_promises` was called before."""
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self._promised_start = min(self._promised_start, offset)
        self.stored_epochs = self.stored_epochs.truncate_from_end(offset)

    def restart_at(self, offset: int, segment: Segment) -> None:
        """Make the log empty; its next record gets `offset`. `lower_promises(0)` was called before.

        The recovery point is not raised, because the segment's name is not flushed yet.
        """
        self.segments.reset(segment)
        self.start_offset = self._promised_start = self.end_offset = offset
        self.stored_epochs = LeaderEpochs()
