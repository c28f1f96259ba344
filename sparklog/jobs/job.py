"""The common part of all jobs: a job's functions, the context of a run, and a run from plan to report.

    reports/<job>     a Delta table: the columns run_id and at, then those of the rows that `apply` returned
    reports/runs      a Delta table: one row for each run of any job, including failed and interrupted runs

The `outcome` of a row is the result of one piece of work. If a row has an outcome that the job lists in `findings`, the
run's exit status is 1. A run that could not be done at all raises an error, and its status is 2. If the work is done
but the report could not be written, the status is 2 too, but no error is raised, so that the rows can still be shown.

The brokers of the job are told of the run, and keep it in `__cluster_history` if they keep a history.

A killed run leaves no row in `runs`. The next run plans anew from the state that it finds.
"""

from __future__ import annotations

import json
import logging
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import click
import pyarrow as pa
import pyarrow.compute as pc
from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.base.clock import Clock, SystemClock
from sparklog.client import Maintenance
from sparklog.jobs.runs import INTERRUPTED
from sparklog.spark.shipping import error_text

RUNS = "runs"
RUNS_SCHEMA = (
    "run_id string, job string, started timestamp, ended timestamp, status int, rows bigint, findings bigint, "
    "error string, options string, schedule string, host string, application_id string"
)
OK, FINDINGS, COULD_NOT_RUN = 0, 1, 2
CONFLICTS = (
    DeltaConcurrentModificationException,
    ConcurrentAppendException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
"""Errors if another run creates the table, or adds columns to it, at the same time: append again."""
APPEND_ATTEMPTS = 5
LONGEST_ERROR = 2_000
IMPATIENT = {"request_timeout_ms": 3_000, "default_api_timeout_ms": 3_000}
"""Timeouts of the client that reports a run to the cluster: the report is not worth a longer wait."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """The context of a run: its Spark session, reports, clients and clock."""

    spark: SparkSession
    reports: str
    """The folder of the Delta tables with reports."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the clients of `sparklog.client`: bootstrap_servers, security."""
    clock: Clock = field(default_factory=SystemClock)
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    say: Callable[[str], None] = lambda _: None
    """Called with messages about the run's progress, for the operator."""
    schedule: str | None = None
    """The name of the schedule that started the run; None if no schedule did."""

    @property
    def now_ms(self) -> int:
        """The wall time, in ms since the Unix epoch."""
        return self.clock.time_ms()

    def table(self, name: str) -> str:
        """Return the path of the Delta table of that name."""
        return f"{self.reports.rstrip('/')}/{name}"


Options = Mapping[str, Any]
"""Values of a job's own options, by the names of its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job.

    `plan` and `apply` raise SparklogError if the run cannot be done. A problem with one piece of work is a row with the
    reason instead.
    """

    name: str
    help: str
    plan: Callable[[JobContext, Options], DataFrame]
    """Return one row for each piece of work, with topic, partition and reason; --dry-run prints it. Changes nothing."""
    apply: Callable[[JobContext, Options, DataFrame], DataFrame]
    """Carry out the plan. Return a row for each piece of work: topic, partition, outcome, reason, the job's figures."""
    parameters: tuple[click.Parameter, ...] = ()
    findings: frozenset[str] = frozenset()
    """The outcomes that need an operator's attention."""


class Run(NamedTuple):
    """The result of a run."""

    run_id: str
    status: int
    rows: DataFrame
    """The plan's rows after a dry run, otherwise the report's. They are in this process: Spark does no work again."""
    findings: int
    error: str | None = None
    """Why the report could not be written although the work is done; None if it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ActiveRun:
    """A run in progress: the first columns of its row in `runs`."""

    job: Job
    context: JobContext
    options: Options
    at_ms: int


def run_job(job: Job, context: JobContext, options: Options, *, dry_run: bool = False) -> Run:
    """Plan, apply and report; return the run. An error of `plan` or `apply` is recorded in `runs`, then raised.

    The rows of the plan and of the report are fetched to this process at once. Otherwise a later use of the rows would
    make Spark do the work of `apply` again.
    """
    if dry_run:
        return Run(context.run_id, OK, _fetch_rows(job.plan(context, options)), 0)
    run = _ActiveRun(job=job, context=context, options=options, at_ms=context.now_ms)
    try:
        with _cancelled_by_id(context, job.name):
            plan = _fetch_rows(job.plan(context, options))
            rows = job.apply(context, options, plan).toArrow()
    except BaseException as error:
        # Record Ctrl-C too: the work may be half done.
        message = INTERRUPTED if isinstance(error, KeyboardInterrupt) else error_text(error)
        _attempt_afterwards(lambda: _write_run(run, COULD_NOT_RUN, error=message[:LONGEST_ERROR]))
        _attempt_afterwards(lambda: _report_to_cluster(run, COULD_NOT_RUN, error=message[:LONGEST_ERROR]))
        raise
    found = pc.is_in(rows["outcome"], value_set=pa.array(sorted(job.findings), pa.string()))
    findings = pc.sum(found).as_py() or 0
    report = _with_run_columns(context.spark.createDataFrame(rows), run)
    status = FINDINGS if findings else OK
    unwritten = _attempt_afterwards(lambda: append(report, context.table(job.name)))
    if unwritten:
        status, unwritten = COULD_NOT_RUN, f"the work is done, its report could not be written: {unwritten}"
    unnoted = _attempt_afterwards(lambda: _write_run(run, status, rows.num_rows, findings, unwritten))
    _attempt_afterwards(lambda: _report_to_cluster(run, status, rows.num_rows, findings, unwritten))
    failure = unwritten or unnoted
    return Run(context.run_id, COULD_NOT_RUN if failure else status, report, findings, failure)


def append(rows: DataFrame, path: str) -> None:
    """Append rows to the Delta table at `path`. Creates the table if it does not exist, and adds new columns to it.

    A table created here compacts its small files automatically, as each run adds one.
    """
    writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
    writer = writer.option("delta.autoOptimize.autoCompact", "true")
    for attempt in range(1, APPEND_ATTEMPTS + 1):
        try:
            writer.save(path)
        except CONFLICTS:
            if attempt == APPEND_ATTEMPTS:
                raise
        else:
            break


@contextmanager
def _cancelled_by_id(context: JobContext, job: str) -> Iterator[None]:
    """Put this thread's Spark jobs into a job group with the run's id, so that they can be cancelled by it.

    The report is written outside of the group, so that a cancelled run is recorded.
    """
    spark = context.spark.sparkContext
    spark.setJobGroup(context.run_id, f"sparklog {job}")
    try:
        yield
    except (KeyboardInterrupt, Py4JError) as error:
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__context__, KeyboardInterrupt):
            raise
        _attempt_afterwards(lambda: spark.cancelJobGroup(context.run_id))  # may fail if the JVM is gone
        # If Py4J is interrupted while it sends a command, it raises an error of its own instead.
        raise KeyboardInterrupt from error
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            _attempt_afterwards(partial(spark.setLocalProperty, name, None))


def _fetch_rows(rows: DataFrame) -> DataFrame:
    """Compute the rows now, once, and return them as a new DataFrame."""
    return rows.sparkSession.createDataFrame(rows.toArrow())


def _with_run_columns(rows: DataFrame, run: _ActiveRun) -> DataFrame:
    at = F.lit(_utc_datetime(run.at_ms)).cast("timestamp")
    return rows.select(F.lit(run.context.run_id).alias("run_id"), at.alias("at"), "*")


def _attempt_afterwards(work: Callable[[], None]) -> str | None:
    """Do work that follows a run. Return the reason if it failed, else None; raise nothing: the run's result counts."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - any error of a disk or the JVM
        reason = error_text(error).partition("\n")[0]
        logger.warning("what comes after a run could not be done: %s", reason)
        return reason
    return None


def _write_run(run: _ActiveRun, status: int, rows: int = 0, findings: int = 0, error: str | None = None) -> None:
    context = run.context
    written = (
        context.run_id, run.job.name, _utc_datetime(run.at_ms), _utc_datetime(context.now_ms), status, rows, findings,
        error,
        json.dumps(dict(run.options), default=str, sort_keys=True), context.schedule,
        socket.gethostname(), context.spark.sparkContext.applicationId,
    )  # fmt: skip
    append(context.spark.createDataFrame([written], RUNS_SCHEMA), context.table(RUNS))


def _report_to_cluster(
    run: _ActiveRun, status: int, rows: int = 0, findings: int = 0, error: str | None = None
) -> None:
    """Add the run to the cluster's history."""
    if not run.context.client:
        return
    client = {**run.context.client, **IMPATIENT}
    with Maintenance(**client) as maintenance:
        maintenance.note_job_run(
            run.job.name, run.context.run_id, started_ms=run.at_ms, status=status, rows=rows, findings=findings,
            error=error, schedule=run.context.schedule,
        )  # fmt: skip


def _utc_datetime(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
