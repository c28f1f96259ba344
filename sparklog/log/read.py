"""Reading a log: find the segment by offset, look up its index, walk a few headers, return a slice of whole batches.

Nothing here takes a lock of the log. If segments are removed from the log and the disk during a read, the read starts
again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from sparklog.base.errors import InvalidUpdateVersion, KafkaStorageError, OffsetOutOfRange
from sparklog.base.fs import ReadFile, ReadFs
from sparklog.log.files import LEADER_EPOCHS, LOG
from sparklog.log.segment import lookup
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.log.slice import LogSlice, TimestampOffset
from sparklog.log.state import LogState

_ATTEMPTS = 10
Result = TypeVar("Result")


class SegmentsReader:
    """Reader of a log's segments. Methods raise KafkaStorageError if the disk fails."""

    __slots__ = ("_fs", "_state")

    def __init__(self, state: LogState, fs: ReadFs) -> None:
        self._state = state
        self._fs = fs

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        max_offset: int | None = None,
        min_one_batch: bool = True,
        for_replica: bool = False,
    ) -> LogSlice:
        """See `Log.read`."""
        state = self._state
        with state.disk:
            start_offset = state.segments.items[0].base_offset if for_replica else state.start_offset
            end_offset = state.end_offset
            if not start_offset <= offset <= end_offset:
                raise OffsetOutOfRange(f"offset {offset} is not in {state}")
            limit = end_offset if max_offset is None else min(max_offset, end_offset)
            try:
                return self._read(offset, max_bytes, limit, min_one_batch)
            except FileNotFoundError:
                return self.retry(lambda: self._read(offset, max_bytes, limit, min_one_batch))

    def _read(self, offset: int, max_bytes: int, limit: int, min_one_batch: bool) -> LogSlice:
        state = self._state
        for segment in state.segments.since(offset) if offset < limit else ():
            if found := segment.locate(offset, max_bytes, limit, min_one_batch=min_one_batch):
                position, size, next_offset, data = found
                return LogSlice(segment.file, position, size, next_offset, state.disk, segment.base_offset, data)
        last = state.segments.last
        return LogSlice(last.file, 0, 0, offset, state.disk, last.base_offset)

    def read_with_aborted(
        self, offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool
    ) -> tuple[LogSlice, list[AbortedTransaction]]:
        """See `Log.read_with_aborted`."""
        for _ in range(_ATTEMPTS):
            before = self._state.segments.items
            found = self.read(offset, max_bytes, max_offset=max_offset, min_one_batch=min_one_batch)
            aborted = self.aborted_transactions(offset, found.next_offset) if found.size else []
            if self._state.segments.items is before:
                return found, aborted
        raise KafkaStorageError(f"{self._state}: segments change faster than they can be read")

    def aborted_transactions(self, fetch_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        """See `Log.aborted_transactions`."""
        with self._state.disk:
            return self.retry(partial(self._aborted_transactions, fetch_offset, upper_bound_offset))

    def _aborted_transactions(self, fetch_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for segment in self._state.segments.since(fetch_offset):
            if segment.collect_aborted(fetch_offset, upper_bound_offset, found):
                break
        return found

    def open_file(self, base_offset: int, suffix: str, identity: str | None) -> LogSlice:
        """See `Log.open_file`."""
        state = self._state
        with state.disk:
            if suffix == LEADER_EPOCHS:
                return self._whole_file(lambda: self._fs.open_read(f"{state.folder}/{LEADER_EPOCHS}"))
            segment = state.segments.since(base_offset)[0]
            if segment.base_offset != base_offset:
                raise OffsetOutOfRange(f"{state} has no segment that begins at {base_offset}")
            size = segment.size_bytes
            found = self._whole_file(lambda: segment.open(suffix))
            if identity is not None and (segment.identity != identity or segment not in state.segments.items):
                raise InvalidUpdateVersion(f"{state}: segment {base_offset} is not what it was")
            return replace(found, size=min(size, found.size)) if suffix == LOG else found

    def _whole_file(self, open_file: Callable[[], ReadFile]) -> LogSlice:
        place = self._place()
        try:
            file = open_file()
        except FileNotFoundError:
            if self._place() != place:
                return self._whole_file(open_file)
            return LogSlice(self._state.segments.last.file, 0, 0, 0, self._state.disk)
        return LogSlice(file, 0, file.size, 0, self._state.disk)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """See `Log.offset_for_timestamp`."""
        state = self._state
        with state.disk:
            return self.retry(lambda: lookup.first_since(state.segments.items, timestamp_ms, state.start_offset))

    def max_timestamp(self) -> TimestampOffset | None:
        """See `Log.max_timestamp`."""
        state = self._state
        with state.disk:
            return self.retry(lambda: lookup.latest(state.segments.items))

    def retry(self, look: Callable[[], Result]) -> Result:
        """Return the result of `look`. If segments were removed or the folder was renamed meanwhile, call it again."""
        for _ in range(_ATTEMPTS):
            before, place = self._state.segments.items, self._place()
            try:
                return look()
            except FileNotFoundError:
                if self._state.segments.items is before and self._place() == place:
                    raise
        return look()

    def _place(self) -> tuple[str, int]:
        """Return folder and generation, which show a move: after a move there and back, the folder is the same, but the
        generation is not. A move ends under the log's lock (move.py)."""
        with self._state.lock:
            return self._state.folder, self._state.generation
