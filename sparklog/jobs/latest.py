"""Latest: keeps Delta tables of the newest record of each key of compacted topics, no further behind than a target.

    plan     lists every partition, with the number of offsets that the table lacks and the age of the first record
             there
    apply    reads these offsets from the log, up to the last stable offset, and merges the newest record of each key
             into the table TABLES/<topic>_latest; a tombstone deletes its key, and so does a log start that has moved
             past its record (spark/history/latest.py)
    report   has the outcome of each partition that had something to do, and its lag at the beginning and at the end

Keys and values are bytes, or typed by the options of the Spark source (--read-option valueFormat=avro …). The archive
(archive.py) has only bytes: it must give back every record exactly, also one that no schema fits. This table is derived
from the log, and can be derived again.

A table belongs to one topic. If the topic is created again, or its log loses records that the table has, the partition
fails until somebody removes the table. The lag is that of the archive job.

Outcomes:

    done        merged as planned, in time; or another run was first
    late        a finding: merged, but a record was older than the target when it was merged, or the oldest record that
                is left is older
    failed      a finding: the topic could not be merged, for the given reason; the next run tries again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import click
from delta.exceptions import (
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
)
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from sparklog.base.config_keys import nearest
from sparklog.base.errors import ConfigError, KafkaError, SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.jobs.archiving import describe_selected, topics_option
from sparklog.jobs.job import CONFLICTS, Job, JobContext, Options
from sparklog.jobs.logs import Logs, compacted_topics, describe_logs, kafka_error_text
from sparklog.jobs.table_lag import TablePartition, age_on_arrival, is_due, lag_option, lags, missed_target, reason_of
from sparklog.log.description import LogDescription
from sparklog.spark.history.latest import NOTHING, ConcurrentMerge, LatestTable, MergeCounts, MergeRange, source_options
from sparklog.spark.offsets import topic as offsets_topic
from sparklog.spark.offsets.read import PartitionSlice
from sparklog.spark.shipping import error_text
from sparklog.spark.source.option_table import SECURITY_KEYS
from sparklog.spark.source.typed_options import TYPED_OPTION_NAMES

PLAN_SCHEMA = (
    "topic string, partition int, due boolean, reason string, table string, merged_to bigint, merge_to bigint, "
    "high_watermark bigint, offsets bigint, whole boolean, lag_ms bigint, error string"
)
REPORT_SCHEMA = (
    "topic string, partition int, outcome string, reason string, table string, merged_from bigint, merged_to bigint, "
    "upserted_keys bigint, deleted_keys bigint, offsets_left bigint, lag_before_ms bigint, lag_ms bigint"
)
DONE, LATE, FAILED = "done", "late", "failed"
SUFFIX = "_latest"
OTHER_RUN_FIRST = (
    ConcurrentMerge,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    *CONFLICTS,
)
"""Errors of a MERGE while another run merges, at any step of the other run."""
Tables = dict[str, LatestTable | SparklogError]
"""Opened tables by path, or why they cannot be opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _MergeResult:
    """The result of a run for one partition."""

    part: MergeRange | None = None
    merged: MergeCounts = NOTHING
    note: str = ""
    error: str = ""


def plan(context: JobContext, options: Options) -> DataFrame:
    """Return one row for each partition of the selected compacted topics. Raises ConfigError for a wrong option."""
    read_options(options)
    logs = compacted_topics(describe_selected(context, options)) if options["topics"] else {}
    if not options["topics"]:
        context.say("no topic is selected: name some with --topics")
    tables: Tables = {}
    found = {
        name: _read_progress(log, _open_table(table_path(context, options, name.topic), tables))
        for name, log in logs.items()
        if isinstance(log, LogDescription)
    }
    ages = lags(context, found.values())
    rows: list[tuple[Any, ...]] = []
    for name, log in sorted(logs.items()):
        path = table_path(context, options, name.topic)
        if isinstance(log, KafkaError):
            reason = kafka_error_text(log)
            rows.append((*name, True, reason, path, *[None] * 6, reason))
        else:
            rows.append(_plan_row(found[name], path, ages.get(name), options["lag_target"]))
    context.say(f"{sum(row[2] for row in rows)} of {len(rows)} partitions have something to merge")
    return context.spark.createDataFrame(rows, PLAN_SCHEMA)


