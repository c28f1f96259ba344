"""Reading a partition's folder while sparklog, Apache Kafka or no broker writes to it.

The reader takes no locks, writes nothing and works on any `ReadFs`. One process plans (segments, bounds, cuts), and
many others read later. The folder changes in between. Reads stay correct because they go by offsets and use positions
only as hints:

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
    truncated    truncation removes only offsets above the high watermark, which readers never see

Transactions: the caller plans up to the last stable offset, which `follow_transactions` or a broker returns, and passes
the ranges of `aborted_transactions` to the decoder. These ranges never become wrong: below the last stable offset,
every transaction has ended.

A read raises OffsetOutOfRange if the log ends before the range does, because records are missing. Planning raises
CorruptRecord if the directory's recovery point shows that a closed segment has lost flushed records (losses.py).
"""

from __future__ import annotations

import contextlib
import posixpath
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import CorruptRecord, OffsetOutOfRange
from sparklog.base.fs import ReadFs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, DirectoryCheckpoints
from sparklog.log.files import CLEANED, DELETED, LOG, MARKS, OFFSET_INDEX, SWAP, TXN_INDEX, SegmentFile, parse_name
from sparklog.log.losses import check_closed_file, check_missing
from sparklog.log.segment import lookup
from sparklog.log.segment.ranges import RangePrefix, ReadRange, chunks, divide, position_of, range_of, take
from sparklog.log.segment.read_segment import ReadSegment
from sparklog.log.segment.scan import PIECE_BYTES, check_batches, walk
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.log.transactions import TransactionWalk, follow, from_snapshot, read_index
from sparklog.records.batch import NO_TIMESTAMP

CHUNK_BYTES = 4 << 20
WALK_BYTES = 64 << 20
"""The size in bytes up to which a segment is walked for its greatest timestamp if its time index is not yet trusted."""
_ATTEMPTS = 10  # at opening files that others may rename meanwhile
Result = TypeVar("Result")


class SegmentInfo(NamedTuple):
    """The properties of a segment that planning needs."""

    base_offset: int
    next_offset: int
    """The next segment's base offset; for the last segment, the end of the log."""
    size: int
    """Bytes of its file."""
    max_timestamp_ms: int | None
    """An upper bound of the record timestamps. None if unknown: for the last segment, one without timestamps, or a
    large one that was closed recently."""


class LogBounds(NamedTuple):
    """The offsets at which a log begins and ends."""

    log_start_offset: int
    """The first readable offset: the checkpointed one, or the base of the first segment if that is greater."""
    end_offset: int
    """The offset after the last whole, undamaged batch."""
    high_watermark: int | None
    """The checkpointed one, which may lag behind; None if the directory has no such checkpoint. It is 0 for a partition
    that is missing in the checkpoint: none of its records is known to be committed."""


class _Listing(NamedTuple):
    """A folder's files, as one listing shows them."""

    files: list[SegmentFile]
    bases: list[int]
    """The base offsets of the segments, in order. There is at least one."""

    @property
    def transactions(self) -> set[SegmentFile]:
        """The transaction indexes."""
        return {file for file in self.files if file.suffix in (LOG, TXN_INDEX) and file.mark in ("", SWAP)}


