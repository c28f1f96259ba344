"""Putting segments in the place of neighbouring closed ones, beside readers, appends, retention and truncations.

    describe          the segments, each with its identity; what a plan is made from
    check_sources     whether segments still are what a plan saw
    staged_path       where the new segment's batches are to be written
    replace           verify them, and put them in place (swap.py has the order on disk)
    replace_all       the same with several new segments, as a replica does that takes over what its leader has
    sums              the closed segments with their checksums, by which replicas compare theirs
    set_cleaned_offset  once all replacements of a pass are in place

A plan is bound to the segments that it saw. One that has been cut, replaced or removed since makes it stale: it is
refused with InvalidUpdateVersion, and what was staged goes. So does what was staged for a replacement that fails.

Before anything changes its name, the sources are flushed, and the directory remembers a recovery point behind them: no
recovery cuts or walks what is below. Verifying and flushing hold no lock that others wait for; names change under
`files_lock` (state.py), and only the switch from the old segments to the new one, in memory, takes the log's lock.

Readers of the old segments go on reading the old files: the first one's is held open before another takes its name, the
others' are read as `.deleted` until file.delete.delay.ms has passed. What they find later, they look for by offset.

Leader epochs and the producers' state stay what they are: a cleaner keeps each producer's last batch. Snapshots that
were taken where a source began go with that source, as Kafka's do; the first source's stays.

One replacement runs at a time, and nobody may stage another in this folder meanwhile: the lease that upkeep takes
sees to that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sparklog.base.clock import Clock
from sparklog.base.errors import CorruptRecord, InvalidRecord, InvalidRequest, InvalidUpdateVersion, OffsetOutOfRange
from sparklog.base.fs import Fs
from sparklog.log.append import LogWriter
from sparklog.log.deleted_segments import DeletedSegments
from sparklog.log.description import NO_SUM, SegmentDescription, SegmentSum
from sparklog.log.disk import NOT_THE_DISK
from sparklog.log.files import TXN_INDEX
from sparklog.log.flush import Flusher
from sparklog.log.read import SegmentsReader
from sparklog.log.segment.cache import SegmentCache
from sparklog.log.segment.segment import Segment
from sparklog.log.staged import StagedFile
from sparklog.log.state import LogState
from sparklog.log.swap import ExpectedSegment, Swap, Swaps, remove_staged, staged_path

KnownSegment = SegmentDescription | SegmentSum


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSegment:
    """What the file at `staged_path(base_offset)` is to be."""

    base_offset: int
    size_bytes: int
    crc32c: int


class SegmentReplacer:
    """Replaces closed segments. Where the disk fails, methods raise KafkaStorageError."""

    def __init__(
        self,
        state: LogState,
        reader: SegmentsReader,
        writer: LogWriter,
        flusher: Flusher,
        deleted: DeletedSegments,
        *,
        fs: Fs,
        cache: SegmentCache,
        clock: Clock,
        write_checkpoints: Callable[[], None],
    ) -> None:
        self._state = state
        self._reader = reader
        self._writer = writer
        self._flusher = flusher
        self._deleted = deleted
        self._fs = fs
        self._cache = cache
        self._clock = clock
        self._write_checkpoints = write_checkpoints
        self._replacing = threading.Lock()

    def describe(self) -> tuple[SegmentDescription, ...]:
        """The segments, oldest first; the last is the one that is written. May wait for the disk."""
        with self._state.disk:
            return self._reader.again(self._describe)

    def _describe(self) -> tuple[SegmentDescription, ...]:
        with self._state.lock:
            found = list(zip(self._state.segments, self._known(), strict=True))
        return tuple(_describe(each, end, size, identity) for each, (_, end, size, identity) in found)

    def sums(self, since: int, up_to: int, *, read_bytes: int) -> tuple[SegmentSum, ...]:
        """The closed segments from `since` on that end at or below `up_to`, oldest first. May wait for the disk.

        read_bytes: with the checksums of their files, until so much has been read for them, and one more; 0: without.
        What was read is known the next time.
        """
        with self._state.disk:
            return self._reader.again(lambda: tuple(self._sums(since, up_to, read_bytes)))

    def _sums(self, since: int, up_to: int, read_bytes: int) -> Iterator[SegmentSum]:
        with self._state.lock:
            found = list(zip(self._state.segments, self._known(), strict=True))[:-1]
        read = 0
        for segment, (base, end, size, identity) in found:
            if base < since:
                continue
            if end > up_to or read > read_bytes:
                return
            if read_bytes and segment.crc32c is None:
                read += size
            crc = segment.checksum() if read_bytes else NO_SUM
            yield SegmentSum(base_offset=base, next_offset=end, size_bytes=size, crc32c=crc, identity=identity)

    def _known(self) -> list[tuple[int, int, int, str]]:
        """What tells each segment from what it was before: base and next offset, size, identity."""
        items = self._state.segments.items
        ends = (*(segment.base_offset for segment in items[1:]), self._state.end_offset)
        return [(each.base_offset, end, each.size_bytes, each.identity) for each, end in zip(items, ends, strict=True)]

    def check_sources(self, sources: Sequence[KnownSegment]) -> tuple[Segment, ...]:
        """The neighbouring closed segments that `sources` describe. Never waits for a disk.

        Raises InvalidUpdateVersion where one of them is no longer what it was, or is not closed.
        """
        wanted = [(each.base_offset, each.next_offset, each.size_bytes, each.identity) for each in sources]
        if not wanted:
            raise InvalidRequest("no segments to replace")
        with self._state.lock, self._state.disk:
            closed = self._known()[:-1]
            first = next((number for number, known in enumerate(closed) if known == wanted[0]), len(closed))
            if closed[first : first + len(wanted)] != wanted:
                bases = [each.base_offset for each in sources]
                raise InvalidUpdateVersion(f"{self._state}: segments {bases} are not what they were, or not closed")
            return self._state.segments.items[first : first + len(wanted)]

    def staged_path(self, base_offset: int) -> str:
        """Where the new segment's batches are to be written, in a file made for it."""
        return staged_path(self._state.folder, base_offset)

    def stage(self, base_offset: int) -> StagedFile:
        """A new empty file there, in place of any other."""
        self.discard_staged(base_offset)
        return StagedFile(self._fs, self.staged_path(base_offset), self._state.disk)

    def discard_staged(self, base_offset: int) -> None:
        """Remove what has been staged; waits for a replacement that is under way. No error where nothing is."""
        with self._replacing, self._state.disk:
            remove_staged(self._fs, self._state.folder, base_offset)

    def replace(
        self, sources: Sequence[KnownSegment], *, size_bytes: int, crc32c: int, high_watermark: int
    ) -> SegmentDescription:
        """Put what is staged in the place of `sources`; on the disk when this returns. -> the new segment.

        size_bytes, crc32c: of the staged file. Raises InvalidUpdateVersion as `check_sources` does, and where the
        sources do not lie below the high watermark; ResourceNotFound where nothing is staged; CorruptRecord or
        InvalidRecord where it may not take their place; KafkaStorageError. Then the log is as it was, and nothing is
        left of what was staged.
        """
        if not sources:
            raise InvalidRequest("no segments to replace")
        staged = StagedSegment(base_offset=sources[0].base_offset, size_bytes=size_bytes, crc32c=crc32c)
        return self.replace_all(sources, (staged,), high_watermark=high_watermark)[0]

    def replace_all(
        self,
        sources: Sequence[KnownSegment],
        staged: Sequence[StagedSegment],
        *,
        high_watermark: int,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> tuple[SegmentDescription, ...]:
        """Put what is staged, in the order of offsets, in the place of `sources`; else as `replace`.

        is_wanted: asked on the way; where it is not, raises InvalidUpdateVersion.
        """
        if not sources or not staged or staged[0].base_offset != sources[0].base_offset:
            raise InvalidRequest(f"{len(staged)} segments in the place of {len(sources)}: not from the same offset on")
        ends = (*(each.base_offset for each in staged[1:]), sources[-1].next_offset)
        with self._replacing, self._state.disk:
            single = [
                Swap(self._fs, self._state.folder, each.base_offset, self._state.config, self._cache) for each in staged
            ]
            swaps = Swaps(self._fs, self._state.folder, single)
            try:
                last_offset = self._reader.again(lambda: self._last_offset(sources, high_watermark))
                for swap, each, end in zip(single, staged, ends, strict=True):
                    last = last_offset if each is staged[-1] else end - 1
                    swap.verify(self._wanted(each, last), self._clock.time_ms(), is_wanted)
                new = tuple(
                    _describe(segment, end, each.size_bytes, segment.identity)
                    for segment, each, end in zip(swaps.segments, staged, ends, strict=True)
                )
                self._flusher.flush(ends[-1])
                with self._state.files_lock, self._state.disk:
                    if not is_wanted():
                        raise InvalidUpdateVersion(
                            f"{self._state}: the replacement of segment {sources[0].base_offset} is not wanted any more"
                        )
                    self._swap(swaps, self.check_sources(sources), ends[-1])
            finally:
                if not swaps.is_in_force and not self._state.disk.offline:
                    swaps.discard()
            return new

    def _wanted(self, staged: StagedSegment, last_offset: int) -> ExpectedSegment:
        return ExpectedSegment(
            last_offset=last_offset,
            latest_epoch=self._state.stored_epochs.latest,
            size_bytes=staged.size_bytes,
            crc32c=staged.crc32c,
        )

    def _last_offset(self, sources: Sequence[KnownSegment], high_watermark: int) -> int:
        segments = self.check_sources(sources)
        if sources[-1].next_offset > high_watermark:
            raise InvalidUpdateVersion(
                f"{self._state}: segment {sources[-1].base_offset} ends above the high watermark {high_watermark}"
            )
        if any(self._fs.exists(segment.path(TXN_INDEX)) for segment in segments):
            raise InvalidRecord(f"{self._state}: segments with aborted transactions are not replaced")
        return _last_offset_of(segments)

    def _swap(self, swaps: Swaps, sources: tuple[Segment, ...], end: int) -> None:
        if self._state.recovery_point < end:
            raise InvalidUpdateVersion(f"{self._state} was truncated meanwhile")
        self._write_checkpoints()
        bases = {segment.base_offset for segment in swaps.segments}
        renamed_over = [segment for segment in sources if segment.base_offset in bases]
        others = [segment for segment in sources if segment.base_offset not in bases]
        try:
            for segment in renamed_over:
                segment.keep()
            swaps.commit()
            swaps.put_in_place()
            with self._state.lock:
                self._state.segments.replace(sources, swaps.segments)
                self._writer.drop_snapshots_at(segment.base_offset for segment in others)
                self._state.segments_changed()
            self._deleted.discard(others)
            swaps.finish()
        except OSError as error:
            if swaps.is_in_force and error.errno in NOT_THE_DISK:  # nobody goes on beside what is half done
                self._state.disk.offline = (
                    f"the replacement of {sources} has stopped halfway, and waits for a restart: {error}"
                )
            raise
        finally:
            if not swaps.is_in_force:
                for segment in renamed_over:
                    segment.keep_no_longer()

    def set_cleaned_offset(self, offset: int, segments: Sequence[KnownSegment]) -> None:
        """Everything below `offset` has been compacted, now that `segments` are in place; on the disk on return.

        segments: those below it that the log still has. Raises InvalidUpdateVersion where one of them is no longer what
        it was, OffsetOutOfRange for an offset that the log does not have.
        """
        self._flusher.flush(offset)  # a gap that a crash tears below would pass for the cleaner's
        with self._state.files_lock, self._state.disk:
            if not 0 <= offset <= self._state.recovery_point:
                raise OffsetOutOfRange(f"offset {offset} is not in {self._state}")
            if there := [each for each in segments if each.next_offset > self._state.start_offset]:
                self.check_sources(there)
            self._state.set_compacted_to(offset)
            self._write_checkpoints()


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
