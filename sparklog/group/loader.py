"""Loading of a shard from its partition of `__consumer_offsets`.

If there is a snapshot (log/offset_snapshots), the loader replays it first, and then only the records after it, the
tail. So the time of a load depends on the number of keys and the length of the tail, not on the number of commits. The
result equals a replay of the whole log only if the tail has no gaps. The loader uses the newest snapshot that is whole,
matches this log and has a tail without gaps; without one, it reads the whole log. If compaction removes records of the
tail during the load, the loader starts again with the whole log.

A transaction that is open at the end of the loaded records stays open in the shard. A snapshot holds the outcome of
each transaction that begins below its end, so it must not end above the first offset of an open transaction.

A record that cannot be read is logged and skipped, so that all others can be used.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from sparklog.base.errors import CorruptRecord
from sparklog.log.log import Log
from sparklog.log.offset_snapshots.snapshot import OffsetGapCheck, Snapshot, SnapshotId, what_is_stale
from sparklog.offsets_topic.records import CoordinatorRecord, decode
from sparklog.records.batch import BatchHeader, iterate_headers, read_header
from sparklog.records.markers import read_marker
from sparklog.records.records import Record, iterate_records
from sparklog.runtime.state_machine import ProducerIdAndEpoch

CHUNK_BYTES = 1 << 20
logger = logging.getLogger(__name__)


class _CompactedMeanwhile(Exception):
    """Records that followed the snapshot when it was chosen are missing now."""


class ReplayTarget(Protocol):
    """A shard, as the loader uses it."""

    def replay(
        self, record: CoordinatorRecord, log_offset: int | None = None, producer: ProducerIdAndEpoch | None = None
    ) -> None:
        """Apply a record; as `coordinator.runtime.CoordinatorShard.replay`."""
        ...

    def end_transaction(self, producer_id: int, *, is_commit: bool, log_offset: int | None = None) -> None:
        """Apply a transaction's marker; as `GroupShard.end_transaction`."""
        ...


AnyTarget = TypeVar("AnyTarget", bound=ReplayTarget)


class LoadSummary(NamedTuple):
    """The numbers of records in a load, for the log."""

    records: int
    """Records read from the log."""
    snapshot_records: int = 0
    snapshot: SnapshotId | None = None

    def __str__(self) -> str:
        if self.snapshot is None:
            return f"{self.records} records"
        return f"a snapshot of {self.snapshot_records} records up to {self.snapshot.end_offset}, {self.records} records"


def load(
    log: Log, end_offset: int, make: Callable[[], AnyTarget], is_wanted: Callable[[], bool]
) -> tuple[AnyTarget, LoadSummary]:
    """Return a new target from `make` with all records below `end_offset` replayed into it. Blocks.

    Ends early if `is_wanted()` returns false. Raises KafkaStorageError, or CorruptRecord for a damaged batch.
    """
    if (found := _usable_snapshot(log, end_offset)) is not None:
        target = make()
        try:
            return target, _load_from(found, log, end_offset, target, is_wanted)
        except _CompactedMeanwhile:
            logger.warning("the snapshot up to %d is not used: the log was compacted meanwhile", found.id.end_offset)
    target = make()
    return target, LoadSummary(_load_log(log, log.log_start_offset, end_offset, target, is_wanted))


def _load_from(
    found: Snapshot, log: Log, end_offset: int, target: ReplayTarget, is_wanted: Callable[[], bool]
) -> LoadSummary:
    """Replay a snapshot and its tail. Raises _CompactedMeanwhile if records of the tail are missing."""
    from_snapshot = 0
    with contextlib.closing(found.file):
        for data in found.read():
            if not is_wanted():
                break
            from_snapshot += _replay_snapshot(data, log.log_start_offset, target)
    seen = OffsetGapCheck(found.id.end_offset)
    records = _load_log(log, found.id.end_offset, end_offset, target, is_wanted, seen)
    if is_wanted() and not seen.reaches(end_offset):
        raise _CompactedMeanwhile
    return LoadSummary(records, from_snapshot, found.id)


def _usable_snapshot(log: Log, end_offset: int) -> Snapshot | None:
    """Return the newest usable snapshot; None if there is none. Raises KafkaStorageError."""
    stable_offset = _stable_offset(log)

    def what_is_wrong(snapshot: SnapshotId) -> str:
        if stale := what_is_stale(snapshot, log.epochs, log.log_start_offset, end_offset):
            return stale
        if snapshot.end_offset > stable_offset:
            return f"a transaction has been open since {stable_offset}"
        return "" if is_complete(log, snapshot.end_offset, end_offset) else "the log has been compacted above its end"

    return log.offset_snapshots.newest(what_is_wrong)


def _stable_offset(log: Log) -> int:
    """Return the first offset of the oldest open transaction; the log end offset if there is none."""
    begun = [state.transaction_first_offset for state in log.producers.values()]
    return min((offset for offset in begun if offset >= 0), default=log.log_end_offset)


def is_complete(log: Log, offset: int, end_offset: int) -> bool:
    """Return whether the log has a record at every offset from `offset` to `end_offset`: compaction has removed none.

    `end_offset` is exclusive. Reads only the headers of batches. Raises KafkaStorageError, or CorruptRecord.
    """
    seen = OffsetGapCheck(offset)
    while seen.is_unbroken and seen.next_offset < end_offset:
        piece = log.read(seen.next_offset, CHUNK_BYTES, max_offset=end_offset)
        if not piece.size:
            return False
        for _, header in iterate_headers(piece.read()):
            seen.take(header)
    return seen.is_unbroken


def _replay_snapshot(data: bytes, log_start: int, target: ReplayTarget) -> int:
    """Replay records of a snapshot and return their number; records below the log start offset are skipped."""
    position = records = 0
    while position < len(data):
        for record in iterate_records(data, position):
            if record.offset >= log_start:
                records += 1
                if found := _decode(record):
                    target.replay(found)
        position += read_header(data, position).size
    return records


def _load_log(
    log: Log,
    offset: int,
    end_offset: int,
    target: ReplayTarget,
    is_wanted: Callable[[], bool],
    seen: OffsetGapCheck | None = None,
) -> int:
    """Replay the log's records from `offset` on and return their number. `seen` gets the header of each batch."""
    records = 0
    for data in _pieces(log, offset, end_offset, is_wanted):
        position = 0
        while position < len(data):
            header = read_header(data, position)
            if seen is not None:
                seen.take(header)
            for record in iterate_records(data, position):
                if record.offset >= offset:
                    records += 1
                    _replay_record(target, record, header)
            position += header.size
    return records


def _replay_record(target: ReplayTarget, record: Record, header: BatchHeader) -> None:
    if header.is_control:
        if (marker := read_marker(record)) is not None:
            target.end_transaction(header.producer_id, is_commit=marker.is_commit)
        return
    if (found := _decode(record)) is not None:
        producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch) if header.is_transactional else None
        target.replay(found, None, producer)


def _pieces(log: Log, offset: int, end_offset: int, is_wanted: Callable[[], bool]) -> Iterator[bytes]:
    while offset < end_offset and is_wanted():
        piece = log.read(offset, CHUNK_BYTES, max_offset=end_offset)
        if not piece.size:
            return
        yield piece.read()
        offset = piece.next_offset


def _decode(record: Record) -> CoordinatorRecord | None:
    """Return the decoded record; None if its type is unknown or it is corrupt."""
    try:
        return decode(record.key, record.value)
    except CorruptRecord as error:
        logger.error("offset %d is passed over: %s", record.offset, error)
        return None
