"""`sparklog jobs run NAME`: plan, apply and report once. spark-submit runs the same code.

Exit status: 0 done, 1 done with findings, 2 the job could not run or its report could not be written, 130 interrupted.
Standard output has the rows of the report, or of the plan with --dry-run; other output goes to standard error.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparklog.base.errors import SparklogError
from sparklog.cli.common import (
    NOTHING,
    Command,
    bootstrap_option,
    client_options,
    json_option,
    parse_configs,
    print_json,
    print_table,
)
from sparklog.jobs.table import JOBS, load_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparklog.jobs.job import Job, Run

COULD_NOT_RUN = 2
REPORTS = "./sparklog-reports"
SHOWN_ROWS = 100
"""Maximum number of rows of a table on the terminal; the Delta table and --json have all rows."""
ABOUT_THE_RUN = ("run_id", "at")


class JobCommands(click.Group):
    """Group of the jobs by name. The use of a command loads its job."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = ":" in cmd_name or cmd_name.replace("-", "_") in JOBS
        return job_command(load_job(cmd_name)) if known else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Jobs"):
            formatter.write_dl(list(JOBS.items()))


@click.group("run", cls=JobCommands, subcommand_metavar="NAME [OPTION]…")
def run_command() -> None:
    """Run one job now. Each job has its own --help.

    NAME may also be MODULE:NAME, a job of your own.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The values of the options of all jobs."""

    client: Mapping[str, Any]
    reports: str
    master: str | None
    conf: Mapping[str, str]
    dry_run: bool
    as_json: bool


def reports_option(function: Command) -> Command:
    """Return the command with --reports FOLDER."""
    return click.option(
        "--reports",
        envvar="SPARKLOG_REPORTS",
        default=REPORTS,
        metavar="FOLDER",
        show_default=True,
        show_envvar=True,
        callback=lambda context, parameter, value: whole_path(value),
        help="Place of the reports, which are Delta tables: a folder, or a URL that Spark can write to.",
    )(function)


def whole_path(folder: str) -> str:
    """Return a folder's absolute path, because Spark may have another working directory; a URL is unchanged."""
    return folder if "://" in folder else str(Path(folder).absolute())


def job_command(job: Job) -> click.Command:
    """Return the command of a job, with its own options and then those that all jobs share."""

    @click.command(job.name, help=job.help, params=list(job.parameters))
    @click.option("--dry-run", is_flag=True, help="Print the plan and change nothing; no report is written.")
    @bootstrap_option
    @reports_option
    @click.option("--master", metavar="URL", help="Spark master.  [default: spark-submit's, or local[*]]")
    @click.option(
        "--conf", "settings", multiple=True, metavar="KEY=VALUE", help="Set a Spark configuration key; may be repeated."
    )
    @json_option
    def command(
        dry_run: bool, bootstrap: str, reports: str, master: str | None, settings: tuple[str, ...], as_json: bool,
        **options: Any,
    ) -> int:  # fmt: skip
        conf = parse_configs(settings)
        client = client_options(bootstrap)
        shared = RunOptions(client=client, reports=reports, master=master, conf=conf, dry_run=dry_run, as_json=as_json)
        return run_here(job, options, shared)

    return command


def run_here(
    job: Job, options: Mapping[str, Any], shared: RunOptions, print_run: Callable[[Run], None] | None = None
) -> int:
    """Run a job in a Spark session of this process and return the exit status. `print_run` replaces `show`."""
    # Imported here: it imports Spark, which `sparklog jobs --help` does not need.
    from sparklog.jobs.session import open_session

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    try:
        say("starting Spark")
        spark = open_session(f"sparklog {job.name}", master=shared.master, conf=shared.conf)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupt)
        try:
            return run_in(spark, job, options, shared, print_run)
        finally:
            spark.stop()
    except Exception as error:  # noqa: BLE001 - Python's own exit status, 1, would mean findings
        click.echo(f"sparklog: {job.name} could not run: {reason(error)}", err=True)
        return COULD_NOT_RUN


def run_in(
    spark: SparkSession,
    job: Job,
    options: Mapping[str, Any],
    shared: RunOptions,
    print_run: Callable[[Run], None] | None = None,
) -> int:
    """Run a job in a session, show its result and return the exit status. Raises what plan and apply raise."""
    from sparklog.jobs.job import JobContext, run_job

    started = time.monotonic()
    context = JobContext(spark=spark, reports=shared.reports, client=shared.client, say=say)
    run = run_job(job, context, options, dry_run=shared.dry_run)
    if print_run is None or shared.dry_run or shared.as_json:
        show(run, as_json=shared.as_json)
    else:
        print_run(run)
    if run.error:
        click.echo(f"sparklog: {job.name}: {run.error}", err=True)
    elif not shared.dry_run:
        found = f"{run.findings} finding{'' if run.findings == 1 else 's'}"
        took = f"{time.monotonic() - started:.1f} s"
        click.echo(f"{job.name}: {found}, {took}; run {run.run_id} in {context.table(job.name)}", err=True)
    return run.status


def _interrupt(*_: object) -> None:
    """Interrupt the run. PySpark's own handler would call the JVM during another call."""
    logging.disable(logging.ERROR)  # the interrupted bridge to the JVM logs a traceback
    raise KeyboardInterrupt


def say(text: str) -> None:
    """Print progress if standard error is a terminal."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def show(run: Run, *, as_json: bool) -> None:
    """Print a run's rows on standard output."""
    rows = run.rows.toArrow().to_pylist()
    if as_json:
        for row in rows:
            print_json({name: _plain(value) for name, value in row.items()})
        return
    shown = rows[:SHOWN_ROWS]
    names = [name for name in run.rows.columns if any(row[name] not in (None, "") for row in shown)]
    names = [name for name in names if name not in ABOUT_THE_RUN]
    if not rows:
        click.echo("nothing to do", err=True)
        return
    print_table(
        [name.upper().replace("_", " ") for name in names], [[_cell(row[name]) for name in names] for row in shown]
    )
    if len(rows) > len(shown):
        click.echo(f"… and {len(rows) - len(shown)} more rows, which --json prints", err=True)


def reason(error: Exception) -> str:
    """Return an error in one line. Print the traceback first if it is neither a SparklogError nor an OSError."""
    from sparklog.spark.shipping import error_text  # imports Spark

    if not isinstance(error, SparklogError | OSError):
        click.echo(traceback.format_exc(), err=True, nl=False)
    return error_text(error).partition("\n")[0]


def _plain(value: Any) -> Any:
    """Return a value as types of JSON."""
    match value:
        case datetime():
            return value.isoformat()
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {name: _plain(item) for name, item in value.items()}
    return value


def _cell(value: Any) -> object:
    if value is None:
        return NOTHING
    if isinstance(value, list):
        return ", ".join(str(_cell(item)) for item in value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(_plain(value))
