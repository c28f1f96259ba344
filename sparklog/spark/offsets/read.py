"""Reads a partition in a task, such as one of the offsets topic: the records that count, and their bytes.

    survey     checks each batch and reads its header: where and how each transaction ended, the offset below which all
               have ended, and whether any record is missing. The error of a damaged batch is a fact of its partition
    records    the records that count, as columns, in log order

Offsets that were committed in a transaction count once the transaction is committed. Offsets of an aborted transaction
are skipped, as a coordinator skips them. A slice ends before the first transaction that has not ended.

Batches come from the partition's folder if the task sees it, else through the RPC ReadSegment. Both reads go by
offsets, so compaction may replace segments meanwhile: if a segment has changed, the read describes the log again, and
continues at its offset.

A slice that is added to an earlier state must be complete. Otherwise compaction may have removed a tombstone since the
survey, and the state keeps a deleted key. For such a slice, `records` checks the batches that it reads, and raises
`SliceCompacted`. A slice from the log start on must only be read within delete.retention.ms, as by any consumer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sparklog.arrow.filesystems import LogDirOwner, log_directory, not_seen, open_reader, sees
from sparklog.base.errors import (
    InvalidUpdateVersion,
    KafkaError,
    OffsetOutOfRange,
    SparklogError,
    UnsupportedForMessageFormat,
)
from sparklog.base.ids import TopicPartition
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.offset_snapshots.snapshot import OffsetGapCheck
from sparklog.records.arrow import decode_batches
from sparklog.records.batch import BatchHeader, check_batch, iterate_headers
from sparklog.records.records import iterate_records
from sparklog.spark.segment_files import is_visible

COLUMNS = ("offset", "timestamp", "key", "value")
CHUNK_BYTES = 4 << 20
ATTEMPTS = 10
"""Attempts at reading a log whose segments are replaced meanwhile."""
COMMIT_MARKER = 1
_INDEX_ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])


class SliceCompacted(SparklogError):
    """Compaction has removed records of a slice since its survey."""


class MarkerPosition(NamedTuple):
    """The place of a marker, which ends a producer's transaction."""

    offset: int
    is_commit: bool


Markers = Mapping[int, tuple[MarkerPosition, ...]]
"""Markers of each producer id, in offset order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSlice:
    """Offsets of a partition, and where to read them."""

    partition: TopicPartition
    offset_from: int
    offset_to: int
    folder: str | None
    """The partition's folder; None if the driver does not see it."""
    owner: LogDirOwner | None = None
    """The broker whose log directory has the folder, as the driver sees it."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the clients, for reads through the broker; empty if there is none."""
    markers: Markers = field(default_factory=dict)
    must_be_complete: bool = False
    """Whether there must be a record at each offset."""

    @classmethod
    def of(cls, log: LogDescription, offset_from: int, offset_to: int, client: Mapping[str, Any]) -> PartitionSlice:
        """Return offsets of a log, read from its folder if the driver sees it. No `client`: from there in any case."""
        return cls(
            partition=log.partition, offset_from=offset_from, offset_to=offset_to,
            folder=log.folder if not client or is_visible(log) else None,
            owner=LogDirOwner.of(log_directory(log.folder)), client=dict(client),
        )  # fmt: skip


class SliceSurvey(NamedTuple):
    """Facts from the headers of a slice."""

    partition: int
    offset_to: int
    """All transactions below have ended."""
    markers: dict[int, tuple[MarkerPosition, ...]]
    is_complete: bool
    """Whether there is a record at each offset: compaction has removed nothing."""
    error: str = ""
    """Why the slice cannot be read; then there are no other facts."""


def survey(slice_: PartitionSlice) -> SliceSurvey:
    """Return the facts in the batch headers and control batches of a slice, or why it cannot be read."""
    try:
        return _survey(slice_)
    except (KafkaError, OSError) as error:
        return SliceSurvey(slice_.partition.partition, slice_.offset_from, {}, is_complete=True, error=str(error))


def _survey(slice_: PartitionSlice) -> SliceSurvey:
    markers: dict[int, list[MarkerPosition]] = {}
    begun: dict[int, int] = {}
    gaps = OffsetGapCheck(slice_.offset_from)
    for data in batches(slice_):
        for position, header in _batch_headers(data):
            if header.base_offset >= slice_.offset_to:
                break
            check_batch(data, position)
            gaps.take(header)
            if header.is_control:
                for record in iterate_records(data, position):
                    is_commit = int.from_bytes((record.key or b"")[2:4], "big") == COMMIT_MARKER
                    markers.setdefault(header.producer_id, []).append(MarkerPosition(record.offset, is_commit))
                begun.pop(header.producer_id, None)
            elif header.is_transactional:
                begun.setdefault(header.producer_id, header.base_offset)
    offset_to = min([slice_.offset_to, *begun.values()])
    ended = {producer: tuple(each) for producer, each in markers.items()}
    return SliceSurvey(slice_.partition.partition, offset_to, ended, gaps.reaches(slice_.offset_to))


