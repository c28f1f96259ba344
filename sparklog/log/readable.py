"""What a log tells of itself, and how it is read: segment by offset, index, a short walk, a slice of whole batches.

None of this takes the log's lock, or waits for who holds it: a read works on the segments as they were when it began.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from sparklog.base.errors import InvalidUpdateVersion, OffsetOutOfRange
from sparklog.base.fs import ReadFile, ReadFs
from sparklog.base.ids import TopicPartition
from sparklog.log import lookup
from sparklog.log.disk import DiskGuard
from sparklog.log.epochs import EpochEnd, LeaderEpochs
from sparklog.log.files import LEADER_EPOCHS, LOG
from sparklog.log.recovery import Loading
from sparklog.log.scan import BatchPlace
from sparklog.log.segment import Segment
from sparklog.log.segments import Segments
from sparklog.log.slice import LogSlice, TimestampOffset

_ATTEMPTS = 10
Result = TypeVar("Result")


class ReadableLog:
    """The half of a `Log` that changes nothing. Where the disk fails, methods raise KafkaStorageError."""

    def __init__(self, loaded: Loading, disk: DiskGuard) -> None:
        self.partition = TopicPartition.parse(posixpath.basename(loaded.folder))
        self.folder = loaded.folder
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.end_offset
        self._disk = disk
        self._read_fs: ReadFs = loaded.fs
        self._epochs = loaded.epochs
        self._segments = Segments(loaded.segments)

    def __repr__(self) -> str:
        return f"Log({self.folder!r}, {self.log_start_offset}..{self.log_end_offset})"

    def __str__(self) -> str:
        """For clients, who need not know where it lies."""
        return f"{self.partition}, with offsets {self.log_start_offset} to {self.log_end_offset}"

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last is the one that is written."""
        return self._segments.items

    @property
    def first_base_offset(self) -> int:
        """Where the oldest segment begins: where an empty replica of this log begins too."""
        return self._segments.items[0].base_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the records from the log start on."""
        return self._epochs.truncate_from_start(self.log_start_offset)

    @property
    def stored_epochs(self) -> LeaderEpochs:
        """The same of all records that are stored, those below the log start too."""
        return self._epochs

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch of a record; -1 if there is none."""
        return self._epochs.latest

    def end_offset_for(self, epoch: int) -> EpochEnd:
        """Where an epoch's records end, which tells a follower what to truncate."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        max_offset: int | None = None,
        min_one_batch: bool = True,
        for_replica: bool = False,
    ) -> LogSlice:
        """Whole batches from the one that holds `offset` on, of one segment, at most `max_bytes`.

        max_offset: nothing at or above it; None: up to the log end. min_one_batch: the first batch is found even if
        it is larger than `max_bytes`. for_replica: what lies below the log start is found too, as far as it is still
        there: a replica has whole segments. Raises OffsetOutOfRange below the log start or above the log end, or
        KafkaStorageError.
        """
        with self._disk:
            start_offset = self.first_base_offset if for_replica else self.log_start_offset
            end_offset = self.log_end_offset
            if not start_offset <= offset <= end_offset:
                raise OffsetOutOfRange(f"offset {offset} is not in {self}")
            limit = end_offset if max_offset is None else min(max_offset, end_offset)
            return self._again(lambda: self._read(offset, max_bytes, limit, min_one_batch=min_one_batch))

    def _read(self, offset: int, max_bytes: int, limit: int, *, min_one_batch: bool) -> LogSlice:
        for segment in self._segments.since(offset) if offset < limit else ():
            if first := segment.find(offset, segment.size_bytes):
                if first.last_offset >= limit or (first.size > max_bytes and not min_one_batch):
                    return LogSlice(segment.file, first.position, 0, offset, self._disk, segment.base_offset)
                return self._slice(segment, first, max_bytes, limit)
        last = self._segments.last
        return LogSlice(last.file, 0, 0, offset, self._disk, last.base_offset)

    def _slice(self, segment: Segment, first: BatchPlace, max_bytes: int, max_offset: int) -> LogSlice:
        stop = first.position + max(first.size, max_bytes)
        end, next_offset = segment.cut(first, stop, segment.size_bytes, max_offset)
        size = end - first.position
        return LogSlice(segment.file, first.position, size, next_offset, self._disk, segment.base_offset)

    def open_file(self, base_offset: int, suffix: str, identity: str | None = None) -> LogSlice:
        """A whole file of the segment that begins there, or LEADER_EPOCHS, as it is now; empty where there is none.

        Of the segment that is written, the batches that there are. Raises OffsetOutOfRange where no segment begins
        there, InvalidUpdateVersion where its identity is another one, or KafkaStorageError.
        """
        with self._disk:
            if suffix == LEADER_EPOCHS:
                return self._whole_file(lambda: self._read_fs.open_read(f"{self.folder}/{LEADER_EPOCHS}"))
            segment = self._segments.since(base_offset)[0]
            if segment.base_offset != base_offset:
                raise OffsetOutOfRange(f"{self} has no segment that begins at {base_offset}")
            size = segment.size_bytes
            found = self._whole_file(lambda: segment.open(suffix))
            if identity is not None and (segment.identity != identity or segment not in self.segments):
                raise InvalidUpdateVersion(f"{self}: segment {base_offset} is not what it was")
            return replace(found, size=min(size, found.size)) if suffix == LOG else found

    def _whole_file(self, open_file: Callable[[], ReadFile]) -> LogSlice:
        try:
            file = open_file()
        except FileNotFoundError:
            file = self._segments.last.file
            return LogSlice(file, 0, 0, 0, self._disk)
        return LogSlice(file, 0, file.size, 0, self._disk)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is not before `timestamp_ms`; None if there is none."""
        with self._disk:
            return self._again(lambda: lookup.first_since(self.segments, timestamp_ms, self.log_start_offset))

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record that has the greatest timestamp; None if no record has one."""
        with self._disk:
            return self._again(lambda: lookup.latest(self.segments))

    def _again(self, look: Callable[[], Result]) -> Result:
        """What `look` finds, begun again where segments have left the log, and the disk, while it looked at them."""
        for _ in range(_ATTEMPTS):
            before = self.segments
            try:
                return look()
            except FileNotFoundError:
                if self.segments is before:
                    raise
        return look()
