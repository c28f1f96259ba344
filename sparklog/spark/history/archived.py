"""The tasks of a read with ``readMode = history`` (planned in plan.py).

    ArchiveTask    offsets of one partition from the archive's Parquet files, in order
    LogTask        offsets from the log, as in any read. Offsets that retention has trimmed since the plan are in the
                   archive by now: the task reads them there, then continues in the log, as often as that happens

Files are read a batch of rows at a time, and only row groups that may hold some of the offsets. Files of different days
overlap if timestamps are out of order; overlapping files are merged by offset. Files that other tools have rewritten
(OPTIMIZE) hold several partitions in any order: the partition's rows are selected, and keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs as pafs
from pyspark.sql.datasource import InputPartition

from sparklog.base.errors import DataLost
from sparklog.base.ids import TopicPartition
from sparklog.log.segment.ranges import ReadRange
from sparklog.spark.columns import table_schema
from sparklog.spark.history.archive_files import WAITING_BYTES, FilePart, TableLocation
from sparklog.spark.source.files import read_files, read_missing
from sparklog.spark.source.offsets import PartitionRange, report_losses
from sparklog.spark.source.options import ReadOptions
from sparklog.spark.source.scan import FetchTask, FilesTask, Task
from sparklog.spark.spark_api import arrow_schema

ROWS = 1 << 16
"""Most rows at once, of all files that are merged together."""
FEWEST_ROWS = 1 << 10
"""Rows at once that each merged file may have at least; fewer if the rows are large."""
BYTES = WAITING_BYTES
"""Approximate bytes at once, of all files that are merged together."""
_SCHEMA = arrow_schema(table_schema(include_headers=True))


@dataclass(frozen=True, slots=True)
class ArchiveTask(InputPartition):
    """Offsets of one partition to read from these files of an archive."""

    whole: PartitionRange
    place: TableLocation
    files: tuple[FilePart, ...]

    @property
    def partition(self) -> TopicPartition:
        return self.whole.partition

    def __str__(self) -> str:
        return f"{self.whole}, from {len(self.files)} files of the archive {self.place.uri}"


@dataclass(frozen=True, slots=True)
class LogTask(InputPartition):
    """A task that reads the log, and the archive to which retention may move its records."""

    task: Task
    place: TableLocation | None
    topic_id: str

    @property
    def partition(self) -> TopicPartition:
        return self.task.partition

    def __str__(self) -> str:
        return str(self.task)


HistoryTask = ArchiveTask | LogTask


def read_history(task: HistoryTask, options: ReadOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task, with at least these columns."""
    columns = tuple(dict.fromkeys([*columns, "offset"]))
    return read_archive(task, options, columns) if isinstance(task, ArchiveTask) else _read_log(task, options, columns)


