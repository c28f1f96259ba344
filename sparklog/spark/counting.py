"""Counts the records of a batch read by the headers of batches.

>>> counts = count({"kafka.bootstrap.servers": "127.0.0.1:9094", "subscribe": "departures"})
>>> counts.total, counts.partitions[TopicPartition("departures", 0)]
(100000, 33571)

`count` runs in this process, without a SparkSession. If this machine sees the segment files, it reads them at the speed
of disk or page cache, and opens hardly any batch (records/counting.py); CRCs are not checked. Otherwise it fetches the
records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from sparklog.arrow.options import ParseMode
from sparklog.arrow.segments import settled
from sparklog.base.errors import ConfigError
from sparklog.base.fs import Buffer
from sparklog.base.ids import TopicPartition
from sparklog.log.segment.ranges import ReadRange
from sparklog.records.aborted import SeenTransactions
from sparklog.records.counting import count_records
from sparklog.spark.folders import open_lookup
from sparklog.spark.source.files import read_missing, records_of
from sparklog.spark.source.filters import EVERYTHING
from sparklog.spark.source.offsets import Lookup, batch_ranges, report_losses
from sparklog.spark.source.option_parsing import parse_read_options, parse_typed_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.options import ReadMode, ReadOptions
from sparklog.spark.source.read import annotated_failures
from sparklog.spark.source.scan import FilesTask, Task, plan_tasks

MOST_THREADS = 4


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of records."""

    partitions: Mapping[TopicPartition, int]
    """Number of each partition that is read, also of empty ones."""

    @property
    def total(self) -> int:
        """The number of records of all partitions."""
        return sum(self.partitions.values())


def count(options: Mapping[str, str]) -> Counts:
    """Return how many records ``spark.read.format("sparklog").options(**options).load()`` would have.

    Raises ConfigError for options that are not allowed, for readMode history, and for mode DROPMALFORMED, which looks
    at every record; otherwise the errors of the read, such as DataLost or CorruptRecord.
    """
    parsed, typed = parse_read_options(options, OptionUse.BATCH), parse_typed_options(options)
    if parsed.read_mode is ReadMode.HISTORY:
        raise ConfigError("count covers logs, but not the archive that readMode = history reads")
    if typed is not None and typed.mode is ParseMode.DROPMALFORMED:
        raise ConfigError("count looks at no record, so mode = DROPMALFORMED cannot be counted")
    lookup = open_lookup(parsed)
    try:
        partitions, tasks = settled(lambda: _plan(parsed, lookup))
    finally:
        lookup.close()
    found = dict.fromkeys(partitions, 0)
    threads = ThreadPoolExecutor(_threads())
    try:
        counts = threads.map(partial(_count_task, options=parsed), tasks)
        for task, records in zip(tasks, counts, strict=True):
            found[task.partition] += records
    finally:
        threads.shutdown(cancel_futures=True)
    return Counts(found)


def _threads() -> int:
    return min(MOST_THREADS, os.cpu_count() or 1)


def _plan(options: ReadOptions, lookup: Lookup) -> tuple[list[TopicPartition], list[Task]]:
    """Return the partitions that are read, and the tasks that read them."""
    ranges, lost = batch_ranges(options, lookup)
    report_losses(lost, fail=options.fail_on_data_loss)
    several = replace(options, min_partitions=max(options.min_partitions, _threads()))
    return sorted(lookup.bounds(options.selection)), plan_tasks(several, lookup, ranges, EVERYTHING)


def _count_task(task: Task, options: ReadOptions) -> int:
    with annotated_failures(task, options):
        if isinstance(task, FilesTask):
            return _count_files(task, options)
        from sparklog.spark.broker import fetch_range  # loads the gRPC client, which counts of a `path` do not need

        return sum(rows.num_rows for rows in fetch_range(task.whole, options))


def _count_files(task: FilesTask, options: ReadOptions) -> int:
    """Return how many records `files.read_files` would yield."""

    def counted(data: Buffer, piece: ReadRange, seen: SeenTransactions | None) -> Iterator[int]:
        low, high = piece.offset_from, piece.offset_to
        yield count_records(data, offset_from=low, offset_to=high, aborted=task.aborted, seen=seen)

    def elsewhere(left: ReadRange) -> Iterator[int]:
        return (rows.num_rows for rows in read_missing(task, left, options, ("offset",)))

    return sum(records_of(task, options, ("offset",)).walk(task.ranges, counted, elsewhere))
