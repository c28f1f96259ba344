"""Putting one segment in the place of neighbouring closed ones, beside readers, appends, retention and truncations.

    describe          the segments, each with its identity; what a plan is made from
    check_sources     whether segments still are what a plan saw
    staged_path       where the new segment's batches are to be written
    replace           verify them, and put them in place (swap.py has the order on disk)
    set_cleaned_offset  once all replacements of a pass are in place

A plan is bound to the segments that it saw. One that has been cut, replaced or removed since makes it stale: it is
refused with InvalidUpdateVersion, and what was staged goes. So does what was staged for a replacement that fails.

Before anything changes its name, the sources are flushed, and the directory remembers a recovery point behind them: no
recovery cuts or walks what is below. Verifying and flushing hold no lock that others wait for; names change under
`files` (durable.py), and only the switch from the old segments to the new one, in memory, takes the log's lock.

Readers of the old segments go on reading the old files: the first one's is held open before another takes its name, the
others' are read as `.deleted` until file.delete.delay.ms has passed. What they find later, they look for by offset.

Leader epochs and the producers' state stay what they are: a cleaner keeps each producer's last batch. Snapshots that
were taken where a source began go with that source, as Kafka's do; the first source's stays.

One replacement runs at a time, and nobody may stage another in this folder meanwhile: the lease that upkeep takes
sees to that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from sparklog.base.clock import Clock
from sparklog.base.errors import CorruptRecord, InvalidRecord, InvalidRequest, InvalidUpdateVersion, OffsetOutOfRange
from sparklog.log.description import SegmentDescription
from sparklog.log.disk import NOT_THE_DISK, DiskGuard
from sparklog.log.durable import DurableLog
from sparklog.log.files import TXN_INDEX
from sparklog.log.recovery import Loading
from sparklog.log.segment import Segment
from sparklog.log.staged import StagedFile
from sparklog.log.swap import Swap, Wanted, remove_staged, staged_path


class ReplaceableLog(DurableLog):
    """The part of a `Log` that replaces closed segments. Where the disk fails, methods raise KafkaStorageError."""

    def __init__(self, loaded: Loading, disk: DiskGuard, clock: Clock, remember: Callable[[], None]) -> None:
        super().__init__(loaded, disk, clock, remember)
        self._cache = loaded.cache
        self._snapshots = loaded.snapshots
        self._replacing = threading.Lock()

    def describe(self) -> tuple[SegmentDescription, ...]:
        """The segments, oldest first; the last is the one that is written. May wait for the disk."""
        with self._disk:
            return self._again(self._describe)

    def _describe(self) -> tuple[SegmentDescription, ...]:
        with self._lock:
            found = list(zip(self.segments, self._known(), strict=True))
        return tuple(_describe(each, end, size, identity) for each, (_, end, size, identity) in found)

    def _known(self) -> list[tuple[int, int, int, str]]:
        """What tells each segment from what it was before: base and next offset, size, identity."""
        items = self.segments
        ends = (*(segment.base_offset for segment in items[1:]), self.log_end_offset)
        return [(each.base_offset, end, each.size_bytes, each.identity) for each, end in zip(items, ends, strict=True)]

    def check_sources(self, sources: Sequence[SegmentDescription]) -> tuple[Segment, ...]:
        """The neighbouring closed segments that `sources` describe. Never waits for a disk.

        Raises InvalidUpdateVersion where one of them is no longer what it was, or is not closed.
        """
        wanted = [(each.base_offset, each.next_offset, each.size_bytes, each.identity) for each in sources]
        if not wanted:
            raise InvalidRequest("no segments to replace")
        with self._lock, self._disk:
            closed = self._known()[:-1]
            first = next((number for number, known in enumerate(closed) if known == wanted[0]), len(closed))
            if closed[first : first + len(wanted)] != wanted:
                bases = [each.base_offset for each in sources]
                raise InvalidUpdateVersion(f"{self!r}: segments {bases} are not what they were, or not closed")
            return self.segments[first : first + len(wanted)]

    def staged_path(self, base_offset: int) -> str:
        """Where the new segment's batches are to be written, in a file made for it."""
        return staged_path(self.folder, base_offset)

    def stage(self, base_offset: int) -> StagedFile:
        """A new empty file there, in place of any other."""
        self.discard_staged(base_offset)
        return StagedFile(self._fs, self.staged_path(base_offset), self._disk)

    def discard_staged(self, base_offset: int) -> None:
        """Remove what has been staged; waits for a replacement that is under way. No error where nothing is."""
        with self._replacing, self._disk:
            remove_staged(self._fs, self.folder, base_offset)

    def replace(
        self, sources: Sequence[SegmentDescription], *, size_bytes: int, crc32c: int, high_watermark: int
    ) -> SegmentDescription:
        """Put what is staged in the place of `sources`; on the disk when this returns. -> the new segment.

        size_bytes, crc32c: of the staged file. Raises InvalidUpdateVersion as `check_sources` does, and where the
        sources do not lie below the high watermark; ResourceNotFound where nothing is staged; CorruptRecord or
        InvalidRecord where it may not take their place; KafkaStorageError. Then the log is as it was, and nothing is
        left of what was staged.
        """
        if not sources:
            raise InvalidRequest("no segments to replace")
        end = sources[-1].next_offset
        with self._replacing, self._disk:
            swap = Swap(self._fs, self.folder, sources[0].base_offset, self.config, self._cache)
            try:
                wanted = self._again(lambda: self._wanted(sources, size_bytes, crc32c, high_watermark))
                swap.verify(wanted, self._clock.time_ms())
                new = _describe(swap.segment, end, size_bytes, swap.segment.identity)
                self.flush(end)
                with self._files, self._disk:
                    self._swap(swap, self.check_sources(sources), end)
            finally:
                if not swap.is_in_force and not self._disk.offline:
                    swap.discard()
            return new

    def _wanted(
        self, sources: Sequence[SegmentDescription], size_bytes: int, crc32c: int, high_watermark: int
    ) -> Wanted:
        segments = self.check_sources(sources)
        if sources[-1].next_offset > high_watermark:
            raise InvalidUpdateVersion(f"{self!r}: {sources[-1]} ends above the high watermark {high_watermark}")
        if any(self._fs.exists(segment.path(TXN_INDEX)) for segment in segments):
            raise InvalidRecord(f"{self!r}: segments with aborted transactions are not replaced")
        last_offset = _last_offset_of(segments)
        return Wanted(last_offset=last_offset, latest_epoch=self.latest_epoch, size_bytes=size_bytes, crc32c=crc32c)

    def _swap(self, swap: Swap, sources: tuple[Segment, ...], end: int) -> None:
        if self.recovery_point < end:
            raise InvalidUpdateVersion(f"{self!r} was truncated meanwhile")
        self._remember()
        first, *others = sources
        first.keep()
        try:
            swap.commit()
            swap.put_in_place()
            with self._lock:
                self._segments.replace(sources, swap.segment)
                self._snapshots.remove({segment.base_offset for segment in others}.__contains__)
            self._discard(others)
            swap.finish()
        except OSError as error:
            if swap.is_in_force and error.errno in NOT_THE_DISK:  # nobody goes on beside what is half done
                self._disk.offline = f"the replacement of {first} has stopped halfway, and waits for a restart: {error}"
            raise
        finally:
            if not swap.is_in_force:
                first.keep_no_longer()

    def set_cleaned_offset(self, offset: int, segments: Sequence[SegmentDescription]) -> None:
        """Everything below `offset` has been compacted, now that `segments` are in place; on the disk on return.

        segments: those below it that the log still has. Raises InvalidUpdateVersion where one of them is no longer what
        it was, OffsetOutOfRange for an offset that the log does not have.
        """
        self.flush(offset)  # a gap that a crash tears below would pass for the cleaner's
        with self._files, self._disk:
            if not 0 <= offset <= self.recovery_point:
                raise OffsetOutOfRange(f"offset {offset} is not in {self!r}")
            if there := [each for each in segments if each.next_offset > self.log_start_offset]:
                self.check_sources(there)
            self.compacted_to = offset
            self._remember()


def _describe(segment: Segment, next_offset: int, size_bytes: int, identity: str) -> SegmentDescription:
    return SegmentDescription(
        base_offset=segment.base_offset,
        next_offset=next_offset,
        size_bytes=size_bytes,
        largest_timestamp_ms=segment.largest.timestamp_ms,
        first_timestamp_ms=_first_timestamp_of(segment),
        identity=identity,
    )


def _first_timestamp_of(segment: Segment) -> int:
    try:
        return segment.first_timestamp_ms
    except CorruptRecord:  # whoever reads the segment finds out; the others are described all the same
        return -1


def _last_offset_of(segments: Sequence[Segment]) -> int:
    """Of the last batch that they hold; -1: they hold none. Raises OSError or CorruptRecord."""
    for segment in reversed(segments):
        start = segment.offsets.last_position(segment.size_bytes)
        last_offset = max((place.last_offset for place in segment.walk(start, segment.size_bytes)), default=-1)
        if last_offset >= 0:
            return last_offset
    return -1
