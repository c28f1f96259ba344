"""Archive: keeps the Delta tables of topics with `retention.archive` no further behind than a target.

    plan     says of every partition how many offsets the archive lacks, and how old the first record there is
    apply    copies them, up to the last stable offset, from the active segment too; a run looks at the log once, so it
             ends however fast records arrive. Then it merges small files of these partitions (spark/history/merging.py)
    report   has the outcome of each partition that had something to do, and its lag at the beginning and at the end

Retention archives closed segments before it deletes them. This job is for tables that must be fresh: run it more often
than the target says. Both write the same table and agree by what that says of itself (spark/history/archive_table.py),
so they may run in any order, and at once: each offset is archived once.

The lag of a partition is the age of its oldest record that is not archived, by the record's timestamp. Under
message.timestamp.type=CreateTime that is the producer's clock, and old records that are copied to a topic count as old.
Records of an open transaction wait for its end; their age counts.

Outcomes:

    done        archived as planned, in time
    late        a finding: archived, but records were older than the target when they were, or the oldest one that is
                left is. A first run has to catch up: only what it leaves counts
    lost        a finding: some records had been deleted before they could be archived
    failed      a finding: something could not be archived, for the given reason; the next run tries again
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
from pyspark.sql import DataFrame, Row

from sparklog.base.errors import KafkaError, SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.client import Maintenance
from sparklog.jobs.archive_lag import oldest_records
from sparklog.jobs.archiving import (
    Tables,
    archive_all,
    archived_to,
    bytes_between,
    describe,
    lost_reason,
    slice_option,
    topics_option,
)
from sparklog.jobs.job import Job, JobContext, Options
from sparklog.log.description import LogDescription
from sparklog.spark.history.archive import ArchiveTarget, Copied
from sparklog.spark.history.archive_files import TableLocation
from sparklog.spark.history.merging import merge_small_files
from sparklog.spark.source.quantities import parse_time_ms

PLAN_SCHEMA = (
    "topic string, partition int, due boolean, reason string, archive string, archived_to bigint, archive_to bigint, "
    "high_watermark bigint, offsets bigint, archive_bytes bigint, lag_ms bigint, error string"
)
REPORT_SCHEMA = (
    "topic string, partition int, outcome string, reason string, archive string, archived_from bigint, "
    "archived_to bigint, archived_records bigint, archived_files int, archived_bytes bigint, merged_files int, "
    "offsets_left bigint, lag_before_ms bigint, lag_ms bigint"
)
DONE, LATE, LOST, FAILED = "done", "late", "lost", "failed"
Logs = Mapping[TopicPartition, LogDescription | KafkaError]


class _Time(click.ParamType[int]):
    """A time with a unit; its value is in ms."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else parse_time_ms(value)
        except (ValueError, KeyError):
            self.fail(f"{value!r}: it must be a time such as 60s, 5m or 1500ms", param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionArchive:
    """The work on one partition."""

    log: LogDescription
    archived_to: int | None = None
    """Offset up to which the partition is archived; None: the archive has nothing of it."""
    error: str = ""

    @property
    def archive_from(self) -> int:
        """The first offset that the archive lacks and the log still has."""
        return max(self.archived_to or 0, self.log.log_start_offset)

    @property
    def offsets(self) -> int:
        """How many offsets could be archived now."""
        return max(0, self.log.last_stable_offset - self.archive_from)

    @property
    def left(self) -> int:
        """How many offsets are not archived; those from the first open transaction on cannot be yet."""
        return max(0, self.log.high_watermark - self.archive_from)


def plan(context: JobContext, options: Options) -> DataFrame:
    """Return one row for each partition of the selected topics that have an archive."""
    logs = _with_archive(describe(context, options))
    tables: Tables = {}
    found = {name: _look(log, tables) for name, log in logs.items() if isinstance(log, LogDescription)}
    lags = _lags(context, found.values())
    rows = []
    for name, log in sorted(logs.items()):
        if isinstance(log, KafkaError):
            rows.append(_unknown(name, log))
        else:
            rows.append(_plan_row(found[name], lags.get(name), options["lag_target"]))
    due = sum(row[2] for row in rows)
    context.say(f"{due} of {len(rows)} partitions with an archive have something to archive")
    return context.spark.createDataFrame(rows, PLAN_SCHEMA)


def apply(context: JobContext, options: Options, plan: DataFrame) -> DataFrame:
    """Archive what is there now of the partitions that are due. Return one row for each of them."""
    begun_ms = context.now_ms
    todo = {TopicPartition(row.topic, row.partition): row for row in plan.collect() if row.due}
    readable = [name for name, row in todo.items() if not row.error]
    logs = _described(context, readable)
    wanted: dict[str, list[ArchiveTarget]] = {}
    for name in readable:
        log = logs.get(name)
        if isinstance(log, LogDescription) and log.config.retention_archive == todo[name].archive:
            wanted.setdefault(todo[name].archive, []).append(ArchiveTarget(log=log, offset_to=log.last_stable_offset))
    copied = archive_all(context, options, wanted)
    after = {
        name: PartitionArchive(log=log, archived_to=done.offset_to if (done := copied[name].archived) else None)
        for name, log in _described(context, copied).items()
        if isinstance(log, LogDescription)
    }
    lags = _lags(context, after.values())
    waited_ms = context.now_ms - begun_ms
    merged = _merge(context, wanted, copied)
    rows = [
        _report_row(
            row, copied.get(name) or Copied(error=_why_not(row, logs.get(name))), after.get(name), lags.get(name),
            merged.get(name, 0), waited_ms=waited_ms, target_ms=options["lag_target"],
        )
        for name, row in sorted(todo.items())
    ]  # fmt: skip
    return context.spark.createDataFrame(rows, REPORT_SCHEMA)


def _merge(
    context: JobContext, wanted: Mapping[str, Iterable[ArchiveTarget]], copied: Mapping[TopicPartition, Copied]
) -> dict[TopicPartition, int]:
    """Merge small files of the partitions that got new ones; return how many of each."""
    merged: dict[TopicPartition, int] = {}
    for uri, targets in wanted.items():
        grown = [each.log.partition for each in targets if copied[each.log.partition].files]
        try:
            merged |= merge_small_files(context.spark, TableLocation(uri), grown, context.say)
        except SparklogError as error:
            context.say(f"small files were not merged: {error}")  # the records are there; the next run tries again
    return merged


def _with_archive(logs: Logs) -> dict[TopicPartition, LogDescription | KafkaError]:
    """Return the logs of topics with an archive, and those that cannot be described unless the topic has none."""
    known = {name.topic: log.config.retention_archive for name, log in logs.items() if isinstance(log, LogDescription)}
    return {name: log for name, log in logs.items() if known.get(name.topic, "unknown")}


def _look(log: LogDescription, tables: Tables) -> PartitionArchive:
    try:
        return PartitionArchive(
            log=log, archived_to=archived_to(TableLocation(log.config.retention_archive), log, tables)
        )
    except SparklogError as error:
        return PartitionArchive(log=log, error=str(error))


def _described(context: JobContext, names: Iterable[TopicPartition]) -> Logs:
    with Maintenance(**context.client) as maintenance:
        return maintenance.describe_logs(names)


def _lags(context: JobContext, partitions: Iterable[PartitionArchive]) -> dict[TopicPartition, int]:
    """Return the lag of each partition in ms; those whose lag cannot be found out are left out."""
    lags = {each.log.partition: 0 for each in partitions if not each.error and not each.left}
    behind = {
        each.log.partition: (each.archive_from, each.log.high_watermark)
        for each in partitions
        if not each.error and each.left
    }
    found = oldest_records(context.client, behind)
    now_ms = context.now_ms
    return lags | {name: 0 if time_ms is None else max(0, now_ms - time_ms) for name, time_ms in found.items()}


def _plan_row(partition: PartitionArchive, lag_ms: int | None, target_ms: int) -> tuple[Any, ...]:
    log, is_late = partition.log, lag_ms is not None and lag_ms > target_ms
    if partition.error:
        reason = partition.error
    elif not partition.left:
        reason = "nothing to do"
    else:
        reason = "; ".join(_behind(partition, lag_ms))
    return (
        *log.partition, bool(partition.error or partition.offsets or is_late), reason, log.config.retention_archive,
        partition.archived_to, log.last_stable_offset, log.high_watermark, partition.offsets,
        bytes_between(log, partition.archive_from, log.last_stable_offset), lag_ms, partition.error or None,
    )  # fmt: skip


def _behind(partition: PartitionArchive, lag_ms: int | None) -> Iterator[str]:
    """Yield what is not archived, and what keeps it from being."""
    age = "of unknown age" if lag_ms is None else f"the oldest record is {seconds(lag_ms)} old"
    yield f"{partition.left} offsets are not archived, {age}"
    if partition.log.last_stable_offset < partition.log.high_watermark:
        yield f"an open transaction holds back the offsets from {partition.log.last_stable_offset} on"


def _unknown(partition: TopicPartition, error: KafkaError) -> tuple[Any, ...]:
    reason = f"{error.name}: {error}"
    return (*partition, True, reason, *[None] * 7, reason)


def _why_not(row: Row, log: LogDescription | KafkaError | None) -> str:
    """Return why a planned partition was not copied."""
    if isinstance(log, LogDescription):
        return "retention.archive was altered after the plan was made"
    return row.error or (f"{log.name}: {log}" if log else "the topic was deleted after the plan was made")


def _report_row(
    row: Row,
    copied: Copied,
    after: PartitionArchive | None,
    lag_ms: int | None,
    merged_files: int,
    *,
    waited_ms: int,
    target_ms: int,
) -> tuple[Any, ...]:
    outcome, reason = DONE, row.reason
    late = list(_lateness(row, after, lag_ms, waited_ms, target_ms))
    if late:
        outcome, reason = LATE, "; ".join(late)
    if lost := lost_reason(copied):
        outcome, reason = LOST, lost
    if copied.error:
        outcome, reason = FAILED, copied.error
    archived: tuple[int | None, ...] = copied.archived or (None, None)
    return (
        row.topic, row.partition, outcome, reason, row.archive, *archived, copied.records, copied.files,
        copied.size_bytes, merged_files, after.left if after else None, row.lag_ms, lag_ms,
    )  # fmt: skip


def _lateness(
    row: Row, after: PartitionArchive | None, lag_ms: int | None, waited_ms: int, target_ms: int
) -> Iterator[str]:
    """Yield where a run missed the target."""
    if row.archived_to is not None and row.lag_ms is not None and row.offsets:
        oldest_ms = row.lag_ms + waited_ms
        if oldest_ms > target_ms:
            yield f"a record was {seconds(oldest_ms)} old when it was archived, the target is {seconds(target_ms)}"
    if after and lag_ms is not None and lag_ms > target_ms:
        yield from _behind(after, lag_ms)


def seconds(time_ms: int) -> str:
    """Return a time in ms as text for people: seconds to a tenth."""
    return f"{time_ms / 1000:.1f} s"


JOB = Job(
    name="archive",
    help="Keep the Delta tables of topics with retention.archive no further behind than a target.",
    plan=plan,
    apply=apply,
    parameters=(
        topics_option("all topics with an archive except internal ones"),
        click.Option(
            ["--lag-target"],
            type=_Time(),
            default="60s",
            show_default=True,
            metavar="TIME",
            help="Report records that were older when they were archived, and those that are older and are not.",
        ),
        slice_option(),
    ),
    findings=frozenset({LATE, LOST, FAILED}),
)
