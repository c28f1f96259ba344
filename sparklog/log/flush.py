"""Flushing a log to the disk: its segments, the names of its files, its leader epochs.

`flush` advances the recovery point: everything below it survives a power cut. Appends never wait for a flush. The
caller of an append flushes for `flush.messages`, and a background task for `flush.ms` and closed segments.
"""

from __future__ import annotations

import posixpath
import threading

from sparklog.base.clock import Clock
from sparklog.base.fs import Fs
from sparklog.log.directory.checkpoints import LeaderEpochCheckpoint
from sparklog.log.epochs import LeaderEpochs
from sparklog.log.segment.segment import Segment
from sparklog.log.state import LogChanges, LogState


class Flusher:
    """Flusher of one log. It flushes only what has changed; one flush runs at a time."""

    def __init__(
        self,
        state: LogState,
        fs: Fs,
        clock: Clock,
        epochs_on_disk: LeaderEpochs | None,
        *,
        have_names_changed: bool,
    ) -> None:
        """epochs_on_disk: the content of leader-epoch-checkpoint; None if it cannot be read."""
        self.lock = threading.Lock()
        """Held while a flush runs."""
        self._state = state
        self._fs = fs
        self._clock = clock
        self._epochs_on_disk = epochs_on_disk
        self._names = LogChanges()
        self._flushed_names = -1 if have_names_changed else self._names.number
        """The number of `_names` up to which changes are flushed."""
        self._last_flush_ms = clock.monotonic_ms()

    def flush(self, up_to: int | None = None) -> None:
        """See `Log.flush`."""
        state = self._state
        with self.lock, state.disk:
            with state.lock:
                end = state.end_offset if up_to is None else min(up_to, state.end_offset)
                end = max(end, state.recovery_point)
                closed = [each for each in state.segments if not each.is_flushed and not each.is_pinned]
                unflushed = closed + [each for each in state.segments if each.is_pinned and each.base_offset < end]
                epochs = state.stored_epochs
                if end < state.end_offset:
                    epochs = epochs.truncate_from_end(end)
                truncations = state.truncations
                self._last_flush_ms = self._clock.monotonic_ms()
            if end <= state.recovery_point and not closed and self._flushed_names == self._names.number:
                return
            for segment in unflushed:
                self._flush_segment(segment)
            self.flush_names()
            with self._state.room.retriable_write("leader epochs"):
                self.flush_epochs(epochs)
            with state.lock:
                if state.advance_recovery_point(end, truncations):
                    for segment in closed:
                        segment.mark_flushed()

    def flush_if_due(self, now_ms: int) -> bool:
        """See `Log.flush_if_due`."""
        state = self._state
        *closed, last = state.segments.items
        has_closed = bool(closed) and not closed[-1].is_flushed
        is_unflushed = state.end_offset > state.recovery_point
        if is_unflushed and now_ms - self._last_flush_ms >= state.config.flush_ms:
            self.flush()
        elif has_closed:
            self.flush(last.base_offset)
        return has_closed

    def names_changed(self) -> None:
        """Record that files were created, renamed or removed: the next flush also flushes their names.

        Call it after the change, also after one that has failed halfway: a flush may run at any time.
        """
        self._names.add()

    def flush_names(self) -> None:
        """Make the creation, renaming and removal of files durable. Raises OSError."""
        if (number := self._names.number) != self._flushed_names:
            self._fs.flush_dir(self._state.folder)
            self._fs.flush_dir(posixpath.dirname(self._state.folder))
            self._flushed_names = number

    def flush_epochs(self, epochs: LeaderEpochs) -> None:
        """Write the epochs of flushed records; unflushed offsets may yet get other records. Raises OSError."""
        if epochs != self._epochs_on_disk:
            LeaderEpochCheckpoint(self._fs, self._state.folder).write(epochs)
            self._epochs_on_disk = epochs

    def _flush_segment(self, segment: Segment) -> None:
        try:
            segment.flush()
        except FileNotFoundError:
            if segment in self._state.segments.items:  # else it was removed meanwhile
                raise
