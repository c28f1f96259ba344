"""Runs an audit: view the cluster, read every byte, view again, and report the problems that a second reading confirms.

    1  view      the state of the cluster, or of the folders
    2  facts     from the bytes of every segment, in tasks
    3  view      again: a problem that is gone by now was only a change in progress
    4  facts     of the segments with problems, and the batches of slices that differ; only if there are any
    5  view      to leave out segments that were replaced or deleted since 3, and replicas that were moved

A log that is written, rolled, compacted, trimmed or moved meanwhile gives no findings. The driver's memory holds a row
for each segment and each suspicious offset; a task's, a piece of a segment, its indexes and a row for each slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.ids import TopicPartition
from sparklog.spark.audit.differences import comparable, differing_slices, first_differences
from sparklog.spark.audit.findings import (
    confirmed,
    findings,
    hw_above_bytes,
    problems_of_bytes,
    problems_of_state,
)
from sparklog.spark.audit.tables import DIFFERENCES, FINDINGS, AuditTables, ClusterView, to_table, work_rows
from sparklog.spark.audit.tasks import read_batches, read_facts
from sparklog.spark.progress_reports import progress_reports

Say = Callable[[str], None]
TOLD_EVERY_S = 1.0
BAR = 40
SEGMENTS = "broker int, topic string, partition int, base_offset bigint, next_offset bigint, identity string"
SUMMED = "topic string, partition int, replicas bigint, segments bigint, batches bigint, size_bytes bigint"


class AuditSource(Protocol):
    """The cluster, or the folders, to audit."""

    def view(self) -> ClusterView:
        """Return the current state."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """Result of an audit."""

    findings: DataFrame
    """Rows of FINDINGS."""
    partitions: DataFrame
    """Rows of SUMMED: the amounts that were read of each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Auditor:
    """Runs an audit, once."""

    spark: SparkSession
    source: AuditSource
    client: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of clients, for segments that are read through brokers."""
    say: Say = lambda _: None

    def run(self) -> AuditResult:
        """Run the audit and return its result.

        The audit has a Spark session of its own, without adaptive execution: the tables are small and their sizes are
        known, so Spark would only plan again after each of many short stages, without gain.

        Raises SparklogError if the cluster cannot be asked, or a path is no log directory.
        """
        session = self.spark.newSession()
        session.conf.set("spark.sql.adaptive.enabled", "false")
        return Auditor._run(replace(self, spark=session))

    def _run(self) -> AuditResult:
        before = self.source.view()
        facts = self._read_facts(before, "reading")
        after = self.source.view()
        tables, tables_after = before.tables(self.spark), after.tables(self.spark)
        problems = self._fetch_rows(_all_problems(tables, tables_after, facts.segments))
        differences = to_table(self.spark, [], DIFFERENCES)
        if len({replica.broker for replica in before.replicas}) > 1:
            differences = self._fetch_rows(differing_slices(facts.slices, tables.replicas))
        facts.slices.unpersist()
        if problems.isEmpty() and differences.isEmpty():
            found = to_table(self.spark, [], FINDINGS)
        else:
            found = findings(self._confirm_problems(after, tables_after, problems, differences), tables_after.replicas)
        return AuditResult(findings=found, partitions=_sum_by_partition(facts.segments))

    def _confirm_problems(
        self, view: ClusterView, tables: AuditTables, problems: DataFrame, differences: DataFrame
    ) -> DataFrame:
        """Return the PROBLEMS that a second reading confirms."""
        offsets = [(row.topic, row.partition, row.offset) for row in problems.collect() if row.offset is not None]
        facts = self._read_facts(view, "reading again", offsets)
        batches = read_batches(self.spark, _batch_work(view, differences.collect()), self.client).cache()
        batches.count()
        after = self.source.view()
        last = after.tables(self.spark)
        same = ["broker", "topic", "partition", "base_offset", "identity"]
        seen, there = _segment_table(self.spark, view), _segment_table(self.spark, after).select(*same)
        again = confirmed(problems, _all_problems(tables, last, facts.segments.join(there, same)))
        able = comparable(tables.replicas, last.replicas, seen.join(there, same, "left_anti"))
        found = self._fetch_rows(again.unionByName(first_differences(batches, differences, able)))
        for cached in (facts.slices, batches):
            cached.unpersist()
        return found

    def _read_facts(
        self, view: ClusterView, doing: str, offsets: Iterable[tuple[str, int, int]] | None = None
    ) -> _FactTables:
        """Read the facts of all segments, or of those with suspicious `offsets`, now rather than lazily."""
        work = work_rows(view, offsets)
        size = sum(max(0, row[7]) for row in work)
        self.say(f"{doing} {len(work)} segments of {len(view.replicas)} replicas, {size:,} bytes")
        facts = read_facts(self.spark, work, self.client).cache()
        with progress_reports(partial(_tasks_done, self.spark), self.say, TOLD_EVERY_S):
            return _FactTables(segments=self._fetch_rows(facts.drop("slices")), slices=facts)

    def _fetch_rows(self, rows: DataFrame) -> DataFrame:
        """Fetch a few rows to the driver: later steps need no shuffle then, and no work at all without rows."""
        return self.spark.createDataFrame(rows.toArrow(), rows.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FactTables:
    """FACTS: without slices in the driver, and with slices in the executors' cache."""

    segments: DataFrame
    slices: DataFrame


def _tasks_done(spark: SparkSession) -> str:
    """Return how many of the running tasks are done, as a bar; empty if none runs."""
    tracker = spark.sparkContext.statusTracker()
    stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
    done, tasks = sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)
    return f"[{'#' * (BAR * done // tasks):.<{BAR}}] {done} of {tasks} tasks" if tasks else ""


def _all_problems(before: AuditTables, after: AuditTables, facts: DataFrame) -> DataFrame:
    state = problems_of_state(before, after)
    return state.unionByName(problems_of_bytes(facts)).unionByName(hw_above_bytes(before.replicas, facts))


def _batch_work(view: ClusterView, differing: list[Any]) -> list[tuple[Any, ...]]:
    """Return WORK for the batches of each first slice that differs, for both replicas of the pair."""
    ranges: dict[tuple[int, TopicPartition], tuple[int, int]] = {}
    for row in differing:
        for broker in (row.broker, row.reference):
            key = (broker, TopicPartition(row.topic, row.partition))
            start, end = ranges.get(key, (MAX_LONG, 0))
            ranges[key] = (min(start, row.first_offset), max(end, row.last_offset + 1))
    rows = []
    for row in work_rows(view):
        start, end = ranges.get((row[0], TopicPartition(row[1], row[2])), (MAX_LONG, 0))
        base, following = row[4], row[5]
        if base < end and (following < 0 or following > start):
            rows.append((*row[:12], start, end, row[14]))
    return rows


def _segment_table(spark: SparkSession, view: ClusterView) -> DataFrame:
    rows = [
        (replica.broker, *replica.partition, segment.base_offset, segment.next_offset, segment.identity)
        for replica in view.replicas
        for segment in replica.segments
    ]
    return to_table(spark, rows, SEGMENTS)


def _sum_by_partition(facts: DataFrame) -> DataFrame:
    return facts.groupBy("topic", "partition").agg(
        F.count_distinct("broker").alias("replicas"),
        F.count("*").alias("segments"),
        F.sum("batches").alias("batches"),
        F.sum("size_bytes").alias("size_bytes"),
    )
