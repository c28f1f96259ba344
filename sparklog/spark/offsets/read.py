"""A partition of the offsets topic, read by one task: which records count, and their bytes.

    survey     walks the headers of batches: where each transaction ended and how, up to where all have ended, and
               whether any record is missing
    records    the records that count, as columns, in the order of the log

Offsets that were committed in a transaction count once it was committed; those of one that was aborted are passed over,
as a coordinator passes over them. A slice ends before the first transaction that has not ended.

Batches come from the partition's folder where it can be seen from the task, else through the RPC ReadSegment. Either
way what is read goes by offsets, so compaction may replace segments meanwhile: where a segment is no more what it was,
the log is described again and read on from where the reading was.

What is added to what was known before must be whole, or a tombstone may be missing that compaction has removed since
the survey: of such a slice, `records` looks at the batches that it reads, and fails with `Compacted`. A slice from the
log start on needs no more than any consumer that starts there: to be read within delete.retention.ms.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sparklog.base.errors import (
    InvalidUpdateVersion,
    KafkaError,
    OffsetOutOfRange,
    SparklogError,
    UnsupportedForMessageFormat,
)
from sparklog.base.ids import TopicPartition
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.offset_gaps import OffsetGapCheck
from sparklog.records.arrow import decode_batches
from sparklog.records.batch import BatchHeader, iterate_headers
from sparklog.records.records import iterate_records
from sparklog.spark.folders import open_reader

COLUMNS = ("offset", "timestamp", "key", "value")
CHUNK_BYTES = 4 << 20
ATTEMPTS = 10
"""At a log whose segments are replaced under the reading."""
COMMIT_MARKER = 1
_INDEX_ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])


class Compacted(SparklogError):
    """Records are missing in a slice that had them when it was surveyed."""


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    offset: int
    is_commit: bool


Markers = Mapping[int, tuple[Marker, ...]]
"""Of each producer, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Offsets of a partition, and where they are to be had."""

    partition: TopicPartition
    offset_from: int
    offset_to: int
    folder: str | None
    """Where the partition's folder can be seen."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the clients, where it cannot."""
    markers: Markers = field(default_factory=dict)
    must_be_complete: bool = False
    """Whether there has to be a record at each offset."""


class Survey(NamedTuple):
    """What the headers of a slice say."""

    partition: int
    offset_to: int
    """Up to where all transactions have ended."""
    markers: dict[int, tuple[Marker, ...]]
    is_complete: bool
    """Whether there is a record at each offset: compaction has taken nothing."""


def survey(slice_: Slice) -> Survey:
    markers: dict[int, list[Marker]] = {}
    begun: dict[int, int] = {}
    seen = OffsetGapCheck(slice_.offset_from)
    for data in batches(slice_):
        for position, header in _headers(data):
            if header.base_offset >= slice_.offset_to:
                break
            seen.take(header)
            if header.is_control:
                for record in iterate_records(data, position):
                    is_commit = int.from_bytes((record.key or b"")[2:4], "big") == COMMIT_MARKER
                    markers.setdefault(header.producer_id, []).append(Marker(record.offset, is_commit))
                begun.pop(header.producer_id, None)
            elif header.is_transactional:
                begun.setdefault(header.producer_id, header.base_offset)
    offset_to = min([slice_.offset_to, *begun.values()])
    ended = {producer: tuple(each) for producer, each in markers.items()}
    return Survey(slice_.partition.partition, offset_to, ended, seen.reaches(slice_.offset_to))


def records(slice_: Slice) -> Iterator[pa.RecordBatch]:
    """COLUMNS, and whether a record was written in a transaction. Raises Compacted, and as `batches` does."""
    seen = OffsetGapCheck(slice_.offset_from)
    for data in batches(slice_):
        headers = [header for _, header in _headers(data) if header.base_offset < slice_.offset_to]
        for header in headers:
            seen.take(header)
        transactions = [header for header in headers if header.is_transactional and not header.is_control]
        for batch in decode_batches(data, columns=COLUMNS, offset_from=slice_.offset_from, offset_to=slice_.offset_to):
            if batch.num_rows:
                yield _counting(batch, transactions, slice_.markers)
    if slice_.must_be_complete and not seen.reaches(slice_.offset_to):
        raise Compacted(f"{slice_.partition}: records below {slice_.offset_to} were compacted away meanwhile")


def batches(slice_: Slice) -> Iterator[bytes]:
    """Chunks of whole batches that hold the slice; the outer ones may hold other records too.

    Raises OffsetOutOfRange where records of the slice are no longer there, CorruptRecord, and as the client does.
    """
    if slice_.offset_from >= slice_.offset_to:
        return
    if slice_.folder is None:
        yield from _through_broker(slice_)
        return
    reader = open_reader(slice_.folder)
    for piece in reader.cut(slice_.offset_from, slice_.offset_to, 1):
        yield from reader.read(piece, CHUNK_BYTES)


def _counting(batch: pa.RecordBatch, transactions: list[BatchHeader], markers: Markers) -> pa.RecordBatch:
    """`batch` without the records of transactions that were aborted or have not ended."""
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


def _headers(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Of batches in format v2: message sets of old know no transactions."""
    try:
        yield from iterate_headers(data)
    except UnsupportedForMessageFormat:
        return


def _through_broker(slice_: Slice) -> Iterator[bytes]:
    from sparklog.client import Maintenance  # loads gRPC: only for tasks that see no folder

    offset = slice_.offset_from
    with Maintenance(**slice_.client) as maintenance:
        for _ in range(ATTEMPTS):
            log = maintenance.describe_logs([slice_.partition])[slice_.partition]
            if isinstance(log, KafkaError):
                raise log
            try:
                for data in _of_segments(maintenance, log, offset, slice_.offset_to):
                    yield data
                    offset = [header for _, header in iterate_headers(data)][-1].next_offset
                return
            except (InvalidUpdateVersion, OffsetOutOfRange):
                if offset < log.log_start_offset:
                    raise
    raise InvalidUpdateVersion(f"{slice_.partition}: segments are replaced faster than they can be read")


def _of_segments(maintenance: Any, log: LogDescription, offset: int, offset_to: int) -> Iterator[bytes]:
    if offset < log.segments[0].base_offset:
        raise OffsetOutOfRange(f"{log.partition} begins at {log.segments[0].base_offset}, not at {offset}")
    for segment in log.segments:
        if segment.next_offset <= offset or segment.base_offset >= offset_to:
            continue
        position = _position(maintenance, log, segment, offset)
        yield from whole_batches(maintenance.read_segment(log, segment, position), offset, offset_to)


def _position(maintenance: Any, log: LogDescription, segment: SegmentDescription, offset: int) -> int:
    """Where in the segment's file to begin for `offset`: at the last index entry that is not behind it."""
    if offset <= segment.base_offset:
        return 0
    data = b"".join(maintenance.read_segment(log, segment, file="index"))
    entries = np.frombuffer(data, _INDEX_ENTRY, len(data) // _INDEX_ENTRY.itemsize)
    entries = entries[entries["relative_offset"] > 0]  # the rest is room for more
    at = int(np.searchsorted(entries["relative_offset"], offset - segment.base_offset, side="right"))
    return int(entries["position"][at - 1]) if at else 0


def whole_batches(pieces: Iterator[bytes], offset: int, offset_to: int) -> Iterator[bytes]:
    """The batches of a file's pieces that reach `offset` and begin below `offset_to`, as chunks of whole ones."""
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
