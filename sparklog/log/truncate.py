"""Truncating the end of a log: a follower does so when its leader has different records.

First the recovery point is lowered and the epochs above it are dropped, durably. Then files are truncated and flushed.
Leader epochs, producer state and snapshots never describe removed records. A log that is truncated only halfway, for
want of file descriptors or room, waits for a restart.
"""

from __future__ import annotations

from collections.abc import Callable

from sparklog.log.append import LogWriter
from sparklog.log.flush import Flusher
from sparklog.log.offset_snapshots.store import SnapshotStore
from sparklog.log.state import LogState


class Truncator:
    """Truncates a log. Methods raise KafkaStorageError if the disk fails."""

    def __init__(
        self,
        state: LogState,
        writer: LogWriter,
        flusher: Flusher,
        snapshots: SnapshotStore,
        write_checkpoints: Callable[[], None],
    ) -> None:
        self._state = state
        self._writer = writer
        self._flusher = flusher
        self._snapshots = snapshots
        self._write_checkpoints = write_checkpoints

    def truncate_to(self, offset: int) -> None:
        """See `Log.truncate_to`."""
        state = self._state
        with state.files_lock, state.lock, state.disk:
            if offset >= state.end_offset:
                state.drop_epochs_above_end()
            elif offset < state.segments.items[0].base_offset:
                self.truncate_fully_and_start_at(offset)
            else:
                self._lower_promises(offset)
                self._truncate(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """See `Log.truncate_fully_and_start_at`."""
        state = self._state
        with state.files_lock, state.lock, state.disk:
            self._lower_promises(0)  # after a crash halfway, recovery must not take a gap for compaction
            with state.disk.undivided("a truncation"):
                self._writer.restart_at(offset)
                self._snapshots.remove_above(-1)
                self._flusher.flush_names()
                self._flusher.flush_epochs(state.stored_epochs)
            state.advance_recovery_point(offset, state.truncations)
            self._write_checkpoints()

    def _truncate(self, offset: int) -> None:
        state, writer, flusher = self._state, self._writer, self._flusher
        last, *gone = state.segments.since(offset)
        place = last.find(offset, last.size_bytes)
        end = last.end_before(place.position if place else last.size_bytes)
        if end < offset:  # `offset` lies inside a batch, which is removed as a whole, or behind a gap
            self._lower_promises(end)  # recovery finds the log's end here: the recovery point must not lie above it
        with self._state.room.retriable_write("leader epochs"):
            flusher.flush_epochs(state.stored_epochs.truncate_from_end(state.recovery_point))
        state.cut_end(end)
        with state.disk.undivided("a truncation"):
            if gone:
                writer.remove_segments(gone)
            if place:
                writer.cut(end, place.position)
            writer.forget_producers_above(end)
            self._snapshots.remove_above(end)
            flusher.flush_names()
            writer.rebuild_producers(end)

    def _lower_promises(self, offset: int) -> None:
        """Lower the recovery point and the compacted offset durably, before any file is touched."""
        self._state.lower_promises(offset)
        self._write_checkpoints()