class LogReader:
    """Reader of the partition in `folder`. Keeps nothing open between calls; thread-safe.

    Every method raises OffsetOutOfRange if the folder is gone or has no segment, and OSError. Each call lists the
    folder once, or a second time to see whether files were replaced meanwhile.
    """

    def __init__(self, fs: ReadFs, folder: str, checkpoints: DirectoryCheckpoints | None = None) -> None:
        """checkpoints: the log directory's checkpoints if older values will do; None: read them when needed"""
        self._fs = fs
        self._folder = folder.rstrip("/")
        self._known = checkpoints

    def __repr__(self) -> str:
        return f"LogReader({self._folder!r})"

    @property
    def log_start_offset(self) -> int:
        """The first readable offset: the checkpointed one, or the base of the first segment if that is greater."""
        return self._start_in(self._list())

    def high_watermark(self) -> int | None:
        """Return the checkpointed high watermark, which may lag behind; None if the directory has no such checkpoint.

        It is 0 for a partition that is missing in the checkpoint: none of its records is known to be committed.
        """
        return self._checkpointed(HIGH_WATERMARKS)

    def end_offset(self) -> int:
        """Return the offset after the last whole, undamaged batch."""
        return self.bounds().end_offset

    def bounds(self) -> LogBounds:
        """Return where the log begins and ends."""
        return self._retry(self._bounds)

    def _bounds(self, listing: _Listing) -> LogBounds:
        end = _end_of(self._open(listing.bases[-1]))
        return LogBounds(self._start_in(listing), end, self._checkpointed(HIGH_WATERMARKS))

    def _start_in(self, listing: _Listing) -> int:
        return max(listing.bases[0], self._checkpointed(LOG_STARTS) or 0)

    def segments(self) -> tuple[SegmentInfo, ...]:
        """Return the segments, oldest first."""
        return self._retry(self._segments)

    def _segments(self, listing: _Listing) -> tuple[SegmentInfo, ...]:
        bases = listing.bases
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
        return self._retry(lambda listing: self._offset_for_timestamp(listing, timestamp_ms))

    def _offset_for_timestamp(self, listing: _Listing, timestamp_ms: int) -> int | None:
        start, trusted_to = self._start_in(listing), self._indexes_trusted_to()
        for base, next_offset in pairwise([*listing.bases, MAX_LONG]):
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

        known: an earlier result, from which to continue. Otherwise the walk begins at the newest snapshot below which
        no power cut can have damaged a transaction index. Raises CorruptRecord.
        """
        return self._retry(lambda listing: self._follow(listing, offset_to, known))

    def _follow(self, listing: _Listing, offset_to: int, known: TransactionWalk | None) -> TransactionWalk:
        start = min(offset_to, self._indexes_trusted_to())
        walked = from_snapshot(self._fs, self._folder, listing.files, start)
        if known is not None and walked.offset_from <= known.offset_from and known.offset <= offset_to:
            walked = known.copy()
        for base, next_base in pairwise([*listing.bases, MAX_LONG]):
            if base < offset_to and walked.offset < next_base:
                follow(walked, self._open(base), offset_to)
        return walked

    def aborted_transactions(
        self, offset_from: int, offset_to: int, walked: TransactionWalk | None = None
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have batches at offsets in [offset_from, offset_to).

        offset_to: at or below the last stable offset. walked: replaces the transaction indexes as far as it goes, since
        they may be damaged after a power cut. Raises CorruptRecord.
        """
        entries = self._retry(lambda listing: self._aborted(listing, offset_from, offset_to, walked))
        return [each for each in entries if each.first_offset < offset_to and each.last_offset >= offset_from]

    def _aborted(
        self, listing: _Listing, offset_from: int, offset_to: int, walked: TransactionWalk | None
    ) -> list[AbortedTransaction]:
        bases, before = listing.bases, listing.transactions
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
            found = self._aborted_by_markers(listing, first, min(limit, _end_of(self._open(bases[-1]))))
        if self._list().transactions != before:
            raise FileNotFoundError(f"{self._folder}: segments were replaced meanwhile")
        found = [entry for entry in found if entry.last_offset < limit]
        return found if walked is None else found + walked.aborted

    def aborted_by_markers(self, offset_from: int, offset_to: int) -> list[AbortedTransaction]:
        """Return the transactions that markers at these offsets have aborted, without the transaction indexes.

        Reads the headers from the newest snapshot at or below `offset_from` on. Raises CorruptRecord.
        """
        found = self._retry(lambda listing: self._aborted_by_markers(listing, offset_from, offset_to))
        return [each for each in found if offset_from <= each.last_offset < offset_to]

    def aborts_behind(self, offset: int, begun: Mapping[int, int]) -> list[tuple[int, int]]:
        """Return producer id and offset of the markers that abort transactions which have begun below `offset`.

        begun: an offset of each such transaction, by producer id. Reads the headers from `offset` on until all have
        ended. Raises CorruptRecord.
        """

        def look(listing: _Listing) -> list[AbortedTransaction]:
            walked, awaited = TransactionWalk(offset_from=offset, offset=offset, open=dict(begun)), set(begun)
            for base, next_base in pairwise([*listing.bases, MAX_LONG]):
                if awaited and walked.offset < next_base:
                    follow(walked, self._open(base), MAX_LONG, awaited)
            return walked.aborted

        return [(each.producer_id, each.last_offset) for each in self._retry(look) if each.first_offset < offset]

    def _aborted_by_markers(self, listing: _Listing, offset_from: int, offset_to: int) -> list[AbortedTransaction]:
        walked = from_snapshot(self._fs, self._folder, listing.files, offset_from)
        for base, next_base in pairwise([*listing.bases, MAX_LONG]):
            if base < offset_to and walked.offset < next_base:
                follow(walked, self._open(base), offset_to)
        return walked.aborted

    # Planning

    def cut(self, offset_from: int, offset_to: int, pieces: int) -> list[ReadRange]:
        """Return the offsets in ranges of about equal size, each within one segment and cut between batches.

        pieces: the approximate number of ranges; each segment involved gets at least one. Raises CorruptRecord if
        flushed records are lost.
        """
        return self.divide(self.ranges(offset_from, offset_to), pieces)

    def ranges(self, offset_from: int, offset_to: int) -> list[ReadRange]:
        """Return the offsets in one range for each segment. Raises CorruptRecord if flushed records are lost."""

        def plan(listing: _Listing) -> list[ReadRange]:
            return self._ranges(listing, offset_from, offset_to)

        try:
            return self._retry(plan)
        except CorruptRecord:
            return self._retry(plan)  # a broker may have renamed files meanwhile

    def divide(self, ranges: Sequence[ReadRange], pieces: int) -> list[ReadRange]:
        """Return ranges that `ranges` has returned, divided into `pieces` of about equal size, cut between batches."""
        target = max(1, -(-sum(each.size for each in ranges) // max(1, pieces)))
        return [part for each in ranges for part in self._divide(each, round(each.size / target))]

    def take(self, ranges: Sequence[ReadRange], size_bytes: int) -> RangePrefix:
        """Return the first `size_bytes` bytes of `ranges` in whole batches; `ranges` come from the method `ranges`.

        The first batch is taken even if it is larger. Offsets without batches cost nothing. A range with damaged bytes
        is taken whole: a read of it reports them. Raises FileNotFoundError if a segment was replaced or removed.
        """
        taken = RangePrefix(ranges[0].offset_from, 0)
        for each in ranges:
            if taken.size + each.size > size_bytes:
                left = size_bytes - taken.size
                return take(self._open(each.segment_base), each, left, taken) if left > 0 or not taken.size else taken
            taken = RangePrefix(each.offset_to, taken.size + each.size)
        return taken

    def _divide(self, whole: ReadRange, count: int) -> Iterable[ReadRange]:
        if count > 1:
            with contextlib.suppress(FileNotFoundError):  # the segment was replaced or removed: a read detects it
                return list(divide(self._open(whole.segment_base), whole, count))
        return (whole,)

    def _ranges(self, listing: _Listing, offset_from: int, offset_to: int) -> list[ReadRange]:
        bases = listing.bases
        if offset_from < bases[0]:
            raise OffsetOutOfRange(f"{self._folder} begins at offset {bases[0]}, not at {offset_from}")
        checked_to = self._check_missing(listing)
        found = []
        for base, next_base in pairwise([*bases, MAX_LONG]):
            if base < offset_to and offset_from < next_base:
                segment = self._open(base)
                if next_base <= checked_to and not segment.is_marked:
                    check_closed_file(self._fs, self._folder, segment.file, base, next_base)
                found.append(range_of(segment, max(base, offset_from), min(next_base, offset_to), next_base))
                segment.close_file()
        return found

    def _check_missing(self, listing: _Listing) -> int:
        """Raise CorruptRecord if a segment is missing. Return the offset below which closed segments can be checked."""
        if any(file.mark == SWAP for file in listing.files):
            return 0  # segments are being replaced, or a crash has interrupted that: old and new indexes are mixed
        recovery_point = self._checkpointed(RECOVERY_POINTS) or 0
        logs = {file.base_offset for file in listing.files if file.suffix == LOG}
        for file in listing.files:
            if not (file.mark or file.base_offset in logs or self._is_replaced(listing, file.base_offset)):
                start = self._checkpointed(LOG_STARTS) or 0
                check_missing(self._fs, self._folder, file, logs, log_start_offset=start, recovery_point=recovery_point)
        return recovery_point

    def _is_replaced(self, listing: _Listing, base_offset: int) -> bool:
        """Return whether a merged segment holds this offset; a crash may have left files of its sources."""
        before = max((base for base in listing.bases if base < base_offset), default=None)
        return before is not None and _end_of(self._open(before)) > base_offset

    # Reading

    def read(self, planned: ReadRange, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Yield chunks of whole batches that hold every record of the range; the first and last may hold others too.

        A chunk is larger than `chunk_bytes` only if a single batch is. Raises OffsetOutOfRange also if records of the
        range are gone, and CorruptRecord.
        """
        offset = planned.offset_from
        segment = self._open_holding(planned.segment_base, offset)
        position = position_of(segment, offset, planned.position)
        stop = planned.position + planned.size
        while True:
            for chunk, next_offset in chunks(segment, position, offset, planned.offset_to, chunk_bytes, stop):
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

    def _list(self) -> _Listing:
        try:
            files = [file for file in map(parse_name, self._fs.list(self._folder)) if file]
        except FileNotFoundError:
            raise OffsetOutOfRange(f"{self._folder} is gone") from None
        return _Listing(files, self._bases_of(files))

    def _bases_of(self, files: Iterable[SegmentFile]) -> list[int]:
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

    def _retry(self, plan: Callable[[_Listing], Result]) -> Result:
        """Return the result of `plan`, called again if a segment is removed between its listing and its opening."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError):
                return plan(self._list())
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
            bases = self._list().bases
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
            bases = self._list().bases
            if offset < bases[0]:
                break
            with contextlib.suppress(FileNotFoundError):
                for base in bases[bisect_right(bases, offset) - 1 :]:
                    segment = self._open(base)
                    position = position_of(segment, max(offset, base), 0)
                    if position < segment.size_bytes or base >= offset_to:
                        return segment, position
                return None
        raise OffsetOutOfRange(f"{self._folder}: offset {offset} is no longer there")

    def _indexes_trusted_to(self) -> int:
        """Return the offset below which segments have flushed time indexes, which no power cut can have damaged."""
        if self._checkpoints.is_clean:
            return MAX_LONG
        recovery_point = self._checkpointed(RECOVERY_POINTS)
        return MAX_LONG if recovery_point is None else recovery_point

    @property
    def _checkpoints(self) -> DirectoryCheckpoints:
        return self._known or DirectoryCheckpoints(self._fs, posixpath.dirname(self._folder))

    def _checkpointed(self, name: str) -> int | None:
        return self._checkpoints.offset(name, TopicPartition.parse(posixpath.basename(self._folder)))


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


def _end_of(segment: ReadSegment) -> int:
    for start in (segment.offsets.last_position(segment.size_bytes), 0):
        last = None
        for place in check_batches(segment.file, start, segment.size_bytes, segment.base_offset):
            last = place
        if last:
            return last.last_offset + 1
    return segment.base_offset