def records(slice_: PartitionSlice) -> Iterator[pa.RecordBatch]:
    """Yield the records of a slice that count: COLUMNS, and `transactional`, whether a transaction wrote the record.

    Raises SliceCompacted, and the errors of `batches`.
    """
    gaps = OffsetGapCheck(slice_.offset_from)
    for data in batches(slice_):
        headers = [header for _, header in _batch_headers(data) if header.base_offset < slice_.offset_to]
        for header in headers:
            gaps.take(header)
        transactions = [header for header in headers if header.is_transactional and not header.is_control]
        for batch in decode_batches(data, columns=COLUMNS, offset_from=slice_.offset_from, offset_to=slice_.offset_to):
            if batch.num_rows:
                yield _committed_records(batch, transactions, slice_.markers)
    if slice_.must_be_complete and not gaps.reaches(slice_.offset_to):
        raise SliceCompacted(f"{slice_.partition}: records below {slice_.offset_to} were compacted away meanwhile")


def batches(slice_: PartitionSlice) -> Iterator[bytes]:
    """Yield chunks of whole batches that hold the slice; the first and the last may hold other records too.

    Raises OffsetOutOfRange if records of the slice no longer exist, CorruptRecord, the errors of the client, and
    ConfigError if there is no broker and this machine does not see the folder.
    """
    if slice_.offset_from >= slice_.offset_to:
        return
    if slice_.folder is None or not sees(slice_.folder, slice_.owner):
        if slice_.folder is not None and not slice_.client:
            raise not_seen(slice_.folder)
        yield from _through_broker(slice_)
        return
    reader = open_reader(slice_.folder)
    for piece in reader.cut(slice_.offset_from, slice_.offset_to, 1):
        yield from reader.read(piece, CHUNK_BYTES)


def _committed_records(batch: pa.RecordBatch, transactions: list[BatchHeader], markers: Markers) -> pa.RecordBatch:
    """Return `batch` without records of transactions that were aborted or have not ended; add `transactional`."""
    offsets = batch.column("offset").to_numpy()
    counts, in_transaction = np.ones(len(offsets), np.bool_), np.zeros(len(offsets), np.bool_)
    for header in transactions:
        rows = slice(*np.searchsorted(offsets, [header.base_offset, header.next_offset]))
        in_transaction[rows] = True
        counts[rows] = _is_committed(header, markers)
    marked = batch.append_column("transactional", pa.array(in_transaction))
    return marked if counts.all() else marked.filter(pa.array(counts))


def _is_committed(header: BatchHeader, markers: Markers) -> bool:
    ends = markers.get(header.producer_id, ())
    at = bisect_right(ends, header.last_offset, key=lambda marker: marker.offset)
    return at < len(ends) and ends[at].is_commit


def _batch_headers(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield positions and headers of batches in format v2; older message sets know no transactions."""
    try:
        yield from iterate_headers(data)
    except UnsupportedForMessageFormat:
        return


def _through_broker(slice_: PartitionSlice) -> Iterator[bytes]:
    from sparklog.client import Maintenance  # loads gRPC: only for tasks that see no folder

    offset = slice_.offset_from
    with Maintenance(**slice_.client) as maintenance:
        for _ in range(ATTEMPTS):
            log = maintenance.describe_logs([slice_.partition])[slice_.partition]
            if isinstance(log, KafkaError):
                raise log
            try:
                for data in _read_segments(maintenance, log, offset, slice_.offset_to):
                    yield data
                    offset = [header for _, header in iterate_headers(data)][-1].next_offset
                return
            except (InvalidUpdateVersion, OffsetOutOfRange):
                if offset < log.log_start_offset:
                    raise
    raise InvalidUpdateVersion(f"{slice_.partition}: segments are replaced faster than they can be read")


def _read_segments(maintenance: Any, log: LogDescription, offset: int, offset_to: int) -> Iterator[bytes]:
    if offset < log.segments[0].base_offset:
        raise OffsetOutOfRange(f"{log.partition} begins at {log.segments[0].base_offset}, not at {offset}")
    for segment in log.segments:
        if segment.next_offset <= offset or segment.base_offset >= offset_to:
            continue
        position = _position_of_offset(maintenance, log, segment, offset)
        yield from whole_batches(maintenance.read_segment(log, segment, position), offset, offset_to)


def _position_of_offset(maintenance: Any, log: LogDescription, segment: SegmentDescription, offset: int) -> int:
    """Return where in the segment's file to begin for `offset`: the position of the last index entry not after it."""
    if offset <= segment.base_offset:
        return 0
    data = b"".join(maintenance.read_segment(log, segment, file="index"))
    entries = np.frombuffer(data, _INDEX_ENTRY, len(data) // _INDEX_ENTRY.itemsize)
    entries = entries[entries["relative_offset"] > 0]  # the rest is preallocated
    at = int(np.searchsorted(entries["relative_offset"], offset - segment.base_offset, side="right"))
    return int(entries["position"][at - 1]) if at else 0


def whole_batches(pieces: Iterator[bytes], offset: int, offset_to: int) -> Iterator[bytes]:
    """Yield the batches of a file's pieces that reach `offset` and begin below `offset_to`, in chunks of whole ones."""
    rest = b""
    for piece in pieces:
        rest += piece
        first = end = 0
        for position, header in iterate_headers(rest):
            if header.base_offset >= offset_to:
                break
            first = first if header.next_offset > offset else position + header.size
            end = position + header.size
        else:
            if end > first:
                yield rest[first:end]
            rest = rest[end:]
            continue
        if end > first:
            yield rest[first:end]
        return
