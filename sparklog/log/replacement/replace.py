"""Replacing adjacent closed segments, concurrently with reads, appends, retention and truncations.

    describe            the segments with their identities, from which a plan is made
    check_sources       check that the segments of a plan have not changed
    staged_path         the path to which the new segment's batches are written
    replace             verify the new segment and swap it in (swap.py has the order on disk)
    replace_all         the same with several new segments, for a replica that takes over its leader's segments
    sums                the closed segments with their checksums, which replicas compare
    set_cleaned_offset  record the cleaned offset, after all replacements of a pass

A plan is bound to the identities of its segments. If one of them has been truncated, replaced or removed since, the
plan is refused with InvalidUpdateVersion. If a replacement is refused or fails, the staged files are removed.

Before any renaming, the sources are flushed and a recovery point above them is checkpointed, so that no recovery
truncates or walks them. Verifying and flushing hold no lock that appends or reads need. Names change under `files_lock`
(state.py), and only the switch to the new segments in memory takes the log's lock.

Readers of the old segments continue with the old files. The file whose name the new segment gets is held open first;
the others are read as `.deleted` until file.delete.delay.ms has passed. Later reads find their segment by offset.

Leader epochs and producer state do not change, because a cleaner keeps each producer's last batch. Snapshots of
producer state at the base offset of a source are removed with that source, as in Kafka; the first source's stays.

The broker builds the transaction index of a new segment from the producer state before the first source and the new
batches. So a cleaner must keep a transaction's marker while a batch with its records is left, and must not replace
segments above the last stable offset.

One replacement runs at a time. The maintenance lease ensures that one job stages segments in this folder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from msgspec import Struct

from sparklog.base.clock import Clock
from sparklog.base.errors import CorruptRecord, InvalidRequest, InvalidUpdateVersion, OffsetOutOfRange
from sparklog.base.fs import Fs
from sparklog.log.append import LogWriter
from sparklog.log.deleted_segments import DeletedSegments
from sparklog.log.description import NO_SUM, SegmentDescription, SegmentSum
from sparklog.log.disk import NOT_THE_DISK
from sparklog.log.flush import Flusher
from sparklog.log.producers.recovery import AbortedTransactionFinder
from sparklog.log.read import SegmentsReader
from sparklog.log.replacement.swap import ExpectedSegment, StagedFile, Swap, Swaps, remove_staged, staged_path
from sparklog.log.segment.cache import SegmentCache
from sparklog.log.segment.segment import Segment
from sparklog.log.state import LogState

KnownSegment = SegmentDescription | SegmentSum


class StagedSegment(Struct, frozen=True, kw_only=True):
    """The expected size in bytes and CRC-32C of the file at `staged_path(base_offset)`."""

    base_offset: int
    size_bytes: int
    crc32c: int


class SegmentReplacer:
    """Replaces closed segments. Methods raise KafkaStorageError if the disk fails."""

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

    def paused(self) -> AbstractContextManager[object]:
        """Return a context in which no replacement runs; entering it waits for the end of a running one."""
        return self._replacing

    def describe(self) -> tuple[SegmentDescription, ...]:
        """Return the segments, oldest first; the last is the active one. May wait for the disk."""
        with self._state.disk:
            return self._reader.retry(self._describe)

    def _describe(self) -> tuple[SegmentDescription, ...]:
        with self._state.lock:
            found = list(zip(self._state.segments, self._segment_keys(), strict=True))
        return tuple(_describe(each, end, size, identity) for each, (_, end, size, identity) in found)

    def sums(self, since: int, up_to: int, *, read_bytes: int) -> tuple[SegmentSum, ...]:
        """Return the closed segments from `since` on that end at or below `up_to`, oldest first. May wait for the disk.

        read_bytes: include checksums, and end the list once more than this many bytes had to be read for them; 0: no
        checksums. Checksums are cached.
        """
        with self._state.disk:
            return self._reader.retry(lambda: tuple(self._sums(since, up_to, read_bytes)))

    def _sums(self, since: int, up_to: int, read_bytes: int) -> Iterator[SegmentSum]:
        with self._state.lock:
            found = list(zip(self._state.segments, self._segment_keys(), strict=True))[:-1]
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

    def _segment_keys(self) -> list[tuple[int, int, int, str]]:
        """Return the values that show a change of a segment: base and next offset, size, identity."""
        items = self._state.segments.items
        ends = (*(segment.base_offset for segment in items[1:]), self._state.end_offset)
        return [(each.base_offset, end, each.size_bytes, each.identity) for each, end in zip(items, ends, strict=True)]

    def check_sources(self, sources: Sequence[KnownSegment]) -> tuple[Segment, ...]:
        """Return the adjacent closed segments that `sources` describe. Never waits for the disk.

        Raises InvalidUpdateVersion if one of them has changed since, or is not closed.
        """
        expected = [(each.base_offset, each.next_offset, each.size_bytes, each.identity) for each in sources]
        if not expected:
            raise InvalidRequest("no segments to replace")
        with self._state.lock, self._state.disk:
            closed = self._segment_keys()[:-1]
            first = next((number for number, known in enumerate(closed) if known == expected[0]), len(closed))
            if closed[first : first + len(expected)] != expected:
                bases = [each.base_offset for each in sources]
                raise InvalidUpdateVersion(f"{self._state}: segments {bases} are not what they were, or not closed")
            return self._state.segments.items[first : first + len(expected)]

    def staged_path(self, base_offset: int) -> str:
        """Return the path of the file to which the new segment's batches are written."""
        return staged_path(self._state.folder, base_offset)

    def stage(self, base_offset: int) -> StagedFile:
        """Return a new staged file, which is empty and replaces any earlier one."""
        self.discard_staged(base_offset)
        return StagedFile.create(self._fs, self.staged_path(base_offset), self._state.disk)

    def discard_staged(self, base_offset: int) -> None:
        """Remove the staged files, if any; waits for a running replacement."""
        with self._replacing, self._state.disk:
            remove_staged(self._fs, self._state.folder, base_offset)

    def replace(
        self, sources: Sequence[KnownSegment], *, size_bytes: int, crc32c: int, high_watermark: int
    ) -> SegmentDescription:
        """Replace `sources` with the staged segment and return its description; durable on return.

        size_bytes, crc32c: of the staged file. Raises InvalidUpdateVersion as `check_sources` does, or if the sources
        do not lie below the high watermark; ResourceNotFound if nothing is staged; CorruptRecord or InvalidRecord if
        the staged segment must not replace the sources; KafkaStorageError. After an error the log is unchanged and the
        staged files are removed.
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
        """Replace `sources` with several staged segments, in the order of offsets; otherwise like `replace`.

        is_wanted: called repeatedly before the swap; raises InvalidUpdateVersion once it returns False.
        """
        if not sources or not staged or staged[0].base_offset != sources[0].base_offset:
            raise InvalidRequest(f"{len(staged)} segments in the place of {len(sources)}: not from the same offset on")
        ends = (*(each.base_offset for each in staged[1:]), sources[-1].next_offset)
        with self._replacing, self._state.disk:
            single = [
                Swap(self._fs, self._state.folder, each.base_offset, self._state.config, self._cache) for each in staged
            ]
            swaps = Swaps(self._fs, self._state.folder, single)
            now_ms, base_offset = self._clock.time_ms(), sources[0].base_offset
            search = AbortedTransactionFinder(
                lambda: self._reader.retry(lambda: self._writer.producers_at(base_offset)), now_ms
            )
            try:
                last_offset = self._reader.retry(lambda: self._last_offset(sources, high_watermark))
                for swap, each, end in zip(single, staged, ends, strict=True):
                    last = last_offset if each is staged[-1] else end - 1
                    swap.verify(self._expected_segment(each, last), now_ms, is_wanted, search.look)
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

    def _expected_segment(self, staged: StagedSegment, last_offset: int) -> ExpectedSegment:
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
                segment.hold_open()
            swaps.commit()
            swaps.put_in_place()
            with self._state.lock:
                self._state.segments.replace(sources, swaps.segments)
                self._writer.drop_snapshots_at(segment.base_offset for segment in others)
                self._state.segments_changed()
            self._deleted.discard(others)
            swaps.finish()
        except OSError as error:
            if swaps.is_in_force and error.errno in NOT_THE_DISK:  # the log must not be used with the swap half done
                self._state.disk.stop_halfway(f"the replacement of {sources}", error)
            raise
        finally:
            if not swaps.is_in_force:
                for segment in renamed_over:
                    segment.release_hold()

    def set_cleaned_offset(self, offset: int, segments: Sequence[KnownSegment]) -> None:
        """Record that everything below `offset` has been compacted; durable on return.

        segments: the segments below `offset`, as the compaction left them; those below the log start are not checked.
        Raises InvalidUpdateVersion if one of them has changed since, OffsetOutOfRange if the log does not have
        `offset`.
        """
        self._flusher.flush(offset)  # otherwise recovery could mistake a gap that a crash made for the cleaner's
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
    except CorruptRecord:  # a read of the segment reports it; the other segments are still described
        return -1


def _last_offset_of(segments: Sequence[Segment]) -> int:
    """Return the last offset of the segments' last batch; -1 if they have none. Raises OSError or CorruptRecord."""
    for segment in reversed(segments):
        start = segment.offsets.last_position(segment.size_bytes)
        last_offset = max((place.last_offset for place in segment.walk(start, segment.size_bytes)), default=-1)
        if last_offset >= 0:
            return last_offset
    return -1
