"""A follower's log: it takes batches as its leader stored them, and begins its segments where the leader's begin.

    append     offsets, epochs and timestamps are the leader's; there may be gaps, where a cleaner has taken records
    follow     roll where the leader has rolled, so that replicas have the same `.log` files; go back to a segment
               where the leader has not

A gap that is not known to be a cleaner's is taken for torn by a recovery, which cuts off what comes behind it. So a
batch behind a gap is on the disk, and written down as flushed, before it counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.base.errors import InvalidRecord, KafkaStorageError, UnexpectedGap
from sparklog.base.fs import Buffer
from sparklog.log.appendable import AppendableLog
from sparklog.log.produced import read_placed
from sparklog.log.slice import Appended
from sparklog.records.batch import BatchHeader


class FollowingLog(AppendableLog):
    """The part of a `Log` that a follower writes. Where the disk fails, methods raise KafkaStorageError."""

    def append_as_follower(self, data: Buffer, *, rolls: bool = True, takes_gaps: bool = True) -> Appended:
        """Append batches as their leader stored them: offsets and epochs are theirs, and may leave gaps.

        rolls: begin a new segment when a leader would; False: only `follow_segment` does. takes_gaps: False where a
        recovery that takes a gap for torn would cut off what others count on (`append_with_gaps`).

        Raises CorruptRecord, InvalidRecord for an offset that is taken, UnexpectedGap or KafkaStorageError; nothing is
        written then.
        """
        with self._lock, self._disk:
            prepared, headers, numbered = read_placed(data)
            first = headers[0]
            if first.base_offset < self.log_end_offset:
                raise InvalidRecord(f"{self} cannot take a batch at offset {first.base_offset}")
            if not (rolls or self._active.has_room_for(headers[-1].last_offset)):
                raise InvalidRecord(f"{self}: offset {headers[-1].last_offset} is too far from its segment's base")
            if not takes_gaps and _has_gap(headers, self.log_end_offset):
                raise UnexpectedGap(f"{self} gets a gap at offset {first.base_offset} or later")
            appended = self._write(
                data, prepared, first.base_offset, first.leader_epoch, self._clock.time_ms(), rolls=rolls
            )
            for header in headers[1:]:
                self._assign_epoch(header.leader_epoch, header.base_offset)
            for found in numbered:
                self._producers.replay(found, self._clock.time_ms())
            return appended

    def append_with_gaps(self, data: Buffer) -> None:
        """As `append_as_follower` without rolling, of a log that a cleaner has taken records from.

        All is on the disk when this returns, and written down as flushed: no recovery takes a gap below that for torn.
        """
        self.append_as_follower(data, rolls=False)
        self._remember_gap()

    def follow_segment(self, base_offset: int) -> None:
        """What comes next lies in the leader's segment that begins at `base_offset`: write to one that begins there.

        Where a truncation has left the last segment empty and the leader has not rolled there, the one before is
        written again. Where this log has records on both sides of `base_offset` in one segment, as a cleaner had made
        one of what are several on the new leader, it goes on with that one until the leader rolls again.

        Where the segment begins behind this log's end, a cleaner has taken all that was between: the log then ends
        where the segment begins, and on the disk too when this returns.
        """
        with self._files, self._lock, self._disk:
            has_gap = base_offset > self.log_end_offset
            if self._must_roll_to(base_offset):
                self._roll(base_offset)
                self.log_end_offset = base_offset
            elif self._must_go_back_to(base_offset):
                self._active.close()
                empty, before = self.segments[-1], self.segments[-2]
                self._segments.remove([empty])
                self._discard([empty])
                self._active = self._write_to(before)
        if has_gap:
            self._remember_gap()

    def is_at_segment(self, base_offset: int) -> bool:
        """Whether `follow_segment` has nothing to do; never waits."""
        return not (self._must_roll_to(base_offset) or self._must_go_back_to(base_offset))

    def _remember_gap(self) -> None:
        try:
            with self._disk:
                self.flush()
                self._remember()
        except KafkaStorageError as error:  # the leader would count on what a recovery cuts off
            self._disk.offline = self._disk.offline or f"a gap is not written down, and waits for a restart: {error}"
            raise

    def _must_roll_to(self, base_offset: int) -> bool:
        return base_offset > self._segments.last.base_offset and base_offset >= self.log_end_offset

    def _must_go_back_to(self, base_offset: int) -> bool:
        last = self.segments[-2:]
        return len(last) > 1 and last[1].size_bytes == 0 and last[0].base_offset == base_offset


def _has_gap(headers: Sequence[BatchHeader], end_offset: int) -> bool:
    ends = (end_offset, *(header.next_offset for header in headers))
    return any(header.base_offset > end for header, end in zip(headers, ends, strict=False))