def apply(context: JobContext, options: Options, plan: DataFrame) -> DataFrame:
    """Merge the due partitions up to their present ends. Return one row for each of them."""
    begun_ms = context.now_ms
    due = sorted((row for row in plan.collect() if row.due), key=lambda row: (row.topic, row.partition))
    readable = [row for row in due if not row.error]
    tables: Tables = {}
    for row in readable:
        _open_table(row.table, tables)  # before the logs are described: see LatestTable
    logs = describe_logs(context, [TopicPartition(row.topic, row.partition) for row in readable])
    done: dict[TopicPartition, _MergeResult] = {}
    for path, rows in groupby(readable, key=lambda row: row.table):
        done |= _merge_topic(context, options, list(rows), tables[path], logs)
    after = {
        name: TablePartition(log=log, reached=part.offset_to)
        for name, log in describe_logs(context, done).items()
        if isinstance(log, LogDescription) and (part := done[name].part)
    }
    ages = lags(context, after.values())
    took_ms = context.now_ms - begun_ms
    reported = []
    for row in due:
        name = TopicPartition(row.topic, row.partition)
        age_ms = age_on_arrival(row.merged_to, row.offsets, row.lag_ms, took_ms)
        late = missed_target(age_ms, after.get(name), ages.get(name), options["lag_target"])
        outcome = done.get(name, _MergeResult(error=row.error or "it was not merged"))
        reported.append(_report_row(row, outcome, late, after.get(name), ages.get(name)))
    return context.spark.createDataFrame(reported, REPORT_SCHEMA)


def table_path(context: JobContext, options: Options, topic: str) -> str:
    """Return the path of a topic's table."""
    folder = options["tables"]
    return f"{folder.rstrip('/')}/{topic}{SUFFIX}" if folder else context.table(f"{topic}{SUFFIX}")


def read_options(options: Options) -> dict[str, str]:
    """Return the options of the Spark source in --read-option. Raises ConfigError for an option that is not allowed."""
    found = {}
    allowed = {name.lower(): name for name in (*TYPED_OPTION_NAMES, "mode")}
    for text in options["read_option"]:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--read-option {text}: it must be NAME=VALUE")
        if name.lower() not in allowed:
            raise ConfigError(f"--read-option {name}: only options of typed keys and values{nearest(name, allowed)}")
        found[allowed[name.lower()]] = value
    if found.get("mode", "").upper() == "PERMISSIVE":
        raise ConfigError("--read-option mode=PERMISSIVE: a malformed value would be null, and look like a tombstone")
    return found


def _open_table(path: str, tables: Tables) -> LatestTable | SparklogError:
    if path not in tables:
        try:
            tables[path] = LatestTable.open(path)
        except SparklogError as error:
            tables[path] = error
    return tables[path]


def _read_progress(log: LogDescription, table: LatestTable | SparklogError) -> TablePartition:
    if isinstance(table, SparklogError):
        return TablePartition(log=log, error=str(table))
    try:
        merged = table.merged(log)
    except SparklogError as error:
        return TablePartition(log=log, error=str(error))
    if merged is None:
        return TablePartition(log=log)
    return TablePartition(log=log, reached=merged.offset_to, is_trimmed=merged.offset_from < log.log_start_offset)


def merge_range(partition: TablePartition) -> MergeRange:
    """Return the offsets to merge: all of the partition if the table may have missed a tombstone that is gone."""
    log, reached = partition.log, partition.reached
    is_whole = reached is None or reached < max(log.cleaned_offset, log.log_start_offset)
    offset_from = log.log_start_offset if is_whole else partition.begin
    offset_to = max(offset_from, log.last_stable_offset)  # DeleteRecords may go beyond an open transaction
    return MergeRange(
        log=log, offset_from=offset_from, offset_to=offset_to, is_whole=is_whole, is_trimmed=partition.is_trimmed
    )


