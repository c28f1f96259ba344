"""Reading a partition's folder while sparklog, Apache Kafka or no broker writes to it.

The reader takes no locks, writes nothing and works on any `ReadFs`. Planning (segments, bounds, cuts) happens in one
process, reading in many others, later. The folder changes in between. A read stays correct because it goes by offsets
and takes positions as hints:

    appended     a read ends at an offset below the high watermark, so its records were complete before it was planned
    rolled       a segment ends where its file does; the next segment is found by offset
    deleted      a file renamed to .deleted is read under that name; once it is gone, its offsets are searched in the
                 remaining segments; below the first segment, the read raises OffsetOutOfRange
    compacted    if the planned position does not hold the offset, the position is searched again; offsets that
                 compaction removed are skipped, as in a consumer's fetch
    merged       an open file stays unchanged. At its end, the reader first looks into the segment that now holds the
                 offset, which may have absorbed the following ones, before it skips to a later segment. While segments
                 are being replaced, and after a crash during that, some overlap: the offsets that a new segment covers
                 are then read from it (swap.py). Each segment is read from the offset that the read has reached, so
                 no record is read twice. Kafka removes the old segments before the new one has its final name: the
                 new one is then read under .swap
    truncated    truncation only removes offsets above the high watermark, which nobody reads

Transactions: the caller plans up to the last stable offset, where the walk of `follow_transactions` or a broker says
it is, and hands the ranges of `aborted_transactions` to whoever decodes. These ranges stay true whatever happens to the
files later: an offset below the last stable offset is decided for good.

A log that ends before the end of the range raises OffsetOutOfRange, because records are missing. So does planning, with
CorruptRecord, if the directory's recovery point shows that a closed segment has lost flushed records (losses.py).
"""

from __future__ import annotations

import contextlib
import posixpath
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeVar

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import CorruptRecord, OffsetOutOfRange
from sparklog.base.fs import ReadFs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_offsets,
)
from sparklog.log.files import CLEANED, DELETED, LOG, MARKS, OFFSET_INDEX, SWAP, TXN_INDEX, SegmentFile, parse_name
from sparklog.log.losses import check_closed, check_missing
from sparklog.log.segment import lookup
from sparklog.log.segment.scan import PIECE_BYTES, BatchPlace, check_batches, place_at, walk
from sparklog.log.segment.segment import ReadSegment
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.log.transactions import TransactionWalk, follow, from_snapshot, read_index
from sparklog.records.batch import NO_TIMESTAMP

CHUNK_BYTES = 4 << 20
WALK_BYTES = 64 << 20
"""The size in bytes up to which a segment is walked for its greatest timestamp if its time index is not yet trusted."""
_ATTEMPTS = 10  # at opening files that others may rename meanwhile
Result = TypeVar("Result")


class SegmentInfo(NamedTuple):
    """A segment, as planning needs it."""

    base_offset: int
    next_offset: int
    """The next segment's base offset; for the last segment, the end of the log."""
    size: int
    """Bytes of its file."""
    max_timestamp_ms: int | None
    """An upper bound of the record timestamps. None if unknown: for the last segment, one without timestamps, or a
    large one that was closed recently."""


class ReadRange(NamedTuple):
    """A range of offsets in one segment, and its position and size in bytes when the range was planned."""

    offset_from: int
    offset_to: int
    segment_base: int
    position: int
    size: int


