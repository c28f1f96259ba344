"""Compaction: keeps the newest record of each key.

    plan     lists every partition of a compacted topic, the segments to compact, and why the partition is due or not
             (log/compaction.py). Reads descriptions of logs, not the logs
    apply    compacts the due partitions, all in one Spark job (spark/compaction/compaction.py): a task for each
             partition, and a shuffle for partitions whose keys do not fit into a task's memory
    report   has the outcome of each due partition, with figures. At `next_delete_horizon_ms` tombstones may be dropped:
             the partition is due then, no matter how little was written since. It is due once, too, if it was compacted
             and the last report does not tell of it

Outcomes:

    compacted     segments were replaced; everything below `cleaned_offset` is clean
    unchanged     there was nothing to replace; everything below `cleaned_offset` is clean
    stale         the log or its leader changed after the plan, three times; the next run tries again
    quarantined   a finding: the partition cannot be compacted, for the given reason; segments replaced before are valid
    failed        a finding: the leader could not be asked or gave no answer, or a disk failed

If a run dies, every log is whole, with some segments compacted. The next run compacts the rest.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import click
from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.jobs.job import Job, JobContext, Options
from sparklog.jobs.logs import compacted_topics, describe_logs, kafka_error_text
from sparklog.jobs.options import topic_filter
from sparklog.log.compaction import CompactionNotDue, CompactionPlan, plan_compaction
from sparklog.log.description import LogDescription
from sparklog.records.key_map import SEED_BYTES
from sparklog.spark.compaction.compaction import compact
from sparklog.spark.compaction.work import (
    FAILED,
    QUARANTINED,
    REPORT_SCHEMA,
    STALE,
    UNCHANGED,
    CompactionOutcome,
    CompactionSettings,
    PartitionWork,
)

NAME = "compaction"
PLAN_SCHEMA = (
    "topic string, partition int, due boolean, reason string, error boolean, size_bytes bigint, dirty_bytes bigint, "
    "dirty_ratio double, first_dirty_offset bigint, end_offset bigint, segments int, groups int"
)
HOLDER = "compaction"
"""Holder of the leases, the same for all runs: a run takes over leases of a dead run before they expire."""
PATIENT = {"request_timeout_ms": 120_000, "default_api_timeout_ms": 300_000}
"""Timeouts of the tasks' clients: a broker checks and flushes all of a large segment before it answers."""
ATTEMPTS = 3
"""Number of attempts for a partition whose log or leader changes after the plan."""
MIB = 1 << 20


class ReportedCompaction(NamedTuple):
    """The last compaction of a partition, as its report tells."""

    cleaned_offset: int
    next_delete_horizon_ms: int | None
    """The time in ms when the first tombstone may go; None if there is none."""


def plan(context: JobContext, options: Options) -> DataFrame:
    """Return one row for each partition of a compacted topic, due or not."""
    wanted = topic_filter(options["topics"])
    reported = last_compactions(context)
    rows = []
    for partition, log in sorted(compacted_topics(describe_logs(context)).items()):
        if not wanted(partition.topic):
            continue
        if isinstance(log, KafkaError):
            rows.append(_make_row(partition, due=False, reason=kafka_error_text(log), error=True))
        else:
            rows.append(_plan_row(_plan_partition(log, context, options["force"], _horizon_ms(context, log, reported))))
    context.say(f"{sum(row[2] for row in rows)} of {len(rows)} partitions are due")
    return context.spark.createDataFrame(rows, PLAN_SCHEMA)


def apply(context: JobContext, options: Options, planned: DataFrame) -> DataFrame:
    """Compact the due partitions; return a row for each.

    If a log or its leader has changed, plan the partition again, at most twice.
    """
    rows = planned.filter("due or error").collect()
    reasons = {TopicPartition(row.topic, row.partition): row.reason for row in rows}
    outcomes = [CompactionOutcome(topic=row.topic, partition=row.partition, outcome=FAILED, reason=row.reason)
                for row in rows if row.error]  # fmt: skip
    left = [TopicPartition(row.topic, row.partition) for row in rows if row.due]
    for attempt in range(1, ATTEMPTS + 1):
        found = _compact(context, options, left, reasons)
        again = [outcome.place for outcome in found if outcome.outcome == STALE and attempt < ATTEMPTS]
        outcomes += [outcome for outcome in found if outcome.place not in again]
        left = again
    return context.spark.createDataFrame([outcome.row() for outcome in outcomes], REPORT_SCHEMA)