def _merge_topic(
    context: JobContext, options: Options, rows: Sequence[Row], table: LatestTable | SparklogError, logs: Logs
) -> dict[TopicPartition, _MergeResult]:
    """Merge the partitions of one topic; return the result of each."""
    done, parts = {}, []
    for row in rows:
        name = TopicPartition(row.topic, row.partition)
        log = logs.get(name)
        if not isinstance(log, LogDescription):
            done[name] = _MergeResult(
                error=kafka_error_text(log) if log else "the topic was deleted after the plan was made"
            )
        elif (followed := _read_progress(log, table)).error:
            done[name] = _MergeResult(error=followed.error)
        else:
            parts.append(merge_range(followed))
    parts = _whole_if_compacted(context, parts)
    due = [part for part in parts if part.offset_from < part.offset_to or part.is_trimmed]
    done |= {part.log.partition: _MergeResult(part=part) for part in parts}
    if isinstance(table, SparklogError) or not due:
        return done
    context.say(f"merging {sum(part.offset_to - part.offset_from for part in due)} offsets into {table.path}")
    given = {**source_options(context.client, tuple(SECURITY_KEYS)), **read_options(options)}
    try:
        merged = table.merge(context.spark, due, given)
    except OTHER_RUN_FIRST as first:
        note = str(first).partition("\n")[0]
        return done | {part.log.partition: _MergeResult(note=note) for part in due}
    except (SparklogError, PySparkException, Py4JJavaError) as error:
        reason = error_text(error).partition("\n")[0]
        return done | {part.log.partition: _MergeResult(error=reason) for part in due}
    return done | {part.log.partition: _MergeResult(part=part, merged=merged[part.log.partition]) for part in due}


def _whole_if_compacted(context: JobContext, parts: Sequence[MergeRange]) -> list[MergeRange]:
    """Return the ranges; one that lacks a record becomes the whole partition, as that record may be a tombstone.

    The cleaner's checkpoint does not tell: a compaction that is killed has replaced segments, and has not yet moved the
    checkpoint. The last segment is never compacted.
    """
    slices = []
    for part in parts:
        end = min(part.offset_to, part.log.segments[-1].base_offset)
        if not part.is_whole and part.offset_from < end:
            slices.append(PartitionSlice.of(part.log, part.offset_from, end, context.client))
    surveys = zip(slices, offsets_topic.surveys(context.spark, slices), strict=True)
    lacking = {slice_.partition for slice_, survey in surveys if not survey.is_complete}
    return [
        replace(part, is_whole=True, offset_from=part.log.log_start_offset) if part.log.partition in lacking else part
        for part in parts
    ]


def _plan_row(partition: TablePartition, path: str, lag_ms: int | None, target_ms: int) -> tuple[Any, ...]:
    log, part = partition.log, merge_range(partition)
    return (
        *log.partition, is_due(partition, lag_ms, target_ms), reason_of(partition, lag_ms), path, partition.reached,
        log.last_stable_offset, log.high_watermark, partition.offsets, part.is_whole, lag_ms, partition.error or None,
    )  # fmt: skip


def _report_row(
    row: Row, done: _MergeResult, late: str, after: TablePartition | None, lag_ms: int | None
) -> tuple[Any, ...]:
    outcome, reason = (LATE, late) if late else (DONE, done.note or row.reason)
    if done.error:
        outcome, reason = FAILED, done.error
    ends = (done.part.offset_from, done.part.offset_to) if done.part else (None, None)
    return (
        row.topic, row.partition, outcome, reason, row.table, *ends, done.merged.upserted, done.merged.deleted,
        after.left if after else None, row.lag_ms, lag_ms,
    )  # fmt: skip


JOB = Job(
    name="latest",
    help="Keep Delta tables of the newest record of each key of compacted topics no further behind than a target.",
    plan=plan,
    apply=apply,
    parameters=(
        topics_option("none, as each of them gets a table"),
        click.Option(
            ["--tables"], metavar="FOLDER", help="The folder of the tables. Default: the folder of the reports."
        ),
        click.Option(
            ["--read-option"],
            multiple=True,
            metavar="NAME=VALUE",
            help="An option of the Spark source for typed keys and values, such as valueFormat=avro. May be repeated.",
        ),
        lag_option(),
    ),
    findings=frozenset({LATE, FAILED}),
)
