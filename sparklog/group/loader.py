"""Loading of a shard from its partition of `__consumer_offsets`.

If there is a snapshot (log/offset_snapshots), the loader replays it first, and then only the records after it. So the
time of a load depends on the number of keys and the length of this tail, not on the number of commits. The result is
that of a replay of the whole log only if no record of the tail is missing. The loader uses the newest snapshot that is
whole, matches this log and has such a tail. If there is none, it reads the whole log. If compaction removes records of
the tail during the load, the loader drops what it has replayed, and reads the whole log.

Offsets that were committed in a transaction (by Apache Kafka; sparklog has none) take effect at the commit marker,
unless a later commit for the same partition has been replayed already. Offsets of an aborted or unfinished transaction
are skipped. A record that cannot be read is logged and skipped, so that all others can be used.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from sparklog.base.errors import CorruptRecord
from sparklog.log.log import Log
from sparklog.log.offset_snapshots.snapshot import OffsetGapCheck, Snapshot, SnapshotId, what_is_stale
from sparklog.offsets_topic.records import CoordinatorRecord, Key, decode
from sparklog.records.batch import BatchHeader, iterate_headers, read_header
from sparklog.records.markers import read_marker
from sparklog.records.records import Record, iterate_records

CHUNK_BYTES = 1 << 20
Replay = Callable[[CoordinatorRecord], None]
logger = logging.getLogger(__name__)


class _CompactedMeanwhile(Exception):
    """Records that followed the snapshot when it was chosen are missing now."""


class Memory(Protocol):
    """The object that a partition is loaded into."""

    def replay(self, record: CoordinatorRecord) -> None: ...


AnyMemory = TypeVar("AnyMemory", bound=Memory)


class Loaded(NamedTuple):
    """The numbers of records that a load has read."""

    records: int
    """Records read from the log."""
    snapshot_records: int = 0
    snapshot: SnapshotId | None = None

    def __str__(self) -> str:
        if self.snapshot is None:
            return f"{self.records} records"
        return f"a snapshot of {self.snapshot_records} records up to {self.snapshot.end_offset}, {self.records} records"


def load(
    log: Log, end_offset: int, make: Callable[[], AnyMemory], is_wanted: Callable[[], bool]
) -> tuple[AnyMemory, Loaded]:
    """Return a new object from `make` with all records below `end_offset` replayed into it. Blocks.

    Ends early if `is_wanted()` returns false. Raises KafkaStorageError, or CorruptRecord for a damaged batch.
    """
    if (found := _usable_snapshot(log, end_offset)) is not None:
        memory = make()
        try:
            return memory, _load_from(found, log, end_offset, memory.replay, is_wanted)
        except _CompactedMeanwhile:
            logger.warning("the snapshot up to %d is not used: the log was compacted meanwhile", found.id.end_offset)
    memory = make()
    return memory, Loaded(_load_log(log, log.log_start_offset, end_offset, memory.replay, is_wanted))


def _load_from(found: Snapshot, log: Log, end_offset: int, replay: Replay, is_wanted: Callable[[], bool]) -> Loaded:
    """Replay a snapshot and the records after it. Raises _CompactedMeanwhile if some of these are gone by now."""
    from_snapshot = 0
    with contextlib.closing(found.file):
        for data in found.read():
            if not is_wanted():
                break
            from_snapshot += _replay_snapshot(data, log.log_start_offset, replay)
    seen = OffsetGapCheck(found.id.end_offset)
    records = _load_log(log, found.id.end_offset, end_offset, replay, is_wanted, seen)
    if is_wanted() and not seen.reaches(end_offset):
        raise _CompactedMeanwhile
    return Loaded(records, from_snapshot, found.id)


def _usable_snapshot(log: Log, end_offset: int) -> Snapshot | None:
    """Return the newest snapshot that can be used, or None. Raises KafkaStorageError."""

    def what_is_wrong(snapshot: SnapshotId) -> str:
        if stale := what_is_stale(snapshot, log.epochs, log.log_start_offset, end_offset):
            return stale
        return "" if is_complete(log, snapshot.end_offset, end_offset) else "the log has been compacted above its end"

    return log.newest_snapshot(what_is_wrong)


def is_complete(log: Log, offset: int, end_offset: int) -> bool:
    """Whether there is a record at every offset from `offset` to `end_offset`: compaction has removed none.

    Reads only the headers of batches. Raises KafkaStorageError, or CorruptRecord.
    """
    seen = OffsetGapCheck(offset)
    while seen.is_unbroken and seen.next_offset < end_offset:
        piece = log.read(seen.next_offset, CHUNK_BYTES, max_offset=end_offset)
        if not piece.size:
            return False
        for _, header in iterate_headers(piece.read()):
            seen.take(header)
    return seen.is_unbroken


def _replay_snapshot(data: bytes, log_start: int, replay: Replay) -> int:
    """Replay records of a snapshot and return their number; records below the log start offset are skipped."""
    position = records = 0
    while position < len(data):
        for record in iterate_records(data, position):
            if record.offset >= log_start:
                records += 1
                if found := _decode(record):
                    replay(found)
        position += read_header(data, position).size
    return records


def _load_log(
    log: Log,
    offset: int,
    end_offset: int,
    replay: Replay,
    is_wanted: Callable[[], bool],
    seen: OffsetGapCheck | None = None,
) -> int:
    """Replay the log's records from `offset` on and return their number. `seen` gets the header of each batch."""
    transactions = _Transactions(replay)
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
                    transactions.take(record, header)
            position += header.size
    return records


def _pieces(log: Log, offset: int, end_offset: int, is_wanted: Callable[[], bool]) -> Iterator[bytes]:
    while offset < end_offset and is_wanted():
        piece = log.read(offset, CHUNK_BYTES, max_offset=end_offset)
        if not piece.size:
            return
        yield piece.read()
        offset = piece.next_offset


class _Transactions:
    """Replays records; holds those of a transaction until it is committed."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._held: dict[int, list[tuple[int, CoordinatorRecord]]] = {}
        self._newer: dict[Key, int] = {}
        """Keys replayed while records of a transaction are held, with the offset of the latest record of each."""

    def take(self, record: Record, header: BatchHeader) -> None:
        if header.is_control:
            marker = read_marker(record)
            self._end(header.producer_id, is_commit=marker is not None and marker.is_commit)
            return
        found = _decode(record)
        if found is None:
            return
        if header.is_transactional:
            self._held.setdefault(header.producer_id, []).append((record.offset, found))
            return
        if self._held:
            self._newer[found.key] = record.offset
        self._replay(found)

    def _end(self, producer_id: int, *, is_commit: bool) -> None:
        for offset, found in self._held.pop(producer_id, []) if is_commit else ():
            if self._newer.get(found.key, -1) < offset:
                self._newer[found.key] = offset
                self._replay(found)
        self._held.pop(producer_id, None)
        if not self._held:
            self._newer.clear()


def _decode(record: Record) -> CoordinatorRecord | None:
    """Return the decoded record; None if its kind is unknown or it cannot be read."""
    try:
        return decode(record.key, record.value)
    except CorruptRecord as error:
        logger.error("offset %d is passed over: %s", record.offset, error)
        return None
