"""Deleting a log's oldest segments: those that retention selects (retention.py), or below the log start offset.

The new log start offset is first written to the checkpoint. Then the log advances, and the segments below it are
removed. On a full disk, the checkpoint uses the directory's reserve (free_space.py). If even that fails, the records
stay readable, and the next call tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sparklog.base.errors import KafkaStorageError, OffsetOutOfRange
from sparklog.log.append import LogWriter
from sparklog.log.deleted_segments import DeletedSegments
from sparklog.log.retention import DeletableSegments, below_start, removable
from sparklog.log.segment.segment import Segment
from sparklog.log.state import LogState

logger = logging.getLogger(__name__)


class OldSegmentDeleter:
    """Deletes the oldest segments of a log."""

    def __init__(
        self, state: LogState, writer: LogWriter, deleted: DeletedSegments, write_checkpoints: Callable[[], None]
    ) -> None:
        self._state = state
        self._writer = writer
        self._deleted = deleted
        self._write_checkpoints = write_checkpoints

    def advance_log_start(self, offset: int) -> None:
        """See `Log.advance_log_start`."""
        state = self._state
        with state.lock, state.disk:
            if offset > state.end_offset:
                raise OffsetOutOfRange(f"offset {offset} is not in {state}")
            state.advance_start(offset)

    def delete(self, now_ms: int, high_watermark: int | None, *, is_led: bool) -> int:
        """See `Log.delete_old_segments`."""
        state = self._state
        with state.files_lock, state.disk:
            facts, start_offset = state.segments.facts(state.end_offset), state.start_offset
            given_up = (
                removable(
                    facts,
                    log_start_offset=start_offset,
                    high_watermark=state.end_offset if high_watermark is None else high_watermark,
                    config=state.config,
                    now_ms=now_ms,
                )
                if is_led
                else below_start(facts, start_offset)
            )
            if not given_up.total:
                return 0
            gone = self._remove_below(facts[given_up.total - 1].next_offset)
            if gone:
                self._log_removal(gone, given_up, start_offset)
            return len(gone)

    def _remove_below(self, offset: int) -> list[Segment]:
        """Advance the log start offset and remove the segments below it; none if the log was changed meanwhile."""
        state = self._state
        with state.lock:
            if offset == state.end_offset:
                offset = self._roll_if_there_is_room(offset)
            if offset not in (segment.base_offset for segment in state.segments):
                return []  # appended to or truncated meanwhile: the next call tries again
            state.promise_start(offset)
        try:
            self._write_checkpoints()
        except KafkaStorageError as error:
            logger.warning("%s: no segments are removed: %s", state.folder, error)
            with state.lock:
                state.promise_start(0)
            raise
        with state.lock:
            if state.promised_start < offset:
                return []  # truncated below `offset` meanwhile
            state.advance_start(offset)
            gone = [segment for segment in state.segments if segment.base_offset < offset]
            state.segments.remove(gone)
            state.drop_epochs_below_start(offset)
            self._writer.drop_snapshots_below(offset)
        self._deleted.discard(gone)
        return gone

    def _roll_if_there_is_room(self, offset: int) -> int:
        """Begin a segment at `offset`, the log's end. Return where the active segment begins then."""
        try:
            self._writer.roll(offset)
        except KafkaStorageError as error:
            logger.warning("%s: only closed segments are removed: %s", self._state.folder, error)
        return self._state.segments.last.base_offset

    def _log_removal(self, gone: list[Segment], given_up: DeletableSegments, former_start_offset: int) -> None:
        state = self._state
        logger.info(
            "%s: removed %d segments, which end below offset %d: %s",
            state.folder, len(gone), state.start_offset, given_up.why(state.config, former_start_offset),
        )  # fmt: skip
