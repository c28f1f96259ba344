"""Appending to a log as a follower: batches as the leader stored them, in the same segments as the leader's.

    append     keep the leader's offsets, epochs and timestamps; a cleaner may have left gaps between the offsets
    follow     roll where the leader rolled, so that replicas have the same `.log` files; if the leader did not roll
               there, return to the former segment

Recovery treats an unknown gap as a torn write, and removes all records after it. So a batch after a gap is flushed, and
the recovery point checkpointed, before the batch counts as stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparklog.base.clock import Clock
from sparklog.base.errors import InvalidRecord, KafkaStorageError, UnexpectedGap
from sparklog.base.fs import Buffer
from sparklog.log.append import LogWriter
from sparklog.log.flush import Flusher
from sparklog.log.segment.segment import Segment
from sparklog.log.slice import LogAppendInfo
from sparklog.log.state import LogState
from sparklog.log.validator import read_replicated
from sparklog.records.batch import BatchHeader


class FollowerAppends:
    """Writer of the batches that a follower fetches. Methods raise KafkaStorageError if the disk fails."""

    def __init__(
        self, state: LogState, writer: LogWriter, flusher: Flusher, clock: Clock, write_checkpoints: Callable[[], None]
    ) -> None:
        self._state = state
        self._writer = writer
        self._flusher = flusher
        self._clock = clock
        self._write_checkpoints = write_checkpoints

    def append(self, data: Buffer, *, rolls: bool = True, takes_gaps: bool = True) -> LogAppendInfo:
        """Append batches as the leader stored them, with the leader's offsets and epochs, which may have gaps.

        rolls: roll to a new segment when a leader would; False: only `follow_segment` rolls. takes_gaps: False: raise
        UnexpectedGap at a gap; the caller then uses `append_with_gaps`. Otherwise crash recovery could mistake the gap
        for a torn write and cut off records that the leader counts on.

        Raises CorruptRecord, InvalidRecord if an offset is already taken, UnexpectedGap or KafkaStorageError; nothing
        is written in these cases.
        """
        state, writer = self._state, self._writer
        with state.lock, state.disk:
            prepared, headers, producer_batches = read_replicated(data)
            first = headers[0]
            if first.base_offset < state.end_offset:
                raise InvalidRecord(f"{state} cannot take a batch at offset {first.base_offset}")
            if not (rolls or writer.has_room_for(headers[-1].last_offset)):
                raise InvalidRecord(f"{state}: offset {headers[-1].last_offset} is too far from its segment's base")
            if not takes_gaps and _has_gap(headers, state.end_offset):
                raise UnexpectedGap(f"{state} gets a gap at offset {first.base_offset} or later")
            now_ms = self._clock.time_ms()
            appended = writer.write(data, prepared, first.base_offset, first.leader_epoch, now_ms, rolls=rolls)
            for header in headers[1:]:
                state.assign_epoch(header.leader_epoch, header.base_offset)
            writer.replay_producers(producer_batches)
            return appended

    def append_with_gaps(self, data: Buffer) -> None:
        """Append as `append` does, without rolling, batches of a log that a cleaner has compacted.

        On return, all is flushed and the recovery point is checkpointed: recovery accepts gaps below that point.
        """
        self.append(data, rolls=False)
        self._remember_gap()

    def follow_segment(self, base_offset: int) -> None:
        """Switch appends to a segment that begins at `base_offset`, as the leader's segment of the next record does.

        If a truncation left the last segment empty and the leader did not roll there, the segment before becomes the
        active one again. If one segment of this log has records on both sides of `base_offset` (a cleaner had merged
        segments that are separate on the new leader), that segment stays active until the leader rolls again.

        If `base_offset` lies beyond the log end, a cleaner has removed all records in between. The log end then moves
        to `base_offset`; durable on return.
        """
        state = self._state
        with state.files_lock, state.lock, state.disk:
            has_gap = base_offset > state.end_offset
            if self._must_roll_to(base_offset):
                self._writer.roll(base_offset)
                state.advance_end(base_offset)
            elif self._must_go_back_to(base_offset):
                self._give_up_gap(state.segments.items[-2])
                self._writer.reopen_previous()
        if has_gap:
            self._remember_gap()

    def _give_up_gap(self, last: Segment) -> None:
        """Truncate to the end of the last batch before the empty segment is removed, as recovery would."""
        state = self._state
        end = last.end_before(last.size_bytes)
        if end < state.end_offset:
            state.lower_promises(end)
            self._write_checkpoints()
            state.cut_end(end)

    def is_at_segment(self, base_offset: int) -> bool:
        """Return whether `follow_segment(base_offset)` would change nothing; never blocks."""
        return not (self._must_roll_to(base_offset) or self._must_go_back_to(base_offset))

    def _remember_gap(self) -> None:
        state = self._state
        try:
            with state.disk:
                self._flusher.flush()
                self._write_checkpoints()
        except KafkaStorageError as error:  # otherwise the leader would count on records that recovery cuts off
            why = f"a gap is not written down, and waits for a restart: {error}"
            state.disk.stop_alone(why)
            raise KafkaStorageError(f"{state.folder}: {why}") from error

    def _must_roll_to(self, base_offset: int) -> bool:
        state = self._state
        return base_offset > state.segments.last.base_offset and base_offset >= state.end_offset

    def _must_go_back_to(self, base_offset: int) -> bool:
        last = self._state.segments.items[-2:]
        return len(last) > 1 and last[1].size_bytes == 0 and last[0].base_offset == base_offset


def _has_gap(headers: Sequence[BatchHeader], end_offset: int) -> bool:
    ends = (end_offset, *(header.next_offset for header in headers))
    return any(header.base_offset > end for header, end in zip(headers, ends, strict=False))
