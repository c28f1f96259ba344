"""Taking records out of a log: at its end, as a replica whose leader has others; at its front, as they grow old.

    truncate   the recovery point is lowered first, and the epochs above it forgotten, on the disk too; then files are
               cut and flushed
    retain     the log start offset is moved first, on the disk too; then the oldest segments' files become .deleted.
               They go after file.delete.delay.ms, and a slice in flight stays readable even then

Leader epochs, producers' state and snapshots never say anything of records that are gone from the end.
"""

from __future__ import annotations

import logging

from sparklog.base.errors import OffsetOutOfRange
from sparklog.log.epochs import LeaderEpochs
from sparklog.log.following import FollowingLog
from sparklog.log.producer_recovery import rebuild
from sparklog.log.retention import below_start, removable

logger = logging.getLogger(__name__)


class CuttableLog(FollowingLog):
    """The part of a `Log` that removes records. Where the disk fails, methods raise KafkaStorageError."""

    # Cutting off the end

    def truncate_to(self, offset: int) -> None:
        """Remove every batch with a record at or above `offset`; on the disk when this returns."""
        with self._files, self._lock, self._disk:
            if offset >= self.log_end_offset:
                self._epochs = self._epochs.truncate_from_end(self.log_end_offset)
            elif offset < self.segments[0].base_offset:
                self.truncate_fully_and_start_at(offset)
            else:
                self._lower_promises(offset)
                self._truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the next record gets `offset`. On the disk when this returns."""
        with self._files, self._lock, self._disk:
            self._lower_promises(0)  # with only some segments gone, a gap must not look like compaction's
            self._active.let_go()
            self._discard(self.segments)
            self._active = self._begin_segment(offset)
            self._segments.reset(self._active.segment)
            self._snapshots.remove(lambda _: True)
            self._offset_snapshots.remove(lambda _: True)
            self._producers.clear()
            self.log_start_offset = self.log_end_offset = self.recovery_point = offset
            self._epochs = LeaderEpochs()
            self._flushed.flush_names()
            self._flushed.flush_epochs(self._epochs)
            self._remember()

    def _truncate_to(self, offset: int) -> None:
        last = self._segments.since(offset)[0]
        place = last.find(offset, last.size_bytes)
        end = min(offset, place.base_offset) if place else offset
        if end < offset:  # in the middle of a batch, which goes as a whole
            self._lower_promises(end)
        with self._room.needed("leader epochs"):
            self._flushed.flush_epochs(self._epochs.truncate_from_end(self.recovery_point))
        self.log_end_offset = end
        self.log_start_offset = min(self.log_start_offset, end)
        self._epochs = self._epochs.truncate_from_end(end)
        gone = self._segments.since(offset)[1:]
        if gone:
            self._active.let_go()
            self._segments.remove(gone)
            self._discard(gone)
            self._active = self._write_to(last)
        if place:
            self._active.truncate(end, place.position, self._clock.time_ms())
        self._flushed.have_names_changed |= self._snapshots.remove(lambda taken: taken > end)
        self._flushed.have_names_changed |= self._offset_snapshots.remove(lambda each: each.end_offset > end)
        self._flushed.flush_names()
        if len(self._producers):
            self._producers = rebuild(self._snapshots, self.segments, end, self._clock.time_ms())

    # Cutting off the front

    def advance_log_start(self, offset: int) -> None:
        """Let readers begin at `offset`. What lies below is removed by the next `delete_old_segments`.

        Raises OffsetOutOfRange above the log end. Below the log start offset, nothing happens.
        """
        with self._lock, self._disk:
            if offset > self.log_end_offset:
                raise OffsetOutOfRange(f"offset {offset} is not in {self}")
            self.log_start_offset = max(offset, self.log_start_offset)

    def delete_old_segments(self, now_ms: int, *, high_watermark: int | None = None, is_led: bool = True) -> int:
        """Let go of the segments that retention gives up (retention.py), and say how many.

        now_ms: of the wall clock. high_watermark: nothing at or above it goes; None: the log end offset. is_led: False
        where another broker decides.
        """
        with self._files, self._disk:
            limit = self.log_end_offset if high_watermark is None else high_watermark
            facts, start = self._segments.facts(self.log_end_offset), self.log_start_offset
            given_up = (
                removable(facts, log_start_offset=start, high_watermark=limit, config=self.config, now_ms=now_ms)
                if is_led
                else below_start(facts, start)
            )
            if not given_up.total:
                return 0
            why = given_up.why(self.config, start)
            start = facts[given_up.total - 1].next_offset
            with self._lock:
                if start == self.log_end_offset:
                    self._roll(start)
                if start not in (segment.base_offset for segment in self.segments):
                    return 0  # appended to or truncated meanwhile: look again next time
                self.advance_log_start(start)
            self._remember()
            with self._lock:
                if self.log_start_offset < start:
                    return 0  # truncated below
                gone = [segment for segment in self.segments if segment.base_offset < start]
                self._segments.remove(gone)
                self._epochs = self._epochs.truncate_from_start(start)
                self._snapshots.remove(lambda taken: taken < start)
            self._discard(gone)
            logger.info("%r: removed %d segments, which end below offset %d: %s", self, len(gone), start, why)
            return len(gone)

    def delete_expired(self, now_ms: int) -> int:
        """Remove files that have been .deleted for file.delete.delay.ms, and say of how many segments.

        now_ms: of the monotonic clock.
        """
        with self._files, self._disk:
            return self._segments.remove_expired(now_ms)