def last_compactions(context: JobContext) -> dict[TopicPartition, ReportedCompaction]:
    """Return the last report of each partition's compaction."""
    path = context.table(NAME)
    if not DeltaTable.isDeltaTable(context.spark, path):
        return {}
    done = context.spark.read.format("delta").load(path).filter("cleaned_offset is not null")
    last = F.max_by(F.struct("cleaned_offset", "next_delete_horizon_ms"), "at").alias("last")
    rows = done.groupBy("topic", "partition").agg(last).collect()
    return {TopicPartition(row.topic, row.partition): ReportedCompaction(*row.last) for row in rows}


def _horizon_ms(
    context: JobContext, log: LogDescription, reported: Mapping[TopicPartition, ReportedCompaction]
) -> int | None:
    """Return the time in ms when the partition's first tombstone may go; None if it has none.

    A run that was killed before its report leaves a log that is clean up to an offset of which no report tells. Nobody
    knows its horizon: it counts as passed, and the compaction that is due then reports the next one.
    """
    last = reported.get(log.partition)
    is_reported = last is not None and last.cleaned_offset == log.cleaned_offset
    if log.cleaned_offset > log.log_start_offset and not is_reported:
        return context.now_ms
    return last.next_delete_horizon_ms if last else None


def _compact(
    context: JobContext, options: Options, partitions: list[TopicPartition], reasons: Mapping[TopicPartition, str]
) -> list[CompactionOutcome]:
    """Compact the partitions and return their outcomes. Describes the logs again, because the plan may be old."""
    works, outcomes = [], []
    for partition, log in describe_logs(context, partitions).items():
        if isinstance(log, KafkaError):
            outcomes.append(_outcome(partition, FAILED, kafka_error_text(log)))
            continue
        # force: the partition was due, even if a first attempt has left too little to make it due again.
        due = _plan_partition(log, context, force=True)
        if isinstance(due, CompactionNotDue):
            outcomes.append(_outcome(partition, UNCHANGED, due.reason))
        else:
            works.append(PartitionWork(log=log, plan=due, reason=reasons[partition]))
    settings = CompactionSettings(
        client={**PATIENT, **context.client},
        holder=HOLDER,
        now_ms=context.now_ms,
        memory_bytes=options["memory_per_task"] * MIB,
        seed=secrets.token_bytes(SEED_BYTES),
    )
    return outcomes + compact(context.spark, works, settings, context.say)


def _plan_partition(
    log: LogDescription, context: JobContext, force: bool, horizon_ms: int | None = None
) -> CompactionPlan | CompactionNotDue:
    return plan_compaction(log, now_ms=context.now_ms, force=force, next_delete_horizon_ms=horizon_ms)


def _plan_row(planned: CompactionPlan | CompactionNotDue) -> tuple[Any, ...]:
    figures = planned.figures
    groups = planned.groups if isinstance(planned, CompactionPlan) else ()
    return _make_row(
        planned.partition,
        due=isinstance(planned, CompactionPlan),
        reason=planned.reason,
        figures=(
            figures.clean_bytes + figures.dirty_bytes + figures.waiting_bytes, figures.dirty_bytes,
            figures.dirty_ratio, figures.first_dirty_offset, figures.end_offset,
        ),
        segments=sum(map(len, groups)),
        groups=len(groups),
    )  # fmt: skip


def _make_row(
    partition: TopicPartition, *, due: bool, reason: str, error: bool = False,
    figures: tuple[Any, ...] = (None,) * 5, segments: int = 0, groups: int = 0,
) -> tuple[Any, ...]:  # fmt: skip
    return (*partition, due, reason, error, *figures, segments, groups)


def _outcome(partition: TopicPartition, outcome: str, reason: str) -> CompactionOutcome:
    return CompactionOutcome(topic=partition.topic, partition=partition.partition, outcome=outcome, reason=reason)


JOB = Job(
    name=NAME,
    help="Keep the newest record of every key, in topics with cleanup.policy=compact.",
    plan=plan,
    apply=apply,
    parameters=(
        click.Option(
            ["--topics"], multiple=True, metavar="NAME|PATTERN",
            help="Only these topics: a name, or a regular expression that matches whole names. May be repeated. "
            "Default: all compacted topics, including internal ones such as __consumer_offsets.",
        ),
        click.Option(["--force"], is_flag=True, help="Compact with any dirty ratio, if there is a closed segment."),
        click.Option(
            ["--memory-per-task"], type=click.IntRange(min=1), default=256, show_default=True, metavar="MIB",
            help="Memory of a task for the keys of a partition: 32 bytes for each key, 43 with versions. A partition "
            "that needs more is compacted by shuffle.",
        ),
    ),
    findings=frozenset({QUARANTINED, FAILED}),
)  # fmt: skip
