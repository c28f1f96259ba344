"""Reads a task's pieces of segments.

If a segment was deleted meanwhile, its records are fetched from the broker. If this machine does not see the log
directory, or has another broker's at the same path, all records are fetched. A read of a `path` has no broker: it needs
the log directory that the driver saw, and reads the records that are left in the folder. Offsets below the new log
start are lost; `failOnDataLoss` decides whether that fails the read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sparklog.arrow.filesystems import not_seen, sees
from sparklog.arrow.options import IsolationLevel
from sparklog.arrow.segments import PartitionRead
from sparklog.log.segment.ranges import ReadRange
from sparklog.spark.source.filters import LOWEST
from sparklog.spark.source.offsets import PartitionRange, report_losses
from sparklog.spark.source.options import ReadOptions
from sparklog.spark.source.scan import FilesTask


def read_files(task: FilesTask, options: ReadOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the task's pieces, in order, with at least these columns."""
    if not sees(task.folder, task.owner):
        return _read_unseen(task, options)
    records = records_of(task, options, columns)
    return records.read(task.ranges, lambda left: read_missing(task, left, options, columns))


def _read_unseen(task: FilesTask, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task whose folder this machine does not see, from the broker.

    Raises ConfigError if there is no broker.
    """
    if options.broker is None:
        raise not_seen(task.folder)
    from sparklog.spark.broker import fetch_range  # loads the gRPC client: only where files are not seen

    for whole in _joined_ranges(task):
        yield from fetch_range(whole, options)


def _joined_ranges(task: FilesTask) -> Iterator[PartitionRange]:
    """Yield the offsets of the task's pieces, adjacent pieces as one range."""
    low, high = task.ranges[0].offset_from, task.ranges[0].offset_to
    for piece in task.ranges[1:]:
        if piece.offset_from != high:
            yield PartitionRange(task.partition, low, high)
            low = piece.offset_from
        high = piece.offset_to
    yield PartitionRange(task.partition, low, high)


def read_missing(
    task: FilesTask, left: ReadRange, options: ReadOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a piece that its segment no longer holds."""
    if options.broker is not None:
        from sparklog.spark.broker import fetch_range  # loads the gRPC client: only where files are gone

        yield from fetch_range(PartitionRange(task.partition, left.offset_from, left.offset_to), options)
        return
    lost, rest = records_of(task, options, columns).read_left(left)
    report_losses(lost, fail=options.fail_on_data_loss)
    yield from rest


def records_of(task: FilesTask, options: ReadOptions, columns: Sequence[str]) -> PartitionRead:
    """Return the reader of a task's records in its folder."""
    oldest_ms = task.timestamp_ms.low
    return PartitionRead(
        partition=task.partition,
        folder=task.folder,
        columns=columns,
        is_committed_only=options.isolation_level is IsolationLevel.READ_COMMITTED,
        oldest_ms=None if oldest_ms == LOWEST else oldest_ms,
        aborted=task.aborted,
    )
