"""What every job has in common: its three functions, the context that they work in, and a run from plan to report.

    reports/<job>     a Delta table: the rows that `apply` returned, after run_id and at
    reports/runs      a Delta table: one row for each run of any job, failed and interrupted ones too

A row's `outcome` says what became of a piece of work; those that a job names as `findings` make the run's exit status
1. A run that could not be done at all raises, and its status is 2: so is that of a run whose work is done but whose
report could not be written, which does not raise, as its rows are still there to be shown.

The brokers that the job works with are told of the run too, and keep it in `__cluster_history` where they keep one.

A run killed in between leaves no row in `runs`. Its next run plans anew from what it finds, and is what counts.
"""

from __future__ import annotations

import json
import logging
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

RUNS = "runs"
RUNS_SCHEMA = (
    "run_id string, job string, started timestamp, ended timestamp, status int, rows bigint, findings bigint, "
    "error string, options string, schedule string"
)
OK, FINDINGS, COULD_NOT_RUN = 0, 1, 2
CONFLICTS = (
    DeltaConcurrentModificationException,
    ConcurrentAppendException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
"""Another run was quicker to make the table, or to add columns to it: append again."""
APPEND_ATTEMPTS = 5
LONGEST_ERROR = 2_000
IMPATIENT = {"request_timeout_ms": 3_000, "default_api_timeout_ms": 3_000}
"""Of the client that tells the cluster of a run: nobody waits longer for that."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """What a run works with."""

    spark: SparkSession
    reports: str
    """The folder of the Delta tables with reports."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the clients of `sparklog.client`: bootstrap_servers, security."""
    clock: Clock = field(default_factory=SystemClock)
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    say: Callable[[str], None] = lambda _: None
    """Tells the operator how far the run has come."""
    schedule: str | None = None
    """The name of the schedule that started the run, if one did."""

    @property
    def now_ms(self) -> int:
        return self.clock.time_ms()

    def table(self, name: str) -> str:
        """Where the Delta table of that name lies."""
        return f"{self.reports.rstrip('/')}/{name}"


Options = Mapping[str, Any]
"""A job's own options, by the names of its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job. `plan` and `apply` raise SparklogError where the run cannot be done; what is wrong with one piece of work
    is a row with its reason.
    """

    name: str
    help: str
    plan: Callable[[JobContext, Options], DataFrame]
    """-> one row for each piece of work, with topic, partition and why; what --dry-run prints. Changes nothing."""
    apply: Callable[[JobContext, Options, DataFrame], DataFrame]
    """Do the plan -> one row for each piece of work: topic, partition, outcome, reason, and the job's own figures."""
    parameters: tuple[click.Parameter, ...] = ()
    findings: frozenset[str] = frozenset()
    """The outcomes that an operator has to look at."""


class Run(NamedTuple):
    """What came of a run."""

    run_id: str
    status: int
    rows: DataFrame
    """The plan's rows where it was a dry run, else the report's. They are here: nothing is computed again."""
    findings: int
    error: str | None = None
    """Why the report could not be written, although the work is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    """A run under way: what its row in `runs` begins with."""

    job: Job
    context: JobContext
    options: Options
    at_ms: int


def run_job(job: Job, context: JobContext, options: Options, *, dry_run: bool = False) -> Run:
    """Plan, apply and report. Raises what plan and apply raise, once it has been written down.

    The rows of a plan and of a report are fetched to this process when they are made: what `apply` does must not be
    done again because some later step looks at its rows.
    """
    if dry_run:
        return Run(context.run_id, OK, _fetched(job.plan(context, options)), 0)
    run = _Started(job=job, context=context, options=options, at_ms=context.now_ms)
    try:
        with _cancelled_by_id(context, job.name):
            plan = _fetched(job.plan(context, options))
            rows = job.apply(context, options, plan).toArrow()
    except BaseException as error:
        # Ctrl-C too: what it leaves half done is worth a row.
        message = INTERRUPTED if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
        _attempt(lambda: _write_run(run, COULD_NOT_RUN, error=message[:LONGEST_ERROR]))
        _attempt(lambda: _tell_cluster(run, COULD_NOT_RUN, error=message[:LONGEST_ERROR]))
        raise
    found = pc.is_in(rows["outcome"], value_set=pa.array(sorted(job.findings), pa.string()))
    findings = pc.sum(found).as_py() or 0
    report = _stamped(context.spark.createDataFrame(rows), run)
    status = FINDINGS if findings else OK
    unwritten = _attempt(lambda: append(report, context.table(job.name)))
    if unwritten:
        status, unwritten = COULD_NOT_RUN, f"the work is done, its report could not be written: {unwritten}"
    unnoted = _attempt(lambda: _write_run(run, status, rows.num_rows, findings, unwritten))
    _attempt(lambda: _tell_cluster(run, status, rows.num_rows, findings, unwritten))
    failure = unwritten or unnoted
    return Run(context.run_id, COULD_NOT_RUN if failure else status, report, findings, failure)


def append(rows: DataFrame, path: str) -> None:
    """Append rows to the Delta table at `path`, which is made if it is not there; new columns are added to it.

    A table made here joins its small files on its own: each run adds one.
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
    """What Spark does meanwhile for this thread is a group that has the run's id: whoever knows it may cancel it all.

    The report is not in it: a run that was cancelled is written down.
    """
    spark = context.spark.sparkContext
    spark.setJobGroup(context.run_id, f"sparklog {job}")
    try:
        yield
    except (KeyboardInterrupt, Py4JError) as error:
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__context__, KeyboardInterrupt):
            raise
        _attempt(lambda: spark.cancelJobGroup(context.run_id))  # the JVM may be gone, and the interrupt must not
        # Py4J, interrupted while it sends a command, raises an error of its own instead.
        raise KeyboardInterrupt from error
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            _attempt(partial(spark.setLocalProperty, name, None))


def _fetched(rows: DataFrame) -> DataFrame:
    """The same rows, computed once, now."""
    return rows.sparkSession.createDataFrame(rows.toArrow())


def _stamped(rows: DataFrame, run: _Started) -> DataFrame:
    at = F.lit(_moment(run.at_ms)).cast("timestamp")
    return rows.select(F.lit(run.context.run_id).alias("run_id"), at.alias("at"), "*")


def _attempt(work: Callable[[], None]) -> str | None:
    """-> why it could not be done, if so. It never hides what the run itself has to say."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whatever a disk or the JVM has
        reason = str(error).partition("\n")[0]
        logger.warning("what comes after a run could not be done: %s", reason)
        return reason
    return None


def _write_run(run: _Started, status: int, rows: int = 0, findings: int = 0, error: str | None = None) -> None:
    context = run.context
    written = (
        context.run_id, run.job.name, _moment(run.at_ms), _moment(context.now_ms), status, rows, findings, error,
        json.dumps(dict(run.options), default=str, sort_keys=True), context.schedule,
    )  # fmt: skip
    append(context.spark.createDataFrame([written], RUNS_SCHEMA), context.table(RUNS))


def _tell_cluster(run: _Started, status: int, rows: int = 0, findings: int = 0, error: str | None = None) -> None:
    """Have it in the cluster's history too. Where no broker takes it, the run is none the worse for that."""
    if not run.context.client:
        return
    client = {**run.context.client, **IMPATIENT}
    with Maintenance(**client) as maintenance:
        maintenance.note_job_run(
            run.job.name, run.context.run_id, started_ms=run.at_ms, status=status, rows=rows, findings=findings,
            error=error, schedule=run.context.schedule,
        )  # fmt: skip


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
