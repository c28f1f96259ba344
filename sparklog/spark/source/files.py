"""How a task reads its pieces of segments: chunks of whole batches from files, decoded a column at a time.

Files may change between plan and task. `LogReader` copes with segments that were renamed, rolled or compacted. Records
that it no longer finds (a deleted segment) are fetched from the broker, and so are all records if this machine does not
see the log directory, or has another broker's at its path. A read of a `path` has no broker: it needs the log directory
that the driver saw, and reads what is left of the folder. Offsets below the log start by then are lost;
`failOnDataLoss` decides whether that fails the read. The plan names the aborted transactions, whose batches are skipped
by their headers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import Buffer
from sparklog.log.reader import LogReader, ReadRange
from sparklog.log.segment.scan import place_at
from sparklog.records.arrow import decode_batches
from sparklog.spark.folders import not_seen, open_reader, sees
from sparklog.spark.source.filters import LOWEST
from sparklog.spark.source.offsets import OffsetRange, report_losses
from sparklog.spark.source.options import IsolationLevel, ReadOptions
from sparklog.spark.source.scan import GONE, FilesTask

CHUNK_BYTES = 2 << 20
"""Bytes per read: twenty thousand records of 100 bytes. Half and twice as much were each a tenth slower in Spark."""
GROUP_BYTES = 4 << 20
"""Bytes decoded at once if records are compressed."""


def read_files(task: FilesTask, options: ReadOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the task's pieces, in order, with at least these columns."""
    if not sees(task.folder, task.owner):
        yield from _unseen(task, options)
        return
    reader = open_reader(task.folder)
    aborts: list[tuple[int, int]] | None = [] if options.isolation_level is IsolationLevel.READ_COMMITTED else None
    for piece in task.ranges:
        offset = piece.offset_from
        last: Buffer = b""
        try:
            for last in reader.read(piece, CHUNK_BYTES):
                for part in not_older(last, task.timestamp_ms.low):
                    yield from _decoded(part, piece, columns, task, aborts)
        except GONE:
            left = piece._replace(offset_from=max(offset, end_of(last)))
            yield from from_elsewhere(task, left, options, columns)
    if aborts:
        check_listed(reader, task, aborts)


def _unseen(task: FilesTask, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task whose folder this machine does not see, from the broker.

    Raises ConfigError if there is no broker.
    """
    if options.broker is None:
        raise not_seen(task.folder)
    from sparklog.spark.broker import fetch_range  # loads the gRPC client: only where files are not seen

    for whole in _joined(task):
        yield from fetch_range(whole, options)


def _joined(task: FilesTask) -> Iterator[OffsetRange]:
    """Yield the offsets of the task's pieces, adjacent pieces as one range."""
    low, high = task.ranges[0].offset_from, task.ranges[0].offset_to
    for piece in task.ranges[1:]:
        if piece.offset_from != high:
            yield OffsetRange(task.partition, low, high)
            low = piece.offset_from
        high = piece.offset_to
    yield OffsetRange(task.partition, low, high)


def check_listed(reader: LogReader, task: FilesTask, aborts: Sequence[tuple[int, int]]) -> None:
    """Raise CorruptRecord if records were read that a marker has aborted: no transaction index named the transaction.

    A marker alone says little: a producer may abort a transaction without records here.
    """
    unlisted = task.aborted.unlisted(aborts)
    if not unlisted:
        return
    offsets = [offset for _, offset in unlisted]
    with contextlib.suppress(*GONE):
        for found in reader.aborted_by_markers(min(offsets), max(offsets) + 1):
            if (found.producer_id, found.last_offset) in unlisted:
                raise CorruptRecord(
                    f"{task.partition}: the transaction that was aborted at offset {found.last_offset} is missing in "
                    f"the transaction index in {task.folder}, so its records cannot be left out"
                )


def not_older(data: Buffer, timestamp_ms: int) -> Iterator[Buffer]:
    """Yield the batches in `data` whose newest record is not older than `timestamp_ms`; adjacent batches together."""
    if timestamp_ms == LOWEST:
        yield data
        return
    view = memoryview(data)
    start = at = 0
    while place := place_at(data, at, at):
        if place.max_timestamp_ms < timestamp_ms and place.magic > 0:  # messages of format v0 have no timestamp
            if start < at:
                yield view[start:at]
            start = place.end
        at = place.end
    if start < at:
        yield view[start:at]


def end_of(data: Buffer) -> int:
    """Return the offset after the last batch in `data`; 0 if there is none."""
    at = end = 0
    while place := place_at(data, at, at):
        at, end = place.end, place.last_offset + 1
    return end


def _decoded(
    data: Buffer,
    wanted: ReadRange,
    columns: Sequence[str],
    task: FilesTask,
    aborts: list[tuple[int, int]] | None = None,
) -> Iterator[pa.RecordBatch]:
    return decode_batches(
        data,
        columns=columns,
        offset_from=wanted.offset_from,
        offset_to=wanted.offset_to,
        timestamp_unit="us",
        group_bytes=GROUP_BYTES,
        aborted=task.aborted,
        aborts=aborts,
    )


def from_elsewhere(
    task: FilesTask, left: ReadRange, options: ReadOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a piece that its segment no longer holds."""
    missing = OffsetRange(task.partition, left.offset_from, left.offset_to)
    if options.broker is not None:
        from sparklog.spark.broker import fetch_range  # loads the gRPC client: only where files are gone

        yield from fetch_range(missing, options)
        return
    for rest in _still_there(open_reader(task.folder), missing, options):
        for data in open_reader(task.folder).read(rest, CHUNK_BYTES):
            yield from _decoded(data, rest, columns, task)


def _still_there(reader: LogReader, missing: OffsetRange, options: ReadOptions) -> list[ReadRange]:
    """Report what a range has lost, and return the pieces of segments that hold the rest."""
    try:
        start, end = reader.log_start_offset, reader.end_offset()
    except GONE:
        start = end = missing.offset_to  # the folder is gone, or empty
    low, high = max(missing.offset_from, start), min(missing.offset_to, end)
    lost = f"{missing.partition}: of the offsets {missing.offset_from} to {missing.offset_to - 1}, those"
    if low > missing.offset_from:
        report_losses([f"{lost} below {min(low, missing.offset_to)} are gone"], fail=options.fail_on_data_loss)
    if high < missing.offset_to:
        report_losses([f"{lost} from {high} on are gone"], fail=options.fail_on_data_loss)
    return reader.cut(low, high, 1) if low < high else []
