"""What every job has in common: its three functions, the context that they work in, and a run from plan to report.

    reports/<job>     a Delta table: the rows that `apply` returned, after run_id and at
    reports/runs      a Delta table: one row for each run of any job, failed ones too

A row's `outcome` says what became of a piece of work; those that a job names as `findings` make the run's exit status
1. A run that could not be done at all raises, and its status is 2.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.base.clock import Clock, SystemClock

RUNS = "runs"
RUNS_SCHEMA = (
    "run_id string, job string, started timestamp, ended timestamp, status int, rows bigint, findings bigint, "
    "error string, options string"
)
OK, FINDINGS, COULD_NOT_RUN = 0, 1, 2
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
    """The plan's rows where it was a dry run, else the report's."""
    findings: int


def run_job(job: Job, context: JobContext, options: Options, *, dry_run: bool = False) -> Run:
    """Plan, apply and report. Raises what plan and apply raise, once it has been written down."""
    plan = job.plan(context, options).cache()
    try:
        if dry_run:
            return Run(context.run_id, OK, plan, 0)
        started_ms = context.now_ms
        try:
            rows = job.apply(context, options, plan)
            report = _stamped(rows, context, started_ms).cache()
            findings = report.filter(F.col("outcome").isin(*job.findings)).count()
            append(report, context.table(job.name))
        except Exception as error:
            _write_run(job, context, options, started_ms, COULD_NOT_RUN, error=str(error))
            raise
        status = FINDINGS if findings else OK
        _write_run(job, context, options, started_ms, status, rows=report.count(), findings=findings)
        return Run(context.run_id, status, report, findings)
    finally:
        plan.unpersist()


def append(rows: DataFrame, path: str) -> None:
    """Append rows to the Delta table at `path`, which is made if it is not there; new columns are added to it."""
    rows.write.format("delta").mode("append").option("mergeSchema", "true").save(path)


def _stamped(rows: DataFrame, context: JobContext, started_ms: int) -> DataFrame:
    at = F.lit(_moment(started_ms)).cast("timestamp")
    return rows.select(F.lit(context.run_id).alias("run_id"), at.alias("at"), "*")


def _write_run(
    job: Job, context: JobContext, options: Options, started_ms: int, status: int, *,
    rows: int = 0, findings: int = 0, error: str | None = None,
) -> None:  # fmt: skip
    run = (
        context.run_id, job.name, _moment(started_ms), _moment(context.now_ms), status, rows, findings, error,
        json.dumps(dict(options), default=str, sort_keys=True),
    )  # fmt: skip
    append(context.spark.createDataFrame([run], RUNS_SCHEMA), context.table(RUNS))


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
