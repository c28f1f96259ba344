"""Copies logs to an archive (archive_table.py), each offset once.

    table's progress ─▶ next slice ─▶ one Spark job: tasks read segments, write Parquet ─▶ one commit
            ▲                                                                                       │
            └───────────────────────────────────────────────────────────────────────────────────────┘

A slice takes whole segments of all partitions, or the rest of segments, about `slice_bytes` in all. So a backlog of any
size needs no more disk or time at once than one slice, and committed slices stay committed if the run dies. Within a
task, records go from the segments' bytes through Arrow to Parquet; the JVM sees none of them.

- No commit names the files of a dead run: no reader opens them, and VACUUM removes them.
- Of two runs at once, the second commit is refused. That run removes its files, and plans the rest anew.
- A partition that cannot be read (a damaged batch, records that are gone) fails with the reason; the others go on.
- Offsets that compaction has removed, and offsets of aborted transactions and markers, count as archived with the slice
  that would contain them.
- Records may be deleted before they are archived. The next commit notes this gap, so that reads of history report it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from sparklog.arrow.options import IsolationLevel
from sparklog.arrow.segments import settled
from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.log.description import LogDescription
from sparklog.spark.folders import open_lookup
from sparklog.spark.history.archive_files import ArchivedFile, DatedFiles, TableLocation, discard
from sparklog.spark.history.archive_table import FILE_SCHEMA, ArchiveTable, ConcurrentCommit
from sparklog.spark.history.progress import Progress, TableRange, progress_of
from sparklog.spark.shipping import task_function
from sparklog.spark.source.filters import EVERYTHING
from sparklog.spark.source.offsets import PartitionRange
from sparklog.spark.source.option_table import SECURITY_KEYS
from sparklog.spark.source.options import Assign, ConnectionOptions, Edge, ReadMode, ReadOptions
from sparklog.spark.source.read import read_task
from sparklog.spark.source.scan import Task, plan_tasks

SLICE_BYTES = 4 << 30
TASK_BYTES = 256 << 20
"""Bytes of segments that one task reads."""
MOST_REFUSALS = 5
"""Refused commits in a row after which a run stops: another run does this work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveTarget:
    """The offsets of a partition to archive."""

    log: LogDescription
    offset_to: int
    """Archive all offsets below this one, which is at most the last stable offset."""


@dataclass(slots=True, kw_only=True)
class CopyResult:
    """Result of a run for one partition."""

    archived: TableRange | None = None
    """Offsets that the table has now, from any run."""
    records: int = 0
    files: int = 0
    size_bytes: int = 0
    lost_from: int | None = None
    """The table lacks the offsets from here to `lost_to`: they were deleted before they could be archived."""
    lost_to: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskFiles:
    """Files that one task has written, or its error."""

    partition: TopicPartition
    files: list[ArchivedFile] = field(default_factory=list)
    error: str = ""


