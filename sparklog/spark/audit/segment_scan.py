"""Facts from the bytes of one segment: every batch, its indexes, and digests to compare between replicas.

    corrupt_batch            a CRC is wrong, or bytes are no batch
    torn_tail                the last segment ends in a part of a batch; a broker cuts that off when it starts
    missing_batch            offsets are skipped that no cleaner can have removed
    offset_disorder          offsets do not increase, or leave the segment
    epoch_disagreement       a batch's leader epoch differs from the leader-epoch checkpoint, or goes back
    wrong_index_entry        an offset index entry at whose position no batch begins, or whose offset is not the last of
                             a batch from there on; a time index entry with no batch at its offset, or whose timestamp
                             is not the greatest up to there
    wrong_transaction_index  the transaction index lacks an aborted transaction, or has one that the markers and batches
                             do not show, or with another producer or beginning
    unreadable_file          a file that cannot be read

Segments that compaction has rewritten have gaps. Offsets below `gaps_to` may be missing, and transactions there are not
compared with the index: their markers or batches may be gone.

Indexes are read before the log, so the log has the batches that they name, even if it grows. Checks run on tables of
batches, and carry a few numbers from one table to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import CorruptRecord
from sparklog.log.segment.transaction_index import ENTRY_SIZE, TransactionIndex, read_entries
from sparklog.records import header_kernels as h
from sparklog.records.batch import MAGIC
from sparklog.spark.audit.digests import DigestSlice, SegmentDigests
from sparklog.spark.audit.indexes import AbortedEntries, OffsetEntries, TimeEntries
from sparklog.spark.audit.walk import Bools, CheckedBatches, Damage, Ints, read_index, walk_all

MAX_PROBLEMS = 16
"""Problems kept of one kind in one segment; further ones are only counted."""

OFFSET_ENTRY = [("offset", ">i4"), ("position", ">i4")]
TIME_ENTRY = [("timestamp", ">i8"), ("offset", ">i4")]

CORRUPT_BATCH = "corrupt_batch"
TORN_TAIL = "torn_tail"
MISSING_BATCH = "missing_batch"
OFFSET_DISORDER = "offset_disorder"
EPOCH_DISAGREEMENT = "epoch_disagreement"
WRONG_INDEX_ENTRY = "wrong_index_entry"
WRONG_TRANSACTION_INDEX = "wrong_transaction_index"
UNREADABLE_FILE = "unreadable_file"


class Problem(NamedTuple):
    kind: str
    offset: int
    found: str


class BatchRow(NamedTuple):
    """A batch, for a comparison batch by batch."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    producer_id: int
    record_count: int
    is_right: bool

    @classmethod
    def unknown(cls, offset: int) -> BatchRow:
        """Return the row that stands for all batches after damage."""
        return cls(offset, offset, -1, 0, 0, -1, 0, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentWork:
    """The properties of a segment that a scan needs before it reads the file."""

    base_offset: int
    next_offset: int
    """Base offset of the next segment; -1: this is the last."""
    log_start_offset: int = 0
    gaps_to: int = 0
    """Offsets below this one may be missing."""
    epochs: tuple[tuple[int, int], ...] = ()
    """Epochs with their start offsets, oldest first; empty if they are not known."""
    known_to: int = MAX_LONG
    """Epochs that began at or above this offset may be missing in `epochs`."""
    compare_from: int = 0
    compare_to: int = 0
    """Digests cover the offsets from `compare_from` to before `compare_to`."""
    cuts: tuple[int, ...] = ()


class SegmentFiles(Protocol):
    """The files of one segment. The methods raise OSError, and FileNotFoundError if the file is missing."""

    def size(self) -> int:
        """Return the size of the log file in bytes."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes of the log file from a position on; fewer at its end."""
        ...

    def index(self) -> bytes:
        """Return all bytes of the offset index."""
        ...

    def time_index(self) -> bytes:
        """Return all bytes of the time index."""
        ...

    def transaction_index(self) -> bytes:
        """Return all bytes of the transaction index."""
        ...


@dataclass(slots=True)
class SegmentScan:
    """Facts about a segment."""

    size_bytes: int = 0
    batches: int = 0
    end_offset: int = -1
    """The offset after the last batch."""
    problems: list[Problem] = field(default_factory=list)
    uncounted: int = 0
    """Problems beyond `MAX_PROBLEMS` of a kind."""
    slices: list[DigestSlice] = field(default_factory=list)
    is_gone: bool = False
    """Whether the segment's log is missing."""

    def add(self, kind: str, offset: int, found: str) -> None:
        """Add a problem at an offset; beyond `MAX_PROBLEMS` of its kind, only count it."""
        if sum(problem.kind == kind for problem in self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(kind, offset, found))
        else:
            self.uncounted += 1

    def add_all(self, kind: str, rows: Ints, found: Callable[[list[int]], tuple[int, str]]) -> None:
        """Add a problem for each row; call `found` only for the problems that are kept."""
        for row in rows[:MAX_PROBLEMS].tolist():
            self.add(kind, *found(row))
        self.uncounted += max(0, len(rows) - MAX_PROBLEMS)


def scan_segment(files: SegmentFiles, work: SegmentWork) -> SegmentScan:
    """Read all of a segment, and return its facts."""
    facts = SegmentScan(end_offset=work.base_offset)
    offsets = OffsetEntries(_entries(files.index, "offset index", OFFSET_ENTRY, work, facts), work.base_offset)
    times = TimeEntries(
        _entries(files.time_index, "time index", TIME_ENTRY, work, facts), work.base_offset, work.gaps_to
    )
    aborted = _aborted_entries(files, work, facts)
    end = work.next_offset if work.next_offset >= 0 else MAX_LONG
    digests = SegmentDigests(max(work.base_offset, work.compare_from), min(end, work.compare_to), work.cuts)
    order = _OrderCheck(work, facts)
    try:
        facts.size_bytes = files.size()
        for found in walk_all(files.read, facts.size_bytes, offsets.absolute):
            if isinstance(found, Damage):
                order.damaged(found)
                continue
            facts.batches += len(found.table)
            order.add(found)
            believed = found.table[found.is_right]
            offsets.add(believed)
            times.add(believed)
            aborted.add(believed, found.markers[found.is_right])
            digests.add(found.table)
    except FileNotFoundError:
        facts.is_gone = True
        return facts
    except OSError as error:
        facts.add(UNREADABLE_FILE, work.base_offset, f"the log cannot be read: {error}")
        return facts
    order.finish()
    if not order.was_damaged:  # otherwise entries that point into the damage would be problems
        facts.add_all(
            WRONG_INDEX_ENTRY,
            offsets.wrong(),
            lambda row: (row[0], f"the offset index says position {row[1]} for offset {row[0]}"),
        )
        facts.add_all(
            WRONG_INDEX_ENTRY,
            times.wrong(),
            lambda row: (row[1], f"the time index says timestamp {row[0]} up to offset {row[1]}"),
        )
        for offset, what in aborted.wrong():
            facts.add(WRONG_TRANSACTION_INDEX, offset, what)
    facts.slices = digests.slices()
    return facts


def list_batches(files: SegmentFiles, base_offset: int, offset_from: int, offset_to: int) -> Iterator[BatchRow]:
    """Yield the batches of a segment in a range of offsets, up to damage or an error of reading.

    From there on, one row with `is_right` false stands for everything that may follow.
    """
    columns = (h.BASE_OFFSET, h.LAST_OFFSET, h.LEADER_EPOCH, h.CRC, h.ATTRIBUTES, h.PRODUCER_ID, h.RECORD_COUNT)
    end = base_offset
    try:
        for found in walk_all(files.read, files.size(), np.empty((0, 2), np.int64)):
            if isinstance(found, Damage):
                yield BatchRow.unknown(max(end, offset_from))
                return
            table = found.table
            end = int(table[-1, h.LAST_OFFSET]) + 1
            wanted = (table[:, h.BASE_OFFSET] >= offset_from) & (table[:, h.LAST_OFFSET] < offset_to)
            for row, is_right in zip(table[wanted][:, columns].tolist(), found.is_right[wanted].tolist(), strict=True):
                yield BatchRow._make((*row, is_right))
    except OSError:
        yield BatchRow.unknown(max(end, offset_from))


def _entries(
    read: Callable[[], bytes], name: str, layout: list[tuple[str, str]], work: SegmentWork, facts: SegmentScan
) -> Ints:
    """Return the entries of an index. An unreadable file is a problem; so is an incomplete file of a closed segment."""
    try:
        content = read()
    except FileNotFoundError:
        content = b""
        if work.next_offset >= 0:
            facts.add(UNREADABLE_FILE, work.base_offset, f"the {name} is not there")
    except OSError as error:
        content = b""
        facts.add(UNREADABLE_FILE, work.base_offset, f"the {name} cannot be read: {error}")
    if work.next_offset >= 0 and len(content) % np.dtype(layout).itemsize:
        facts.add(WRONG_INDEX_ENTRY, work.base_offset, f"the {name} ends within an entry")
    return read_index(content, layout)


def _aborted_entries(files: SegmentFiles, work: SegmentWork, facts: SegmentScan) -> AbortedEntries:
    """Return the entries of the transaction index; a missing file has none. A malformed file is a problem."""
    nothing = AbortedEntries((), 0, 0)
    try:
        content = files.transaction_index()
    except FileNotFoundError:
        content = b""
    except OSError as error:
        facts.add(UNREADABLE_FILE, work.base_offset, f"the transaction index cannot be read: {error}")
        return nothing
    if work.next_offset < 0:  # an entry may be half written
        content = content[: len(content) // ENTRY_SIZE * ENTRY_SIZE]
    try:
        TransactionIndex(content).check(work.base_offset)
    except CorruptRecord as error:
        facts.add(WRONG_TRANSACTION_INDEX, work.base_offset, str(error))
        return nothing
    return AbortedEntries(read_entries(content), max(work.base_offset, work.gaps_to), work.known_to)


class _OrderCheck:
    """Checks of offsets and epochs from one batch to the next.

    Only the next batch shows whether a batch's offset is wrong, or batches before it are missing. So the last batch of
    a table waits for the next table.
    """

    def __init__(self, work: SegmentWork, facts: SegmentScan) -> None:
        self.was_damaged = False
        self._work = work
        self._facts = facts
        self._epochs = np.array(work.epochs, np.int64).reshape(-1, 2)
        self._latest_epoch = -1
        self._has_told_epoch = False
        self._next = work.base_offset
        """Expected base offset of the next batch."""
        self._after_damage = False
        self._waiting = np.empty((0, h.COLUMNS), np.int64)
        self._waiting_marks = np.empty(0, np.bool_)

    def damaged(self, damage: Damage) -> None:
        work, where = self._work, self._end_of_last()
        if damage.is_end and work.next_offset < 0 and damage.reason == "cut off":
            self._facts.add(TORN_TAIL, where, f"after offset {where} comes part of a batch")
        elif not self._after_damage:
            self._facts.add(CORRUPT_BATCH, where, f"position {damage.position}: {damage.reason}")
        self._after_damage = self.was_damaged = True

    def add(self, found: CheckedBatches) -> None:
        table, is_right, _ = found
        wrong = table[~is_right]
        self._facts.add_all(
            CORRUPT_BATCH, wrong, lambda row: (row[h.BASE_OFFSET], f"position {row[h.POSITION]}: the CRC is wrong")
        )
        follows_damage = np.empty(len(table), np.bool_)
        follows_damage[0], follows_damage[1:] = self._after_damage, ~is_right[:-1]
        self._after_damage = not is_right[-1]
        self.was_damaged = self.was_damaged or len(wrong) > 0
        self._check_table(table[is_right], follows_damage[is_right], is_last=False)

    def finish(self) -> None:
        self._check_table(self._waiting[:0], self._waiting_marks[:0], is_last=True)
        work, facts = self._work, self._facts
        facts.end_offset = self._next
        if work.next_offset < 0 or self._after_damage or self._next == work.next_offset:
            return
        if self._next > work.next_offset:
            facts.add(
                OFFSET_DISORDER,
                work.next_offset,
                f"the segment reaches to {self._next}, the next one begins at {work.next_offset}",
            )
        elif self._next >= work.gaps_to:
            facts.add(MISSING_BATCH, self._next, f"offsets {self._next} to {work.next_offset - 1} are not there")

    def _end_of_last(self) -> int:
        return int(self._waiting[-1, h.LAST_OFFSET]) + 1 if len(self._waiting) else self._next

    def _check_table(self, table: Ints, marks: Bools, *, is_last: bool) -> None:
        table, marks = np.concatenate([self._waiting, table]), np.concatenate([self._waiting_marks, marks])
        ready = len(table) if is_last else max(0, len(table) - 1)
        self._waiting, self._waiting_marks = table[ready:], marks[ready:]
        if ready:
            self._check_offsets(table, marks, ready)
            self._check_epochs(table[:ready])
            self._next = int(table[ready - 1, h.LAST_OFFSET]) + 1

    def _check_offsets(self, table: Ints, marks: Bools, ready: int) -> None:
        """Check the first `ready` batches by the batches after them."""
        base, last = table[:, h.BASE_OFFSET], table[:, h.LAST_OFFSET]
        expected = np.concatenate([[self._next], last[:-1] + 1])
        fits_behind = np.zeros(len(table), np.bool_)  # the next batch begins where this one should have ended
        fits_behind[:-1] = base[1:] == expected[:-1] + (last - base)[:-1] + 1
        is_moved = (base != expected) & fits_behind
        after_moved = np.concatenate([[False], is_moved[:-1]])
        goes_back = (base < expected) & ~after_moved
        skips = (base > expected) & ~fits_behind & ~after_moved & ~marks & (expected >= self._work.gaps_to)
        rows = np.stack([expected, base], axis=1)[:ready]
        self._facts.add_all(
            OFFSET_DISORDER,
            rows[(is_moved | goes_back)[:ready]],
            lambda row: (row[0], f"offset {row[0]} was to follow, but the batch says {row[1]}"),
        )
        self._facts.add_all(
            MISSING_BATCH, rows[skips[:ready]], lambda row: (row[0], f"offsets {row[0]} to {row[1] - 1} are not there")
        )

    def _check_epochs(self, table: Ints) -> None:
        table = table[(table[:, h.MAGIC] == MAGIC) & (table[:, h.LEADER_EPOCH] >= 0)]
        table = table[table[:, h.LAST_OFFSET] >= self._work.log_start_offset]
        if not len(table):
            return
        epoch, last = table[:, h.LEADER_EPOCH], table[:, h.LAST_OFFSET]
        if len(self._epochs):
            at = np.searchsorted(self._epochs[:, 1], last, side="right")
            expected = np.where(at > 0, self._epochs[at - 1, 0], epoch)
            is_new = (epoch > self._epochs[-1, 0]) & (last >= self._work.known_to)
            wrong = (epoch != expected) & ~is_new
        else:
            expected = np.maximum.accumulate(np.concatenate([[self._latest_epoch], epoch]))[:-1]
            wrong = epoch < expected
            self._latest_epoch = max(self._latest_epoch, int(epoch.max()))
        if wrong.any() and not self._has_told_epoch:  # one problem stands for all that follow
            self._has_told_epoch = True
            base, own, right = np.stack([table[:, h.BASE_OFFSET], epoch, expected], axis=1)[wrong][0].tolist()
            found = f"the batch has leader epoch {own}, by the leader epochs it is {right}"
            self._facts.add(EPOCH_DISAGREEMENT, base, found)
