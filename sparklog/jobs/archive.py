"""Archive: keeps the Delta tables of topics with `retention.archive` no further behind than a target.

    plan     lists every partition, with the number of offsets that the archive lacks and the age of the first record
             there
    apply    copies these offsets, up to the last stable offset, from the active segment too. A run describes the logs
             once, so it ends however fast records arrive. Then it merges small files of these partitions
             (spark/history/merging.py)
    report   has the outcome of each partition that had something to do, and its lag at the beginning and at the end

The retention job archives closed segments before it deletes them. This job keeps tables fresh: run it more often than
the target says. Both jobs write the same table, which holds its own progress (spark/history/archive_table.py). So the
jobs may run in any order, and at once: each offset is archived once.

The lag of a partition is the age of its oldest record that is not archived, by the record's timestamp. With
message.timestamp.type=CreateTime the timestamp is the producer's, so old records that are copied to a topic count as
old. Records of an open transaction wait for its end; their age counts.

Outcomes:

    done        archived as planned, in time
    late        a finding: archived, but a record was older than the target when it was archived, or the oldest record
                that is left is older. For a first run, which has to catch up, only the records that it leaves count
    lost        a finding: some records had been deleted before they could be archived
    failed      a finding: some offsets could not be archived, for the given reason; the next run tries again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, Row

from sparklog.base.errors import KafkaError, SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.jobs.archiving import (
    Tables,
    archive_all,
    archived_to,
    describe_selected,
    lost_reason,
    slice_option,
    topics_option,
)
from sparklog.jobs.job import Job, JobContext, Options
from sparklog.jobs.logs import Logs, bytes_between, describe_logs, kafka_error_text
from sparklog.jobs.table_lag import TablePartition, age_on_arrival, is_due, lag_option, lags, missed_target, reason_of
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
    logs = _with_archive(describe_selected(context, options))
    tables: Tables = {}
    found = {name: _read_progress(log, tables) for name, log in logs.items() if isinstance(log, LogDescription)}
    ages = lags(context, found.values())
    rows = []
    for name, log in sorted(logs.items()):
        if isinstance(log, KafkaError):
            rows.append(_error_row(name, log))
        else:
            rows.append(_plan_row(found[name], ages.get(name), options["lag_target"]))
    due = sum(row[2] for row in rows)
    context.say(f"{due} of {len(rows)} partitions with an archive have something to archive")
    return context.spark.createDataFrame(rows, PLAN_SCHEMA)


def apply(context: JobContext, options: Options, plan: DataFrame) -> DataFrame:
    """Archive the due partitions up to their present ends. Return one row for each of them."""
    begun_ms = context.now_ms
    todo = {TopicPartition(row.topic, row.partition): row for row in plan.collect() if row.due}
    readable = [name for name, row in todo.items() if not row.error]
    logs = describe_logs(context, readable)
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
        for name, log in describe_logs(context, copied).items()
        if isinstance(log, LogDescription)
    }
    ages = lags(context, after.values())
    took_ms = context.now_ms - begun_ms
    merged = _merge_new_files(context, wanted, copied)
    rows = []
    for name, row in sorted(todo.items()):
        age_ms = age_on_arrival(row.archived_to, row.offsets, row.lag_ms, took_ms)
        late = missed_target(age_ms, after.get(name), ages.get(name), options["lag_target"])
        outcome = copied.get(name) or CopyResult(error=_failure_reason(row, logs.get(name)))
        rows.append(_report_row(row, outcome, after.get(name), ages.get(name), late, merged.get(name, 0)))
    return context.spark.createDataFrame(rows, REPORT_SCHEMA)


def _merge_new_files(
    context: JobContext, wanted: Mapping[str, Iterable[ArchiveTarget]], copied: Mapping[TopicPartition, CopyResult]
) -> dict[TopicPartition, int]:
    """Merge small files of the partitions that got new files; return how many files of each were merged."""
    merged: dict[TopicPartition, int] = {}
    for uri, targets in wanted.items():
        grown = [each.log.partition for each in targets if copied[each.log.partition].files]
        try:
            merged |= merge_small_files(context.spark, TableLocation(uri), grown, context.say)
        except SparklogError as error:
            context.say(f"small files were not merged: {error}")  # the records are there; the next run tries again
    return merged


def _with_archive(logs: Logs) -> dict[TopicPartition, LogDescription | KafkaError]:
    """Return the logs of topics with an archive, and the errors of partitions whose topic may have one."""
    known = {name.topic: log.config.retention_archive for name, log in logs.items() if isinstance(log, LogDescription)}
    return {name: log for name, log in logs.items() if known.get(name.topic, "unknown")}


def _read_progress(log: LogDescription, tables: Tables) -> TablePartition:
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


def _error_row(partition: TopicPartition, error: KafkaError) -> tuple[Any, ...]:
    reason = kafka_error_text(error)
    return (*partition, True, reason, *[None] * 7, reason)


def _failure_reason(row: Row, log: LogDescription | KafkaError | None) -> str:
    """Return why a planned partition was not copied."""
    if isinstance(log, LogDescription):
        return "retention.archive was altered after the plan was made"
    return row.error or (kafka_error_text(log) if log else "the topic was deleted after the plan was made")


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
