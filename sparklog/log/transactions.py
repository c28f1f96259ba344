"""The open and aborted transactions of a partition, read from the files of its folder (KIP-98).

Readers without a broker need both: records of an open transaction are not committed yet, those of an aborted one never
will be.

    open       a snapshot of producer state (producers/snapshots.py) names the first offsets of the transactions that
               were open at its offset. The batch headers and markers after it show which have begun and ended since
    aborted    a segment's transaction index names the transactions that markers in this segment aborted. The records
               may lie in earlier segments. For a damaged index, headers and markers show the same

The walk costs about two microseconds for each batch after the snapshot. Each segment has a snapshot at its base, so a
walk covers only the active segment unless snapshots were removed.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from sparklog.base.errors import CorruptRecord, InvalidRecord
from sparklog.base.fs import ReadFs
from sparklog.log.directory.checkpoints import read_file
from sparklog.log.files import SNAPSHOT, SegmentFile, path_in
from sparklog.log.producers.snapshots import NONE, CorruptSnapshot, read_snapshot
from sparklog.log.segment.read_segment import ReadSegment
from sparklog.log.segment.scan import PIECE_BYTES, BatchPlace, walk
from sparklog.log.segment.transaction_index import AbortedTransaction, read_entries
from sparklog.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from sparklog.records.markers import EndTransactionMarker, read_marker
from sparklog.records.records import read_records

MAX_MARKER_BYTES = 4096  # a control batch takes 78


class TransactionWalk(Struct, kw_only=True):
    """The transactions of a partition, followed from one offset to another."""

    offset_from: int = 0
    offset: int = 0
    """The offset after the last batch that was followed."""
    open: dict[int, int] = field(default_factory=dict)
    """First offsets of the transactions that are open here, by producer id."""
    aborted: list[AbortedTransaction] = field(default_factory=list)
    """The transactions that markers since `offset_from` have aborted, in the order of the markers."""

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction; None if none is open."""
        return min(self.open.values(), default=None)

    def copy(self) -> TransactionWalk:
        """Return a copy, which can be continued without a change to this one."""
        return TransactionWalk(
            offset_from=self.offset_from, offset=self.offset, open=dict(self.open), aborted=list(self.aborted)
        )

    def add(self, batch: BatchPlace) -> None:
        """Account for a batch of records."""
        if batch.attributes & TRANSACTIONAL_BIT:
            self.open.setdefault(batch.producer_id, batch.base_offset)
        self.offset = batch.last_offset + 1

    def end(self, batch: BatchPlace, marker: EndTransactionMarker | None) -> None:
        """Account for a control batch. marker: None if it is of another kind or a cleaner has emptied it"""
        if marker is not None:
            first = self.open.pop(batch.producer_id, None)
            if first is not None and not marker.is_commit:
                unstable = self.first_unstable_offset
                stable = batch.last_offset + 1 if unstable is None else unstable
                self.aborted.append(AbortedTransaction(batch.producer_id, first, batch.last_offset, stable))
        self.offset = batch.last_offset + 1


def from_snapshot(fs: ReadFs, folder: str, files: Iterable[SegmentFile], offset_to: int) -> TransactionWalk:
    """Return a walk that begins at the newest readable snapshot at or below `offset_to`; at offset 0 if there is none.

    Raises OSError.
    """
    snapshots = [each for each in files if each.suffix == SNAPSHOT and not each.mark and each.base_offset <= offset_to]
    for snapshot in sorted(snapshots, reverse=True):
        try:
            entries = read_snapshot(read_file(fs, path_in(folder, snapshot)))
        except CorruptSnapshot:
            continue
        begun = {each.producer_id: each.transaction_first_offset for each in entries}
        return TransactionWalk(
            offset_from=snapshot.base_offset,
            offset=snapshot.base_offset,
            open={producer_id: first for producer_id, first in begun.items() if first != NONE},
        )
    return TransactionWalk()


def follow(walked: TransactionWalk, segment: ReadSegment, offset_to: int, awaited: set[int] | None = None) -> None:
    """Continue with the batches of a segment from `walked.offset` on that begin below `offset_to`.

    awaited: producers whose markers are taken out of it; the walk ends when none is left

    Raises CorruptRecord or OSError.
    """
    offset = walked.offset
    first = segment.find(offset, segment.size_bytes) if offset > segment.base_offset else None
    if first is None and offset > segment.base_offset:
        return
    for batch in walk(segment.file, first.position if first else 0, segment.size_bytes, PIECE_BYTES):
        if batch.base_offset >= offset_to:
            return
        if batch.attributes & CONTROL_BIT:
            walked.end(batch, _marker_of(segment, batch))
            if awaited is not None:
                awaited.discard(batch.producer_id)
                if not awaited:
                    return
        else:
            walked.add(batch)
        if walked.offset >= offset_to:
            return  # after an unclean stop, the bytes behind it mean nothing


def _marker_of(segment: ReadSegment, batch: BatchPlace) -> EndTransactionMarker | None:
    try:
        records = read_records(segment.file.read_at(batch.position, min(batch.size, MAX_MARKER_BYTES)))
    except InvalidRecord as error:
        raise CorruptRecord(str(error)) from error
    return read_marker(records[0]) if records else None


def read_index(fs: ReadFs, folder: str, file: SegmentFile) -> list[AbortedTransaction]:
    """Return the entries of a transaction index. Raises CorruptRecord if they cannot be right, and OSError."""
    path = path_in(folder, file)
    entries = read_entries(read_file(fs, path))
    last_offset = file.base_offset - 1
    for entry in entries:
        if not 0 <= entry.first_offset < entry.last_offset or entry.last_offset <= last_offset:
            raise CorruptRecord(f"{path}: {entry} after offset {last_offset}")
        last_offset = entry.last_offset
    return entries