class LogReader:
    """Reader of the partition in `folder`. Keeps nothing open between calls; thread-safe.

    Every method raises OffsetOutOfRange if the folder is gone or has no segment, and OSError.
    """

    def __init__(self, fs: ReadFs, folder: str) -> None:
        self._fs = fs
        self._folder = folder.rstrip("/")

    def __repr__(self) -> str:
        return f"LogReader({self._folder!r})"

    @property
    def log_start_offset(self) -> int:
        """The first readable offset: the checkpointed one, or the base of the first segment if that is greater."""
        return max(self._bases()[0], self._checkpointed(LOG_STARTS) or 0)

    def high_watermark(self) -> int | None:
        """Return the checkpointed high watermark, which may lag behind; None if the directory has no such checkpoint.

        A partition that is missing in the checkpoint has 0: none of its records is known to be committed.
        """
        return self._checkpointed(HIGH_WATERMARKS)

    def end_offset(self) -> int:
        """Return the offset after the last whole, undamaged batch."""
        return self._again(lambda: _end_of(self._open(self._bases()[-1])))

    def segments(self) -> tuple[SegmentInfo, ...]:
        """Return the segments, oldest first."""
        return self._again(self._segments)

    def _segments(self) -> tuple[SegmentInfo, ...]:
        bases = self._bases()
        trusted_to = self._indexes_trusted_to()
        infos = []
        for base, next_offset in pairwise(bases):
            segment = self._open(base)
            latest = segment.largest.timestamp_ms if next_offset < trusted_to else _walk_for_largest(segment)
            infos.append(SegmentInfo(base, next_offset, segment.size_bytes, latest if latest >= 0 else None))
        segment = self._open(bases[-1])
        return (*infos, SegmentInfo(bases[-1], _end_of(segment), segment.size_bytes, None))

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """Return the offset of the first record from the log start on with a timestamp at or after `timestamp_ms`.

        None if there is none. Raises CorruptRecord.
        """
        return self._again(lambda: self._offset_for_timestamp(timestamp_ms))

    def _offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        start, trusted_to = self.log_start_offset, self._indexes_trusted_to()
        for base, next_offset in pairwise([*self._bases(), MAX_LONG]):
            segment = self._open(base)
            trust = next_offset < trusted_to or segment.size_bytes > WALK_BYTES
            if next_offset < trusted_to and segment.largest.timestamp_ms < timestamp_ms:
                continue
            if found := lookup.first_in(segment, timestamp_ms, start, trust_index=trust):
                return found.offset
        return None

    # Transactions

    def follow_transactions(self, offset_to: int, known: TransactionWalk | None = None) -> TransactionWalk:
        """Return the transactions as of `offset_to`, at or below the high watermark.

        known: an earlier result, to go on from there. Otherwise the walk begins at the newest snapshot below which no
        power cut can have damaged a transaction index. Raises CorruptRecord.
        """
        return self._again(lambda: self._follow(offset_to, known))

    def _follow(self, offset_to: int, known: TransactionWalk | None) -> TransactionWalk:
        start = min(offset_to, self._indexes_trusted_to())
        walked = from_snapshot(self._fs, self._folder, self._files(), start)
        if known is not None and walked.offset_from <= known.offset_from and known.offset <= offset_to:
            walked = known.copy()
        for base, next_base in pairwise([*self._bases(), MAX_LONG]):
            if base < offset_to and walked.offset < next_base:
                follow(walked, self._open(base), offset_to)
        return walked

    def aborted_transactions(
        self, offset_from: int, offset_to: int, walked: TransactionWalk | None = None
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have batches at offsets in [offset_from, offset_to).

        offset_to: at or below the last stable offset. walked: transactions whose markers it has seen are taken from it,
        not from the transaction indexes, which nobody may have recovered after a power cut. Raises CorruptRecord.
        """
        entries = self._again(lambda: self._aborted(offset_from, offset_to, walked))
        return [each for each in entries if each.first_offset < offset_to and each.last_offset >= offset_from]

    def _aborted(self, offset_from: int, offset_to: int, walked: TransactionWalk | None) -> list[AbortedTransaction]:
        bases, before = self._bases(), self._transaction_files()
        first = bases[max(0, bisect_right(bases, offset_from) - 1)]
        limit = MAX_LONG if walked is None else walked.offset_from
        swapped = [file for file in before if file.suffix == TXN_INDEX and file.mark == SWAP]
        indexes = [file for file in before if file.suffix == TXN_INDEX and not file.mark and file.base_offset >= first]
        found: list[AbortedTransaction] = []
        try:
            for file in sorted(each for each in (*swapped, *indexes) if each.base_offset < limit):
                found += read_index(self._fs, self._folder, file)
                if not swapped and found and found[-1].last_stable_offset >= offset_to:
                    break
        except CorruptRecord:
            found = self._aborted_by_markers(first, min(limit, _end_of(self._open(bases[-1]))))
        if self._transaction_files() != before:
            raise FileNotFoundError(f"{self._folder}: segments were replaced meanwhile")
        found = [entry for entry in found if entry.last_offset < limit]
        return found if walked is None else found + walked.aborted

    def aborted_by_markers(self, offset_from: int, offset_to: int) -> list[AbortedTransaction]:
        """Return the transactions that markers at these offsets have aborted, without the transaction indexes.

        Reads the headers from the newest snapshot at or below `offset_from` on. Raises CorruptRecord.
        """
        found = self._again(lambda: self._aborted_by_markers(offset_from, offset_to))
        return [each for each in found if offset_from <= each.last_offset < offset_to]

    def _aborted_by_markers(self, offset_from: int, offset_to: int) -> list[AbortedTransaction]:
        walked = from_snapshot(self._fs, self._folder, self._files(), offset_from)
        for base, next_base in pairwise([*self._bases(), MAX_LONG]):
            if base < offset_to and walked.offset < next_base:
                follow(walked, self._open(base), offset_to)
        return walked.aborted

    def _transaction_files(self) -> set[SegmentFile]:
        return {file for file in self._files() if file.suffix in (LOG, TXN_INDEX) and file.mark in ("", SWAP)}

    # Planning

    def cut(self, offset_from: int, offset_to: int, pieces: int) -> list[ReadRange]:
        """Return the offsets in ranges of about equal size, each within one segment and cut between batches.

        pieces: the approximate number of ranges; each segment involved gets at least one. Raises CorruptRecord if
        flushed records are lost.
        """
        try:
            self._check(offset_from, offset_to)
        except CorruptRecord:
            self._check(offset_from, offset_to)  # a broker may have renamed files meanwhile
        return self._again(lambda: self._cut(offset_from, offset_to, pieces))

    def _check(self, offset_from: int, offset_to: int) -> None:
        """Raise CorruptRecord if a segment is missing, or if one between the offsets has lost flushed records."""
        files = self._files()
        if any(file.mark == SWAP for file in files):
            return  # segments are being replaced, or a crash has interrupted that: old and new indexes are mixed
        recovery_point = self._checkpointed(RECOVERY_POINTS) or 0
        logs = {file.base_offset for file in files if file.suffix == LOG}
        for file in files:
            if not (file.mark or file.base_offset in logs or self._is_replaced(file.base_offset)):
                start = self._checkpointed(LOG_STARTS) or 0
                check_missing(self._fs, self._folder, file, logs, log_start_offset=start, recovery_point=recovery_point)
        for base, next_base in pairwise(self._bases()):
            if base < offset_to and offset_from < next_base <= recovery_point:
                with contextlib.suppress(FileNotFoundError):  # removed, or under another name, meanwhile
                    check_closed(self._fs, self._folder, base, next_base)

    def _is_replaced(self, base_offset: int) -> bool:
        """Return whether a segment that replaced several holds this offset; a crash may have left files of these."""
        before = max((base for base in self._bases() if base < base_offset), default=None)
        return before is not None and _end_of(self._open(before)) > base_offset

    def _cut(self, offset_from: int, offset_to: int, pieces: int) -> list[ReadRange]:
        bases = self._bases()
        if offset_from < bases[0]:
            raise OffsetOutOfRange(f"{self._folder} begins at offset {bases[0]}, not at {offset_from}")
        spans = [
            _span(self._open(base), max(base, offset_from), min(next_base, offset_to))
            for base, next_base in pairwise([*bases, MAX_LONG])
            if base < offset_to and offset_from < next_base
        ]
        target = max(1, -(-sum(span.range.size for span in spans) // max(1, pieces)))
        return [part for span in spans for part in _divide(span, round(span.range.size / target))]

    # Reading

    def read(self, planned: ReadRange, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Yield chunks of whole batches that hold every record of the range; the first and last may hold others too.

        A chunk is larger than `chunk_bytes` only if a single batch is. Raises OffsetOutOfRange also if records of the
        range are gone, and CorruptRecord.
        """
        offset = planned.offset_from
        segment = self._open_holding(planned.segment_base, offset)
        position = _position_of(segment, offset, planned.position)
        stop = planned.position + planned.size
        while True:
            for chunk, next_offset in _chunks(segment, position, offset, planned.offset_to, chunk_bytes, stop):
                offset = next_offset
                if chunk:
                    yield chunk
            if offset >= planned.offset_to:
                return
            following = self._open_behind(offset, planned.offset_to)
            if following is None:
                raise OffsetOutOfRange(f"{self._folder} ends at offset {offset}, not at {planned.offset_to}")
            segment, position = following
            if segment.base_offset >= planned.offset_to:
                return  # compaction has removed the last records of the segment
            offset, stop = max(offset, segment.base_offset), position

    # Files

    def _files(self) -> list[SegmentFile]:
        try:
            return [file for file in map(parse_name, self._fs.list(self._folder)) if file]
        except FileNotFoundError:
            raise OffsetOutOfRange(f"{self._folder} is gone") from None

    def _bases(self) -> list[int]:
        files = self._files()
        logs: dict[str, set[int]] = {mark: set() for mark in ("", *MARKS)}
        grown = set()
        for file in files:
            if file.suffix == LOG:
                logs[file.mark].add(file.base_offset)
            elif file.suffix == OFFSET_INDEX and file.mark == SWAP:
                grown.add(file.base_offset)
        bases = sorted(logs[""] | (logs[SWAP] & logs[DELETED]))
        for grown_base in (grown & logs[""]) - logs[SWAP] - logs[CLEANED]:
            with contextlib.suppress(FileNotFoundError):
                end = _walk_to_end(self._open(grown_base))
                bases = [base for base in bases if not grown_base < base < end]
        if not bases:
            raise OffsetOutOfRange(f"{self._folder} has no segment")
        return bases

    def _again(self, plan: Callable[[], Result]) -> Result:
        """Return the result of `plan`, called again if a segment is removed between its listing and its opening."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError):
                return plan()
        raise OffsetOutOfRange(f"{self._folder}: segments are removed faster than they can be opened")

    def _open(self, base_offset: int) -> ReadSegment:
        """Open the segment with that base, also under its .swap or .deleted name. Raises FileNotFoundError too."""
        for mark in ("", SWAP):
            with contextlib.suppress(FileNotFoundError):
                return self._open_marked(base_offset, mark)
        return self._open_marked(base_offset, DELETED)

    def _open_marked(self, base_offset: int, mark: str) -> ReadSegment:
        return ReadSegment.whole(self._fs, self._folder, base_offset, mark=mark)

    def _open_holding(self, base_offset: int, offset: int) -> ReadSegment:
        """Open the segment with that base, or else the one that now holds `offset`."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError):
                return self._open(base_offset)
            bases = self._bases()
            if offset < bases[0]:
                break
            base_offset = bases[bisect_right(bases, offset) - 1]
        raise OffsetOutOfRange(f"{self._folder}: offset {offset} is no longer there")

    def _open_behind(self, offset: int, offset_to: int) -> tuple[ReadSegment, int] | None:
        """Return the segment and position at which to continue at `offset` after the end of a file.

        That is the first segment with a batch that ends at or after `offset`, or, failing that, the first one with a
        base offset at or above `offset_to`. None at the end of the log.
        """
        for _ in range(_ATTEMPTS):
            bases = self._bases()
            if offset < bases[0]:
                break
            with contextlib.suppress(FileNotFoundError):
                for base in bases[bisect_right(bases, offset) - 1 :]:
                    segment = self._open(base)
                    position = _position_of(segment, max(offset, base), 0)
                    if position < segment.size_bytes or base >= offset_to:
                        return segment, position
                return None
        raise OffsetOutOfRange(f"{self._folder}: offset {offset} is no longer there")

    def _indexes_trusted_to(self) -> int:
        """Return the offset below which segments have flushed time indexes, which no power cut can have damaged."""
        parent = posixpath.dirname(self._folder)
        if self._fs.exists(f"{parent}/{CLEAN_SHUTDOWN}"):
            return MAX_LONG
        recovery_point = self._checkpointed(RECOVERY_POINTS)
        return MAX_LONG if recovery_point is None else recovery_point

    def _checkpointed(self, name: str) -> int | None:
        path = f"{posixpath.dirname(self._folder)}/{name}"
        if not self._fs.exists(path):
            return None
        return read_offsets(self._fs, path).get(TopicPartition.parse(posixpath.basename(self._folder)), 0)


def _walk_for_largest(segment: ReadSegment) -> int:
    """Return the greatest timestamp in the file; -1 if the file is too large to walk."""
    if segment.size_bytes > WALK_BYTES:
        return NO_TIMESTAMP
    try:
        places = walk(segment.file, 0, segment.size_bytes, PIECE_BYTES)
        return max((place.max_timestamp_ms for place in places), default=NO_TIMESTAMP)
    except CorruptRecord:
        return NO_TIMESTAMP


def _walk_to_end(segment: ReadSegment) -> int:
    """Return the offset after the last batch, without using the index."""
    places = walk(segment.file, 0, segment.size_bytes, PIECE_BYTES)
    return max((place.last_offset + 1 for place in places), default=segment.base_offset)


class _Span(NamedTuple):
    segment: ReadSegment
    range: ReadRange


def _span(segment: ReadSegment, low: int, high: int) -> _Span:
    """Return the range of offsets `low` to `high` with its position and size in the segment."""
    size = segment.size_bytes
    first, last = _find(segment, low), _find(segment, high - 1)
    position = first.position if first else size
    end = last.end if last and last.base_offset < high else last.position if last else size
    return _Span(segment, ReadRange(low, high, segment.base_offset, position, max(0, end - position)))


def _find(segment: ReadSegment, offset: int) -> BatchPlace | None:
    try:
        return segment.find(offset, segment.size_bytes)
    except CorruptRecord:
        return None  # after leftovers of an unclean stop; a read of the range reports it


def _divide(span: _Span, count: int) -> Iterator[ReadRange]:
    """Divide the span into about `count` ranges, cut where batches begin."""
    segment, rest = span
    end = rest.position + rest.size
    for number in range(1, count):
        target = span.range.position + span.range.size * number // count
        place = _first_from(segment, max(rest.position, segment.offsets.last_position(target + 1)), target, end)
        if place and rest.position < place.position and rest.offset_from < place.base_offset < rest.offset_to:
            yield rest._replace(offset_to=place.base_offset, size=place.position - rest.position)
            rest = rest._replace(offset_from=place.base_offset, position=place.position, size=end - place.position)
    yield rest


def _first_from(segment: ReadSegment, start: int, target: int, end: int) -> BatchPlace | None:
    """Return the first batch at or after position `target`, or None."""
    try:
        return next((place for place in segment.walk(start, end) if place.position >= target), None)
    except CorruptRecord:
        return None  # the index does not match the file: make larger ranges


def _position_of(segment: ReadSegment, offset: int, hint: int) -> int:
    """Return the position of the first batch that ends at or after `offset`: `hint`, if the batch there holds it."""
    place = None
    with contextlib.suppress(CorruptRecord):
        place = next(segment.walk(hint, segment.size_bytes), None)
    if place is None or not place.base_offset <= offset <= place.last_offset:
        place = segment.find(offset, segment.size_bytes)
    return place.position if place else segment.size_bytes


def _chunks(
    segment: ReadSegment, position: int, offset_from: int, offset_to: int, chunk_bytes: int, stop: int
) -> Iterator[tuple[bytes, int]]:
    """Yield chunks of the batches from `position` on that begin below `offset_to`, each with the next offset.

    Ends at `offset_to`, or earlier at the end of the file or at an incomplete batch.

    stop: the planned end position; a chunk that begins before it does not read beyond it, except for a whole batch.
    """
    file, end = segment.file, segment.size_bytes
    while position < end and offset_from < offset_to:
        size = min(chunk_bytes, stop - position) if position < stop else chunk_bytes
        data = file.read_at(position, size)
        at, next_offset, place = _whole_batches(data, position, offset_to)
        if at == 0 and place and place.base_offset < offset_to and place.end <= end:
            data = file.read_at(position, place.size)
            at, next_offset, place = _whole_batches(data, position, offset_to)
        if at == 0 and next_offset < offset_to:
            return
        yield (data if at == len(data) else data[:at]), next_offset
        position += at
        offset_from = next_offset


def _whole_batches(data: bytes, position: int, offset_to: int) -> tuple[int, int, BatchPlace | None]:
    """Measure the whole batches at the start of `data` that begin below `offset_to`.

    Returns their size in bytes; the offset after the last of them, or `offset_to` if the next batch begins at or above
    it; and the next batch, if its header is in `data`.
    """
    at, next_offset = 0, -1
    while next_offset < offset_to and (place := place_at(data, at, position + at)):
        if place.base_offset >= offset_to:
            return at, offset_to, place
        if at + place.size > len(data):
            return at, next_offset, place
        at += place.size
        next_offset = place.last_offset + 1
    return at, next_offset, None


def _end_of(segment: ReadSegment) -> int:
    for start in (segment.offsets.last_position(segment.size_bytes), 0):
        last = None
        for place in check_batches(segment.file, start, segment.size_bytes, segment.base_offset):
            last = place
        if last:
            return last.last_offset + 1
    return segment.base_offset
