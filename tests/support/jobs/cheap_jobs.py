"""Jobs that cost nothing, to try what runs them: as MODULE:NAME they are anybody's own."""

from __future__ import annotations

import time
from pathlib import Path

import click
from pyspark.sql import DataFrame

from sparklog.base.errors import ConfigError, NetworkException
from sparklog.jobs.job import Job, JobContext, Options
from support.patience import PATIENCE_S

PLAN = "topic string, partition int, reason string"
REPORT = "topic string, partition int, outcome string, reason string, bytes bigint"


def _plan(context: JobContext, options: Options) -> DataFrame:
    if options["refuse"]:
        raise ConfigError("the moon is not right")
    rows = [("orders", number, "it is due") for number in range(options["pieces"])]
    return context.spark.createDataFrame(rows, PLAN)


def _apply(context: JobContext, options: Options, plan: DataFrame) -> DataFrame:
    if options["fail"]:
        raise NetworkException("nobody answers")
    if options["until"]:
        _mark(options["until"] + ".started")
        deadline = time.monotonic() + PATIENCE_S
        while not Path(options["until"]).exists():
            if time.monotonic() > deadline:
                raise TimeoutError
            context.spark.range(1).count()  # where it can be cancelled
            time.sleep(0.05)
    done = [(row.topic, row.partition, options["outcome"], row.reason, 12) for row in plan.collect()]
    context.say(f"{len(done)} done")
    return context.spark.createDataFrame(done, REPORT)


def _mark(path: str) -> None:
    Path(path).touch()


CHEAP = Job(
    name="cheap",
    help="Do nothing, and say so.",
    plan=_plan,
    apply=_apply,
    parameters=(
        click.Option(["--pieces"], type=click.IntRange(0), default=1, help="How many rows."),
        click.Option(["--outcome"], default="done", help="What becomes of them."),
        click.Option(["--topic", "topics"], multiple=True, help="Not used."),
        click.Option(["--fail/--no-fail"], default=False, help="Raise while the work is done."),
        click.Option(["--refuse"], is_flag=True, help="Raise while it is planned."),
        click.Option(["--until"], help="Wait for this file; FILE.started says that it waits."),
    ),
    findings=frozenset({"broken"}),
)
