"""Planning a read of archive and log as one: ``readMode = history``, in batches and streams.

    where the log begins and ends ─▶ how far the archive is ─▶ ranges of offsets ─▶ below that: files of the archive
                                                                               └─▶ from there on: the log, as any read

This order leaves no gap: records that leave the log after its look-up have been archived before. The end of the archive
is looked up once, and is the boundary for every task; an overlap with the log does no harm. Records that leave the log
while the read runs are in the archive by then, and their task reads them there (archived.py).

Starting and ending positions refer to archive and log together: `earliest` is where the archive begins; timestamps are
looked up in the archive first. Only files whose statistics allow for wanted records are opened.

A record has the same offset in archive and log. So the offsets in a stream's checkpoint stay valid when records move:
each trigger splits its range anew, and a trigger that runs again reads the same records from their present place.

An archive that the read names must exist. An archive that only the topic names may not exist yet: the log is then the
whole history. This module loads `deltalake`; no other kind of read imports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow.compute as pc

from sparklog.arrow.folders import ReadableOffsets
from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.log.description import SegmentDescription
from sparklog.records.aborted import AbortedRanges
from sparklog.spark.history.archive_files import TableLocation, datetime_of
from sparklog.spark.history.archive_table import ArchiveTable
from sparklog.spark.history.archived import ArchiveTask, HistoryTask, LogTask, lost_in, read_file
from sparklog.spark.history.backlog import HistoryBacklog
from sparklog.spark.history.progress import TableRange
from sparklog.spark.source.backlog import Backlog, measure
from sparklog.spark.source.filters import Interval, Predicate
from sparklog.spark.source.offsets import ArchiveName, Lookup, Offsets, PartitionRange, batch_ranges, report_losses
from sparklog.spark.source.options import ReadOptions, Selection
from sparklog.spark.source.plan import count_tasks, divide, narrow, split
from sparklog.spark.source.scan import Task, plan_tasks

TASK_BYTES = 128 << 20
"""Bytes of Parquet that one task reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPart:
    """The archived part of a partition."""

    table: ArchiveTable
    archived: TableRange
    topic_id: str
    gaps: tuple[TableRange, ...] = ()
    """What the table lacks of `archived`: it was deleted before it could be copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPlan:
    """The ranges that a read takes from archive and log."""

    names: Mapping[TopicPartition, ArchiveName]
    archived_parts: Mapping[TopicPartition, ArchivedPart]
    ranges: list[PartitionRange]
    older: list[PartitionRange]
    """The parts of the ranges that are read from the archive."""
    newer: list[PartitionRange]
    """The parts that are read from the log."""
    lost: list[str]

    def tasks(self, options: ReadOptions, lookup: Lookup, predicate: Predicate) -> tuple[list[ArchiveTask], list[Task]]:
        """Return the tasks that read the records that `predicate` allows, from the archive and from the log."""
        archived = list(plan_archive(options, self.archived_parts, self.older, predicate))
        remaining = replace(options, min_partitions=max(0, options.min_partitions - len(archived)))
        return archived, plan_tasks(remaining, lookup, self.newer, predicate)


def plan_history(options: ReadOptions, lookup: Lookup, predicate: Predicate) -> list[HistoryTask]:
    """Return the tasks of a batch read of archive and log.

    Raises as any plan does, and ConfigError for a wrong archive.
    """
    history = HistoryLookup(options, lookup)
    ranges, lost = batch_ranges(options, history)
    return history.plan(ranges, predicate, lost)


def divide_history(options: ReadOptions, lookup: Lookup) -> HistoryPlan:
    """Return the ranges of a batch, divided where the archive ends. Raises ConfigError for a wrong archive."""
    history = HistoryLookup(options, lookup)
    ranges, lost = batch_ranges(options, history)
    return history.divide(ranges, lost)


class HistoryLookup:
    """Lookup that answers for archive and log together, as of the last call of `bounds`. Implements Lookup.

    A stream keeps it from trigger to trigger: tables are opened once, and then load only new commits.
    """

    def __init__(self, options: ReadOptions, log: Lookup) -> None:
        self._options = options
        self._log = log
        self._names: dict[TopicPartition, ArchiveName] = {}
        self._logs: dict[TopicPartition, ReadableOffsets] = {}
        self._tables: dict[str, ArchiveTable] = {}
        self._archived_parts: dict[TopicPartition, ArchivedPart] = {}

    def bounds(self, selection: Selection) -> dict[TopicPartition, ReadableOffsets]:
        """Look at the log, then at the archive, and return where they begin and end together.

        Raises as any lookup does, and ConfigError for a wrong archive.
        """
        self._logs = self._log.bounds(selection)
        self._names = _archive_names(self._options, self._log, self._logs)
        self._open_tables()
        self._archived_parts = find_archived(self._names, self._tables)
        return {
            partition: _union_bounds(log, self._archived_parts.get(partition)) for partition, log in self._logs.items()
        }

    def plan(
        self, ranges: Iterable[PartitionRange], predicate: Predicate, lost: Iterable[str] = ()
    ) -> list[HistoryTask]:
        """Return the tasks that read ranges, after a call of `bounds`. Report `lost` and further losses."""
        history = self.divide(ranges, lost)
        report_losses(history.lost, fail=self._options.fail_on_data_loss)
        archived, log = history.tasks(self._options, self._log, predicate)
        tasks: list[HistoryTask] = [*archived]
        for task in log:
            name = self._names[task.partition]
            tasks.append(LogTask(task, TableLocation(name.uri) if name.uri else None, name.topic_id))
        return tasks

    def divide(self, ranges: Iterable[PartitionRange], lost: Iterable[str] = ()) -> HistoryPlan:
        """Return ranges divided where the archive ends, after a call of `bounds`, with `lost` and further losses."""
        whole = list(ranges)
        older, newer, gaps = split_at_archive(whole, self._logs, self._archived_parts)
        return HistoryPlan(
            names=self._names,
            archived_parts=self._archived_parts,
            ranges=whole,
            older=older,
            newer=newer,
            lost=[*lost, *gaps],
        )

    def measure(self, ranges: Iterable[PartitionRange]) -> Mapping[TopicPartition, Backlog]:
        """Return the backlog of each range, after a call of `bounds`; the ranges are of different partitions.

        Raises OSError and the errors of the log's lookup.
        """
        history = self.divide(ranges)
        backlogs = dict(measure(self._log, history.newer))
        for older in history.older:
            files = self._archived_parts[older.partition].table.files(*older)
            backlogs[older.partition] = HistoryBacklog(older, files, backlogs.get(older.partition))
        return backlogs

    def topics(self, selection: Selection) -> list[str]:
        return self._log.topics(selection)

    def segments(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[SegmentDescription, ...]]:
        return self._log.segments(partitions)

    def offsets_for_times(self, timestamps_ms: Offsets) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for partition, timestamp_ms in timestamps_ms.items():
            if part := self._archived_parts.get(partition):
                found[partition] = first_since(part, partition, timestamp_ms)
        rest = {partition: time for partition, time in timestamps_ms.items() if found.get(partition) is None}
        return {**found, **self._log.offsets_for_times(rest)} if rest else found

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._log.committed(partitions)

    def commit(self, offsets: Offsets) -> None:
        self._log.commit(offsets)

    def folder(self, partition: TopicPartition) -> str | None:
        return self._log.folder(partition)

    def aborted(self, whole: PartitionRange) -> AbortedRanges:
        return self._log.aborted(whole)

    def archives(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ArchiveName]:
        return self._log.archives(partitions)

    def close(self) -> None:
        self._log.close()

    def _open_tables(self) -> None:
        """Open the archives, and load new commits of those that are open. Raises ConfigError."""
        missing = []
        for uri in sorted({name.uri for name in self._names.values()}):
            if uri in self._tables:
                self._tables[uri].refresh()
            elif table := ArchiveTable.open(TableLocation(uri)):
                self._tables[uri] = table
            else:
                missing.append(uri)
        if missing and self._options.archive is not None:
            raise ConfigError(f"archive {', '.join(missing)}: there is no Delta table")


def _union_bounds(log: ReadableOffsets, part: ArchivedPart | None) -> ReadableOffsets:
    """Return the bounds of archive and log together."""
    if part is None:
        return log
    begin, end = part.archived  # without a broker, the files' high watermark may lag
    return ReadableOffsets(min(begin, log.log_start), max(end, log.high_watermark), max(end, log.first_unstable))


def find_archived(
    names: Mapping[TopicPartition, ArchiveName], tables: Mapping[str, ArchiveTable]
) -> dict[TopicPartition, ArchivedPart]:
    """Return the archived part of each partition that has one.

    tables: those that exist, by URI
    Raises ConfigError if a table has another topic of that name.
    """
    archived_parts = {}
    for partition, name in names.items():
        table = tables.get(name.uri)
        archived = table.archived(partition, name.topic_id) if table else None
        if table and archived:
            gaps = tuple(table.gaps(partition))
            archived_parts[partition] = ArchivedPart(table=table, archived=archived, topic_id=name.topic_id, gaps=gaps)
    return archived_parts


def split_at_archive(
    ranges: Iterable[PartitionRange],
    logs: Mapping[TopicPartition, ReadableOffsets],
    archived_parts: Mapping[TopicPartition, ArchivedPart],
) -> tuple[list[PartitionRange], list[PartitionRange], list[str]]:
    """Split ranges at the end of the archive; return the parts below it, the parts from there on, and the losses.

    Offsets that are in neither the archive nor the log are lost. A range that begins below the archive is read from the
    log, if the log begins there: it also has all that the archive has.
    """
    older, newer, lost = [], [], []
    for whole in ranges:
        partition, offset_from, offset_to = whole
        log_start, part = logs[partition].log_start, archived_parts.get(partition)
        if part is not None and max(log_start, offset_from) < part.archived.offset_from:
            part = None
        begin = offset_from
        if part is not None and offset_from < part.archived.offset_to:
            begin = min(offset_to, part.archived.offset_to)
            older.append(PartitionRange(partition, offset_from, begin))
            lost += lost_in(part.gaps, older[-1])
        lost += lost_in([(begin, log_start)], whole)
        begin = max(begin, log_start)
        if begin < offset_to:
            newer.append(PartitionRange(partition, begin, offset_to))
    return older, newer, lost


def plan_archive(
    options: ReadOptions,
    archived_parts: Mapping[TopicPartition, ArchivedPart],
    ranges: list[PartitionRange],
    predicate: Predicate,
) -> Iterator[ArchiveTask]:
    """Yield the tasks that read from archives the part of these ranges that `predicate` allows."""
    wanted = split(narrow(ranges, predicate), options.max_records_per_partition)
    since, before = _interval_datetimes(predicate.timestamp_ms)
    files = [
        archived_parts[each.partition].table.files(each.partition, each.offset_from, each.offset_to, since, before)
        for each in wanted
    ]
    sizes = [sum(file.size_bytes for file in found) for found in files]
    counts = count_tasks(sizes, max(options.min_partitions, -(-sum(sizes) // TASK_BYTES)))
    for each, found, count in zip(wanted, files, counts, strict=True):
        for piece in divide(each, count):
            touched = tuple(
                file for file in found if file.offset_first < piece.offset_to and file.offset_last >= piece.offset_from
            )
            if touched:
                yield ArchiveTask(piece, archived_parts[each.partition].table.place, touched)


def first_since(part: ArchivedPart, partition: TopicPartition, timestamp_ms: int) -> int | None:
    """Return the first archived offset with a record at or after a timestamp; None if there is none."""
    whole = PartitionRange(partition, *part.archived)
    since, _ = _interval_datetimes(Interval(low=timestamp_ms))
    first: int | None = None
    fs = part.table.place.files()
    for file in part.table.files(partition, whole.offset_from, whole.offset_to, since):
        if first is not None and file.offset_first > first:
            break
        for rows in read_file(fs, file, whole, ("offset", "timestamp")):
            times = rows.column("timestamp").cast("int64")
            late = rows.column("offset").filter(pc.greater_equal(times, timestamp_ms * 1000))
            if len(late):
                earliest = pc.min(late).as_py()
                first = earliest if first is None else min(first, earliest)
                if file.alone:
                    break  # the file is in offset order
    return first


def _archive_names(
    options: ReadOptions, lookup: Lookup, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ArchiveName]:
    """Return the archive of each partition. Raises ConfigError if one has none."""
    names = lookup.archives(partitions)
    if options.archive is not None:
        return {partition: name._replace(uri=options.archive) for partition, name in names.items()}
    if without := sorted({partition.topic for partition, name in names.items() if not name.uri}):
        raise ConfigError(
            f"readMode = history: {', '.join(without)} has no retention.archive; the option archive can name the table"
        )
    return names


def _interval_datetimes(timestamp_ms: Interval) -> tuple[datetime | None, datetime | None]:
    """Return the interval's ends as datetimes; None for an end that is open, or beyond the range of datetime."""
    return datetime_of(timestamp_ms.low * 1000), datetime_of(timestamp_ms.high * 1000)