def read_archive(task: ArchiveTask, options: ReadOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task in offset order; a file that is gone is a loss."""
    fs = task.place.files()
    for group in overlapping(task.files):
        rows, size = max(FEWEST_ROWS, ROWS // len(group)), BYTES // len(group)
        try:
            yield from merged([read_file(fs, file, task.whole, columns, rows, size) for file in group])
        except FileNotFoundError as gone:
            report_losses(
                [f"{task.whole.partition}: archive {task.place.uri} has lost a file that it had: {gone}"],
                fail=options.fail_on_data_loss,
            )


def read_file(
    fs: pafs.FileSystem,
    part: FilePart,
    whole: PartitionRange,
    columns: Sequence[str],
    rows: int = ROWS,
    size_bytes: int = BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file that are of the partition and at the offsets of `whole`.

    A batch has at most `rows` rows, and about `size_bytes` at most.
    """
    picked = [*columns] if part.alone else [*columns, "topic", "partition"]
    with pq.ParquetFile(part.path, filesystem=fs, coerce_int96_timestamp_unit="us") as file:
        groups = [number for number in range(file.num_row_groups) if _may_hold(file.metadata, number, whole)]
        for number in groups:
            count = _rows_per_read(file.metadata.row_group(number), rows, size_bytes)
            for batch in file.iter_batches(count, [number], list(dict.fromkeys(picked)), use_threads=False):
                if (kept := _matching_rows(batch, part, whole)).num_rows:
                    yield _with_read_types(kept, columns)


def _matching_rows(batch: pa.RecordBatch, part: FilePart, whole: PartitionRange) -> pa.RecordBatch:
    """Return the rows of a file that are of the partition and at the offsets of `whole`."""
    offsets = batch.column("offset")
    wanted = pc.and_(pc.greater_equal(offsets, whole.offset_from), pc.less(offsets, whole.offset_to))
    if not part.alone:
        wanted = pc.and_(wanted, pc.equal(batch.column("topic"), whole.partition.topic))
        wanted = pc.and_(wanted, pc.equal(batch.column("partition"), whole.partition.partition))
    return batch if pc.all(wanted).as_py() else batch.filter(wanted)


def overlapping(files: Sequence[FilePart]) -> Iterator[list[FilePart]]:
    """Yield groups of overlapping files; `files` are sorted by their first offset."""
    group: list[FilePart] = []
    end = 0
    for file in files:
        if group and file.offset_first > end:
            yield group
            group = []
        end = max(end, file.offset_last) if group else file.offset_last
        group.append(file)
    if group:
        yield group


def merged(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Merge streams that are each sorted by `offset`; unsorted streams yield all their rows, in any order."""
    if len(streams) == 1:
        yield from streams[0]
        return
    heads = [(next(stream, None), stream) for stream in streams]
    while heads := [(head, stream) for head, stream in heads if head is not None]:
        bound = min(_last_offset(head) for head, _ in heads)
        ready, following = [], []
        for head, stream in heads:
            offsets = head.column("offset").to_numpy()
            # take whole the batch that ends at the bound: so the loop ends even if rows are unsorted
            count = len(offsets) if offsets[-1] == bound else int(np.searchsorted(offsets, bound, "right"))
            ready.append(head.slice(0, count))
            following.append((head.slice(count) if count < len(offsets) else next(stream, None), stream))
        heads = following
        rows = pa.concat_batches([batch for batch in ready if batch.num_rows])
        order = np.argsort(rows.column("offset").to_numpy(), kind="stable")
        yield rows.take(pa.array(order))


def _read_log(task: LogTask, options: ReadOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield records from the log, and from the archive those that retention has moved meanwhile."""
    strict = replace(options, fail_on_data_loss=True)
    left = PartitionRange(task.partition, *_task_offsets(task.task))
    log = _from_log(task.task, strict, columns)
    while True:
        try:
            for rows in log:
                yield rows
                if rows.num_rows:
                    left = left._replace(offset_from=_last_offset(rows) + 1)
            return
        except DataLost:
            found = _archived_since(task, left, fail=options.fail_on_data_loss)
        if found is None:
            yield from _rest_of_log(task.task, left, options, columns)
            return
        yield from read_archive(found, options, columns)
        left = left._replace(offset_from=found.whole.offset_to)
        log = _rest_of_log(task.task, left, strict, columns)


def _rest_of_log(
    task: Task, left: PartitionRange, options: ReadOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Return the records at the remaining offsets of a task, from their present place in the log."""
    if left.size <= 0:
        return iter(())
    if isinstance(task, FilesTask):
        return read_missing(task, ReadRange(left.offset_from, left.offset_to, left.offset_from, 0, 0), options, columns)
    return _from_log(FetchTask(left), options, columns)


def _archived_since(task: LogTask, left: PartitionRange, *, fail: bool) -> ArchiveTask | None:
    """Return a task for the offsets of a range that were archived since the plan; None if there are none.

    Reports those that were deleted before they could be archived.
    """
    # Loads deltalake: only needed if the log was trimmed meanwhile.
    from sparklog.spark.history.archive_table import ArchiveTable

    table = ArchiveTable.open(task.place) if task.place else None
    archived = table.archived(left.partition, task.topic_id) if table else None
    if table is None or archived is None or archived.offset_to <= left.offset_from:
        return None
    whole = left._replace(offset_to=min(left.offset_to, archived.offset_to))
    report_losses(lost_in([(0, archived.offset_from), *table.gaps(left.partition)], whole), fail=fail)
    return ArchiveTask(whole, table.place, tuple(table.files(left.partition, whole.offset_from, whole.offset_to)))


def lost_in(gaps: Iterable[tuple[int, int]], whole: PartitionRange) -> list[str]:
    """Return the losses of a range, of which neither archive nor log have the offsets in `gaps`."""
    edges = [(max(low, whole.offset_from), min(high, whole.offset_to)) for low, high in gaps]
    return [
        f"{whole.partition}: offsets {low} to {high - 1} are neither in the archive nor in the log"
        for low, high in edges
        if low < high
    ]


def _from_log(task: Task, options: ReadOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if isinstance(task, FilesTask):
        return read_files(task, options, columns)
    from sparklog.spark.broker import fetch_range  # loads the gRPC client: only for tasks that fetch

    return fetch_range(task.whole, options)


def _task_offsets(task: Task) -> tuple[int, int]:
    if isinstance(task, FilesTask):
        return task.ranges[0].offset_from, task.ranges[-1].offset_to
    return task.whole.offset_from, task.whole.offset_to


def _may_hold(metadata: Any, number: int, whole: PartitionRange) -> bool:
    """Return whether a row group may hold any of the offsets, by its statistics."""
    group = metadata.row_group(number)
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "offset":
            found = column.statistics
            return not (found and found.has_min_max) or bool(
                found.min < whole.offset_to and found.max >= whole.offset_from
            )
    return True


def _rows_per_read(group: Any, rows: int, size_bytes: int) -> int:
    """Return how many rows of a row group take about `size_bytes`; at least one, at most `rows`.

    A row group counts as at least `WAITING_BYTES`, as large as the archive's row groups may be: its stored size may be
    far below its size in memory.
    """
    fitting: int = group.num_rows * size_bytes // max(WAITING_BYTES, group.total_byte_size)
    return max(1, min(rows, fitting))


def _with_read_types(rows: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the columns with the types of a log read; files that others have rewritten may have similar types."""
    arrays = [rows.column(name) for name in columns]
    schema = pa.schema([_SCHEMA.field(name) for name in columns])
    return pa.RecordBatch.from_arrays(
        [array if array.type == of.type else array.cast(of.type) for array, of in zip(arrays, schema, strict=True)],
        schema=schema,
    )


def _last_offset(rows: pa.RecordBatch) -> int:
    return int(rows.column("offset")[-1].as_py())