def archive(
    spark: SparkSession,
    place: TableLocation,
    wanted: Iterable[ArchiveTarget],
    client: Mapping[str, Any],
    *,
    slice_bytes: int = SLICE_BYTES,
    task_bytes: int = TASK_BYTES,
    say: Callable[[str], None] = lambda _: None,
) -> dict[TopicPartition, CopyResult]:
    """Copy each partition to the table at `place`, up to the target's offset; return the result of each.

    Creates the table if there is none.

    client: keyword arguments of the clients of `sparklog.client`
    Raises ConfigError if `place` holds something else, or the table cannot be written.
    """
    table = ArchiveTable.create(place)
    run = _ArchiveRun(table, {each.log.partition: each for each in wanted})
    refused = 0
    while ranges := next_slice(run.left(), slice_bytes):
        size_bytes = sum(size for _, size in ranges)
        say(f"archiving {size_bytes / 1e6:.1f} MB of {len(ranges)} partitions to {place.uri}")
        options = read_options([each.partition for each, _ in ranges], client)
        tasks = plan_copies(options, [each for each, _ in ranges], -(-size_bytes // task_bytes))
        copy = partial(copy_task, place=place, options=options)
        parts = spark.sparkContext.parallelize(tasks, len(tasks)).map(task_function(copy)).collect() if tasks else []
        try:
            run.commit([each for each, _ in ranges], parts)
            refused = 0
        except ConcurrentCommit as concurrent:
            say(str(concurrent))
            refused += 1
            if refused == MOST_REFUSALS:
                run.give_way(str(concurrent))
        table.refresh()
    return run.copied


class _ArchiveRun:
    """The offsets to archive in a run, and its progress."""

    def __init__(self, table: ArchiveTable, wanted: Mapping[TopicPartition, ArchiveTarget]) -> None:
        self._table = table
        self._wanted = wanted
        self.copied = {partition: CopyResult() for partition in wanted}

    def left(self) -> list[tuple[ArchiveTarget, int]]:
        """Return the readable partitions of which the table lacks offsets, each with the first missing offset."""
        found = []
        for partition, each in sorted(self._wanted.items()):
            copied = self.copied[partition]
            if copied.error:
                continue
            try:
                copied.archived = self._table.archived_of(each.log)
            except SparklogError as error:
                copied.error = str(error)
                continue
            start = each.log.log_start_offset
            if copied.archived:
                start = max(start, copied.archived.offset_to)
                if copied.archived.offset_to < start and copied.lost_from is None:
                    copied.lost_from, copied.lost_to = copied.archived.offset_to, start
            if start < each.offset_to:
                found.append((each, start))
        return found

    def commit(self, ranges: Sequence[PartitionRange], parts: Sequence[_TaskFiles]) -> None:
        """Commit the files of all partitions that were copied without error.

        Raises ConcurrentCommit, after removing the files.
        """
        for part in parts:
            if part.error:
                self.copied[part.partition].error = part.error
        whole = [each for each in ranges if not self.copied[each.partition].error]
        names = {each.partition for each in whole}
        files = [file for part in parts for file in part.files]
        good = [file for file in files if file.partition in names]
        discard(self._table.place, [file.path for file in files if file.partition not in names])
        if not whole:
            return
        try:
            self._table.commit(good, {each.partition: self._progress(each) for each in whole})
        except ConcurrentCommit:  # after any other error, a commit that names the files may exist
            discard(self._table.place, [file.path for file in good])
            raise
        for file in good:
            copied = self.copied[file.partition]
            copied.records += file.records
            copied.files += 1
            copied.size_bytes += file.size_bytes

    def give_way(self, reason: str) -> None:
        """Leave the remaining offsets to the other run; `reason` is the error of their partitions."""
        for each, _ in self.left():
            self.copied[each.log.partition].error = reason

    def _progress(self, done: PartitionRange) -> Progress:
        before = self.copied[done.partition].archived
        begin = before.offset_from if before else done.offset_from
        reached = progress_of(self._wanted[done.partition].log, begin, done.offset_to)
        if before and before.offset_to < done.offset_from:
            return reached._replace(gap=TableRange(before.offset_to, done.offset_from))
        return reached


def next_slice(left: Iterable[tuple[ArchiveTarget, int]], limit_bytes: int) -> list[tuple[PartitionRange, int]]:
    """Return the next ranges to copy, oldest segments first, with their approximate bytes.

    Each range is of whole segments, or of the rest of a segment. The bytes add up to at most `limit_bytes`, but there
    is at least one range.
    """
    ranges: list[tuple[PartitionRange, int]] = []
    total = 0
    for wanted, start in left:
        end, size = start, 0
        for segment in wanted.log.segments:
            if segment.next_offset <= start or segment.base_offset >= wanted.offset_to:
                continue
            last = min(segment.next_offset, wanted.offset_to)
            offsets = last - max(segment.base_offset, start)
            segment_bytes = -(-segment.size_bytes * offsets // (segment.next_offset - segment.base_offset))
            if total and total + segment_bytes > limit_bytes:
                break
            end = last
            size += segment_bytes
            total += segment_bytes
        if start < end:
            ranges.append((PartitionRange(wanted.log.partition, start, end), size))
    return ranges


def read_options(partitions: Iterable[TopicPartition], client: Mapping[str, Any]) -> ReadOptions:
    """Return the options of a read of these partitions' committed records; the read fails if records are lost."""
    security = {name: client[name] for name in (key.replace(".", "_") for key in SECURITY_KEYS) if name in client}
    return ReadOptions(
        selection=Assign(frozenset(partitions)),
        starting=Edge.EARLIEST,
        ending=Edge.LATEST,
        path=None,
        broker=ConnectionOptions(
            bootstrap_servers=client["bootstrap_servers"],
            timeout_ms=120_000,
            retries=0,
            retry_backoff_ms=0,
            security=security,
            group_id=None,
        ),
        read_mode=ReadMode.AUTO,
        fail_on_data_loss=True,
        include_headers=True,
        min_partitions=0,
        max_records_per_partition=0,
        filter_pushdown=False,
        isolation_level=IsolationLevel.READ_COMMITTED,
    )


def plan_copies(options: ReadOptions, ranges: Sequence[PartitionRange], count: int) -> list[Task]:
    """Return about `count` tasks that read these ranges, at least one for each partition."""
    lookup = open_lookup(options)
    try:
        return settled(lambda: plan_tasks(replace(options, min_partitions=count), lookup, ranges, EVERYTHING))
    finally:
        lookup.close()


def copy_task(task: Task, *, place: TableLocation, options: ReadOptions) -> _TaskFiles:
    """Write the records of a task as files of the archive, in a Spark task; return the files.

    If that fails, remove the files, and return the error instead.
    """
    partition = task.partition
    writing = DatedFiles(place, partition)
    try:
        for rows in read_task(task, options, FILE_SCHEMA):
            writing.add(rows)
        return _TaskFiles(partition=partition, files=writing.finish())
    except (SparklogError, OSError, pa.ArrowException) as error:
        writing.discard()
        reason = str(error) or traceback.format_exc(limit=1)
        return _TaskFiles(partition=partition, error=f"{type(error).__name__}: {reason}")
