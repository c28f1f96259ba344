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

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, Row

from sparklog.base.errors import KafkaError, SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.jobs.archiving import (
    Logs,
    Tables,
    archive_all,
    archived_to,
    bytes_between,
    describe,
    described,
    lost_reason,
    slice_option,
    topics_option,
)
from sparklog.jobs.following import TablePartition, is_due, lag_option, lags, lateness, reason_of, waited
from sparklog.jobs.job import Job, JobContext, Options
from sparklog.log.description import LogDescription
from sparklog.spark.history.archive import ArchiveTarget, CopyResult
from sparklog.spark.history.archive_files import TableLocation
from sparklog.spark.history.merging import merge_small_files

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


def plan(context: JobContext, options: Options) -> DataFrame:
    """Return one row for each partition of the selected topics that have an archive."""
    logs = _with_archive(describe(context, options))
    tables: Tables = {}
    found = {name: _look(log, tables) for name, log in logs.items() if isinstance(log, LogDescription)}
    ages = lags(context, found.values())
    rows = []
    for name, log in sorted(logs.items()):
        if isinstance(log, KafkaError):
            rows.append(_unknown(name, log))
        else:
            rows.append(_plan_row(found[name], ages.get(name), options["lag_target"]))
    due = sum(row[2] for row in rows)
    context.say(f"{due} of {len(rows)} partitions with an archive have something to archive")
    return context.spark.createDataFrame(rows, PLAN_SCHEMA)


def apply(context: JobContext, options: Options, plan: DataFrame) -> DataFrame:
    """Archive what is there now of the partitions that are due. Return one row for each of them."""
    begun_ms = context.now_ms
    todo = {TopicPartition(row.topic, row.partition): row for row in plan.collect() if row.due}
    readable = [name for name, row in todo.items() if not row.error]
    logs = described(context, readable)
    wanted: dict[str, list[ArchiveTarget]] = {}
    for name in readable:
        log = logs.get(name)
        if isinstance(log, LogDescription) and log.config.retention_archive == todo[name].archive:
            wanted.setdefault(todo[name].archive, []).append(ArchiveTarget(log=log, offset_to=log.last_stable_offset))
    copied = archive_all(context, options, wanted)
    after = {
        name: TablePartition(
            log=log, reached=done.offset_to if (done := copied[name].archived) else todo[name].archived_to
        )
        for name, log in described(context, copied).items()
        if isinstance(log, LogDescription)
    }
    ages = lags(context, after.values())
    took_ms = context.now_ms - begun_ms
    merged = _merge(context, wanted, copied)
    rows = []
    for name, row in sorted(todo.items()):
        waited_ms = waited(row.archived_to, row.offsets, row.lag_ms, took_ms)
        late = lateness(waited_ms, after.get(name), ages.get(name), options["lag_target"])
        outcome = copied.get(name) or CopyResult(error=_why_not(row, logs.get(name)))
        rows.append(_report_row(row, outcome, after.get(name), ages.get(name), late, merged.get(name, 0)))
    return context.spark.createDataFrame(rows, REPORT_SCHEMA)


def _merge(
    context: JobContext, wanted: Mapping[str, Iterable[ArchiveTarget]], copied: Mapping[TopicPartition, CopyResult]
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


def _look(log: LogDescription, tables: Tables) -> TablePartition:
    try:
        return TablePartition(log=log, reached=archived_to(TableLocation(log.config.retention_archive), log, tables))
    except SparklogError as error:
        return TablePartition(log=log, error=str(error))


def _plan_row(partition: TablePartition, lag_ms: int | None, target_ms: int) -> tuple[Any, ...]:
    log = partition.log
    return (
        *log.partition, is_due(partition, lag_ms, target_ms), reason_of(partition, lag_ms),
        log.config.retention_archive, partition.reached, log.last_stable_offset, log.high_watermark, partition.offsets,
        bytes_between(log, partition.begin, log.last_stable_offset), lag_ms, partition.error or None,
    )  # fmt: skip


def _unknown(partition: TopicPartition, error: KafkaError) -> tuple[Any, ...]:
    reason = f"{error.name}: {error}"
    return (*partition, True, reason, *[None] * 7, reason)


def _why_not(row: Row, log: LogDescription | KafkaError | None) -> str:
    """Return why a planned partition was not copied."""
    if isinstance(log, LogDescription):
        return "retention.archive was altered after the plan was made"
    return row.error or (f"{log.name}: {log}" if log else "the topic was deleted after the plan was made")


def _report_row(
    row: Row, copied: CopyResult, after: TablePartition | None, lag_ms: int | None, late: str, merged_files: int
) -> tuple[Any, ...]:
    outcome, reason = (LATE, late) if late else (DONE, row.reason)
    if lost := lost_reason(copied):
        outcome, reason = LOST, lost
    if copied.error:
        outcome, reason = FAILED, copied.error
    archived: tuple[int | None, ...] = copied.archived or (None, None)
    return (
        row.topic, row.partition, outcome, reason, row.archive, *archived, copied.records, copied.files,
        copied.size_bytes, merged_files, after.left if after else None, row.lag_ms, lag_ms,
    )  # fmt: skip


JOB = Job(
    name="archive",
    help="Keep the Delta tables of topics with retention.archive no further behind than a target.",
    plan=plan,
    apply=apply,
    parameters=(
        topics_option("all topics with an archive except internal ones"),
        lag_option(),
        slice_option(),
    ),
    findings=frozenset({LATE, LOST, FAILED}),
)
