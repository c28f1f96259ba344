"""What of a log survives a power cut: flushing, the recovery point, and what the directory remembers of the log.

    recovery point     everything below is on the disk: batches, names, leader epochs
    cleaned offset     everything below has been compacted; as the directory's cleaner-offset-checkpoint has it
    log start offset   see log.py

`remember` writes these three down for the whole directory. A truncation lowers the first two, on the disk too, before
it touches a file, so that neither is ever said of records that came later.

Locks, in the order in which they are taken:

    files      while names of closed segments change, or go: retention, truncation, replacement, deletion, close
    flushing   while a flush runs
    lock       for what is in memory; nobody waits for a disk with it, except a truncation
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from sparklog.base.clock import Clock
from sparklog.log.disk import DiskGuard
from sparklog.log.flushed import Flushed
from sparklog.log.readable import ReadableLog
from sparklog.log.recovery import Loading
from sparklog.log.room import Room
from sparklog.log.segment import Segment


class DurableLog(ReadableLog):
    """The part of a `Log` that gets it to the disk. Where the disk fails, methods raise KafkaStorageError."""

    def __init__(
        self, loaded: Loading, disk: DiskGuard, clock: Clock, remember: Callable[[], None], room: Room
    ) -> None:
        super().__init__(loaded, disk)
        self._room = room
        self.config = loaded.config
        self.recovery_point = loaded.recovery_point
        self.compacted_to = min(loaded.compacted_to or 0, loaded.end_offset)
        """As the cleaner has said; what the checkpoint is to say."""
        self._fs = loaded.fs
        self._clock = clock
        self._remember = remember
        self._files = threading.RLock()
        self._flushing = threading.Lock()
        self._lock = threading.RLock()
        self._last_flush_ms = clock.monotonic_ms()
        self._flushed = Flushed(loaded.fs, loaded.folder, loaded.epochs_on_disk, have_names_changed=loaded.has_changed)
        self._truncations = 0

    @property
    def cleaned_offset(self) -> int:
        """Everything below has been compacted, or lies below the log start."""
        return max(self.compacted_to, self.log_start_offset)

    def flush(self, up_to: int | None = None) -> None:
        """Return once every record below `up_to` (None: all) would survive a power cut. Moves the recovery point."""
        with self._flushing, self._disk:
            with self._lock:
                end = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
                end = max(end, self.recovery_point)
                closed = [each for each in self._segments if not each.is_flushed and not each.is_pinned]
                unflushed = closed + [each for each in self._segments if each.is_pinned and each.base_offset < end]
                epochs = self._epochs if end == self.log_end_offset else self._epochs.truncate_from_end(end)
                truncations = self._truncations
                self._last_flush_ms = self._clock.monotonic_ms()
            if end <= self.recovery_point and not closed and not self._flushed.have_names_changed:
                return
            for segment in unflushed:
                self._flush_segment(segment)
            self._flushed.flush_names()
            with self._room.needed("leader epochs"):
                self._flushed.flush_epochs(epochs)
            with self._lock:
                if truncations == self._truncations:
                    self.recovery_point = end
                    for segment in closed:
                        segment.is_flushed = True

    @property
    def must_flush(self) -> bool:
        """Whether flush.messages records are unflushed. Appends wait for no disk: whoever appends sees to it."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def counted_end_offset(self) -> int:
        """Up to where what is written may count as safe here: to the end, or to what is flushed where more must be."""
        return self.recovery_point if self.must_flush else self.log_end_offset

    def flush_if_due(self, now_ms: int) -> bool:
        """Flush if flush.ms has passed with records unflushed; if not, segments that were closed since the last flush.

        now_ms: of the monotonic clock. -> whether closed segments were flushed.
        """
        *closed, active = self.segments
        has_closed = bool(closed) and not closed[-1].is_flushed
        if self.log_end_offset > self.recovery_point and now_ms - self._last_flush_ms >= self.config.flush_ms:
            self.flush()
        elif has_closed:
            self.flush(active.base_offset)
        return has_closed

    def _flush_segment(self, segment: Segment) -> None:
        try:
            segment.flush()
        except FileNotFoundError:
            if segment in self.segments:  # else retention has taken it meanwhile
                raise

    def _lower_promises(self, offset: int) -> None:
        """Promise no more than what lies below `offset`, on the disk too, before anything of the rest is touched."""
        self._truncations += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.compacted_to = min(self.compacted_to, offset)
        self._remember()

    def _discard(self, gone: Iterable[Segment]) -> None:
        self._flushed.have_names_changed = True
        self._segments.discard(gone, self._clock.monotonic_ms() + self.config.file_delete_delay_ms)
