"""Retention: deletes segments beyond the retention time or size; if a topic has an archive, only archived segments.

    plan     lists, for every partition, the segments that retention gives up and why, and the offsets that the archive
             lacks. Uses the same function as the broker's own task (log/retention.py). Reads descriptions of logs, not
             the logs
    apply    archives, then deletes by DeleteRecords: it moves the log start offset, and the broker removes the files.
             Only segments that are planned and still due are deleted: archiving may take hours, and topics may be
             altered or recreated meanwhile
    report   has the outcome of each partition that had something to do

With `retention.archive`, closed segments below the last stable offset are copied as soon as they exist, long before
they are due for deletion. The active segment is copied when it is due itself. The archive has only committed records:
it leaves out aborted transactions, and ends before the first open transaction. Deletion then ends there too. Without an
archive, the job deletes the same segments as the broker's own task, so either may run first. A topic with
cleanup.policy=compact alone is archived, but nothing is deleted.

Outcomes:

    done        archived and deleted as planned
    lost        a finding: as done, but some records had been deleted before they could be archived
    failed      a finding: archiving or deleting failed for the given reason, such as a log that has lost archived
                records. No record that the archive lacks was deleted; the next run tries again

If a run dies, its commits to the archive stay, and the next run continues after them: see spark/history/archive.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row

from sparklog.base.errors import KafkaError, SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin
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
from sparklog.jobs.logs import bytes_between, describe_logs, kafka_error_text
from sparklog.log.description import LogDescription
from sparklog.log.retention import DeletableSegments, select_deletable
from sparklog.spark.history.archive import ArchiveTarget, CopyResult
from sparklog.spark.history.archive_files import TableLocation

PLAN_SCHEMA = (
    "topic string, partition int, due boolean, reason string, segments int, size_bytes bigint, by_log_start int, "
    "by_size int, by_time int, delete_bytes bigint, log_start_offset bigint, delete_before bigint, archive string, "
    "archived_to bigint, archive_to bigint, archive_bytes bigint, error string"
)
REPORT_SCHEMA = (
    "topic string, partition int, outcome string, reason string, archive string, archived_from bigint, "
    "archived_to bigint, archived_records bigint, archived_files int, archived_bytes bigint, log_start_before bigint, "
    "log_start_offset bigint, deleted_bytes bigint"
)
DONE, LOST, FAILED = "done", "lost", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRetention:
    """The work on one partition."""

    log: LogDescription
    given_up: DeletableSegments
    place: TableLocation | None
    archived_to: int | None
    """Offset up to which the partition is archived; None: the archive has nothing of it."""
    archive_to: int
    """Offset up to which the partition should be archived; the log start offset if the topic has no archive."""
    error: str = ""

    @property
    def delete_before(self) -> int:
        """The offset that the log should start at; the present log start offset if nothing is to be deleted."""
        return delete_before(self.log, self.given_up)

    @property
    def archive_from(self) -> int:
        """The first offset that the archive lacks and the log still has."""
        return max(self.archived_to or 0, self.log.log_start_offset)

    @property
    def archive_bytes(self) -> int:
        """Bytes of the segments that hold offsets to archive."""
        return bytes_between(self.log, self.archive_from, self.archive_to)

    @property
    def delete_bytes(self) -> int:
        """Bytes of the segments that hold offsets to delete."""
        return bytes_between(self.log, self.log.log_start_offset, self.delete_before)

    @property
    def is_due(self) -> bool:
        """Whether there is something to archive, to delete, or to report as failed."""
        archives, deletes = self.archive_from < self.archive_to, self.delete_before > self.log.log_start_offset
        return bool(self.error) or archives or (deletes and "delete" in self.log.config.cleanup_policy)


def plan(context: JobContext, options: Options) -> DataFrame:
    """Return one row for each partition that the options select."""
    logs = describe_selected(context, options)
    tables: Tables = {}
    rows = []
    for partition, log in sorted(logs.items()):
        if isinstance(log, KafkaError):
            rows.append(_error_row(partition, log))
        else:
            rows.append(_plan_row(plan_partition(log, tables, context.now_ms)))
    due = sum(row[2] for row in rows)
    context.say(f"{due} of {len(rows)} partitions have something to archive or to delete")
    return context.spark.createDataFrame(rows, PLAN_SCHEMA)


def apply(context: JobContext, options: Options, plan: DataFrame) -> DataFrame:
    """Archive, then delete. Return one row for each partition that had something to do."""
    todo = {TopicPartition(row.topic, row.partition): row for row in plan.collect() if row.due}
    readable = [name for name, row in todo.items() if not row.error]
    logs = describe_logs(context, readable)
    copied = _archive_all(context, options, todo, logs)
    latest = describe_logs(context, readable) if copied else logs
    with Admin(**context.client) as admin:
        rows = [
            _delete(admin, row, _log_to_trim(row, logs.get(name), latest.get(name)), copied.get(name), context.now_ms)
            for name, row in sorted(todo.items())
        ]
    return context.spark.createDataFrame(rows, REPORT_SCHEMA)


def plan_partition(log: LogDescription, tables: Tables, now_ms: int) -> PartitionRetention:
    """Return the work on a partition. Takes its archive from `tables`, or opens it and adds it there."""
    given_up = given_up_of(log, now_ms)
    if not log.config.retention_archive:
        return PartitionRetention(
            log=log, given_up=given_up, place=None, archived_to=None, archive_to=log.log_start_offset
        )
    place, reached, error = None, None, ""
    try:
        place = TableLocation(log.config.retention_archive)
        reached = archived_to(place, log, tables)
    except SparklogError as problem:
        error = str(problem)
    return PartitionRetention(
        log=log,
        given_up=given_up,
        place=place,
        archived_to=reached,
        archive_to=archive_to(log, given_up),
        error=error,
    )


def given_up_of(log: LogDescription, now_ms: int) -> DeletableSegments:
    """Return how many of the oldest segments retention removes now, and why."""
    return select_deletable(
        log.segments,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        config=log.config,
        now_ms=now_ms,
    )


def delete_before(log: LogDescription, given_up: DeletableSegments) -> int:
    """Return the offset at which the log is to start, once the archive has everything below it."""
    start = log.segments[given_up.total - 1].next_offset if given_up.total else 0
    return max(log.log_start_offset, start)


def archive_to(log: LogDescription, given_up: DeletableSegments) -> int:
    """Return the offset up to which a log is to be archived.

    This is the end of the last closed segment below the last stable offset. If retention gives up the active segment
    too, it is the end of that segment.
    """
    takes_all = given_up.total == len(log.segments)
    ends = [segment.next_offset for segment in (log.segments if takes_all else log.closed_segments)]
    return max([log.log_start_offset, *(end for end in ends if end <= log.last_stable_offset)])


def reason_of(partition: PartitionRetention) -> str:
    """Return why there is work on a partition, or that there is none."""
    given_up, parts = partition.given_up, []
    if partition.error:
        return partition.error
    if not partition.is_due:
        return "nothing to do"
    if partition.archive_from < partition.archive_to:
        parts.append("closed segments are not archived")
    if given_up.by_log_start:
        parts.append(f"{given_up.by_log_start} segments below the log start")
    if given_up.by_size:
        parts.append(f"{given_up.by_size} beyond retention.bytes={partition.log.config.retention_bytes}")
    if given_up.by_time:
        parts.append(f"{given_up.by_time} older than retention.ms={partition.log.config.retention_ms}")
    return "; ".join(parts)


def _plan_row(partition: PartitionRetention) -> tuple[Any, ...]:
    log, given_up = partition.log, partition.given_up
    return (
        *log.partition, partition.is_due, reason_of(partition), len(log.segments), log.size_bytes, *given_up,
        partition.delete_bytes, log.log_start_offset, partition.delete_before,
        log.config.retention_archive or None,
        partition.archived_to, partition.archive_to if partition.place else None,
        partition.archive_bytes if partition.place else None, partition.error or None,
    )  # fmt: skip


def _error_row(partition: TopicPartition, error: KafkaError) -> tuple[Any, ...]:
    reason = kafka_error_text(error)
    return (*partition, True, reason, *[None] * 12, reason)


def _archive_all(
    context: JobContext,
    options: Options,
    todo: Mapping[TopicPartition, Row],
    logs: Mapping[TopicPartition, LogDescription | KafkaError],
) -> dict[TopicPartition, CopyResult]:
    """Archive the planned offsets, table by table; return the result of each partition."""
    by_table: dict[str, list[ArchiveTarget]] = {}
    for name, row in todo.items():
        log = logs.get(name)
        if isinstance(log, LogDescription) and row.archive and not row.error:
            by_table.setdefault(row.archive, []).append(
                ArchiveTarget(log=log, offset_to=min(row.archive_to, log.last_stable_offset))
            )
    return archive_all(context, options, by_table)


def _log_to_trim(
    row: Row, before: LogDescription | KafkaError | None, log: LogDescription | KafkaError | None
) -> LogDescription | str:
    """Return the log as described after archiving, or the reason why its records must not be deleted."""
    if not isinstance(log, LogDescription):
        return row.error or (kafka_error_text(log) if log else "no broker described the log")
    if (row.archive or "") != log.config.retention_archive:
        return "retention.archive was altered after the plan was made"
    if isinstance(before, LogDescription) and before.topic_id != log.topic_id:
        return "the topic was made again after the plan was made"
    return log


def _delete(
    admin: Admin, row: Row, log: LogDescription | str, copied: CopyResult | None, now_ms: int
) -> tuple[Any, ...]:
    """Move the log start offset as far as the plan and the archive allow; return the partition's row of the report."""
    name = TopicPartition(row.topic, row.partition)
    if isinstance(log, str):
        return (*name, FAILED, log, row.archive, *[None] * 8)
    outcome, reason, target = DONE, row.reason, min(row.delete_before, delete_before(log, given_up_of(log, now_ms)))
    if row.archive:
        copied = copied or CopyResult(error="it was not archived")
        target = min(target, copied.archived.offset_to if copied.archived else log.log_start_offset)
        if lost := lost_reason(copied):
            outcome, reason = LOST, lost
        if copied.error:
            outcome, reason = FAILED, copied.error
    start = log.log_start_offset
    if target > start and "delete" in log.config.cleanup_policy:
        try:
            start = admin.delete_records({name: target})[name]
        except SparklogError as error:
            outcome, reason = FAILED, f"DeleteRecords: {error}"
    archived: tuple[int | None, ...] = (None,) * 5
    if copied and copied.archived:
        archived = (*copied.archived, copied.records, copied.files, copied.size_bytes)
    return (
        *name, outcome, reason, row.archive, *archived, log.log_start_offset, start,
        bytes_between(log, log.log_start_offset, start),
    )  # fmt: skip


JOB = Job(
    name="retention",
    help="Delete what is too old or too much; where a topic names an archive (retention.archive), copy it there first.",
    plan=plan,
    apply=apply,
    parameters=(
        topics_option("all topics except internal ones"),
        slice_option(),
    ),
    findings=frozenset({LOST, FAILED}),
)
