"""`sparklog jobs run NAME`: plan, apply and report once; what spark-submit runs too.

Exit status: 0 done, 1 done with findings, 2 it could not run or its report could not be written, 130 interrupted.
Standard output has the report's rows, or with --dry-run the plan's; all else goes to standard error.
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
"""How many rows a table on the terminal has; the Delta table and --json have all."""
ABOUT_THE_RUN = ("run_id", "at")
NOTHING = "-"


class JobCommands(click.Group):
    """The jobs by name; one is loaded when it is asked for."""

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
    """Run one job, here and now; each has a --help of its own.

    NAME may also be MODULE:NAME, a job of your own.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the options that all jobs share say."""

    client: Mapping[str, Any]
    reports: str
    master: str | None
    conf: Mapping[str, str]
    dry_run: bool
    as_json: bool


def reports_option(function: Command) -> Command:
    """--reports FOLDER."""
    return click.option(
        "--reports",
        envvar="SPARKLOG_REPORTS",
        default=REPORTS,
        metavar="FOLDER",
        show_default=True,
        show_envvar=True,
        callback=lambda context, parameter, value: whole_path(value),
        help="Where reports are kept, in Delta tables: a folder, or a URL that Spark can write to.",
    )(function)


def whole_path(folder: str) -> str:
    """A folder's path from the root, as Spark may have another working directory; URLs as they are."""
    return folder if "://" in folder else str(Path(folder).absolute())


def job_command(job: Job) -> click.Command:
    """A job as a command: its own options, then those that all jobs have."""

    @click.command(job.name, help=job.help, params=list(job.parameters))
    @click.option("--dry-run", is_flag=True, help="Print the plan and change nothing; no report is written.")
    @bootstrap_option
    @reports_option
    @click.option("--master", metavar="URL", help="Spark's master.  [default: spark-submit's, or local[*]]")
    @click.option("--conf", "settings", multiple=True, metavar="KEY=VALUE", help="One of Spark's; may be repeated.")
    @json_option
    def command(
        dry_run: bool, bootstrap: str, reports: str, master: str | None, settings: tuple[str, ...], as_json: bool,
        **options: Any,
    ) -> int:  # fmt: skip
        conf = parse_configs(settings)
        client = client_options(bootstrap)
        shared = Surroundings(
            client=client, reports=reports, master=master, conf=conf, dry_run=dry_run, as_json=as_json
        )
        return run_here(job, options, shared)

    return command


def run_here(
    job: Job, options: Mapping[str, Any], shared: Surroundings, print_run: Callable[[Run], None] | None = None
) -> int:
    """Run a job in a session of this process -> the exit status. print_run: instead of `show`."""
    # Loaded here, as is what brings in Spark: `sparklog jobs --help` has no use for it.
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
    except Exception as error:  # noqa: BLE001 - Python's own exit status, 1, would say that there are findings
        click.echo(f"sparklog: {job.name} could not run: {reason(error)}", err=True)
        return COULD_NOT_RUN


def run_in(
    spark: SparkSession,
    job: Job,
    options: Mapping[str, Any],
    shared: Surroundings,
    print_run: Callable[[Run], None] | None = None,
) -> int:
    """Run a job in a session, and show what came of it -> the exit status. Raises what plan and apply raise."""
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
    """Interrupt the run. PySpark's own handler asks the JVM something, in the middle of another question."""
    logging.disable(logging.ERROR)  # the bridge to the JVM logs a traceback, as it was interrupted
    raise KeyboardInterrupt


def say(text: str) -> None:
    """Progress, where somebody watches."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def show(run: Run, *, as_json: bool) -> None:
    """A run's rows on standard output."""
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
    """An error in one line; one that nobody expected with its traceback, on the lines before."""
    if not isinstance(error, SparklogError | OSError):
        click.echo(traceback.format_exc(), err=True, nl=False)
    return str(error).partition("\n")[0] or type(error).__name__


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
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
