"""`sparklog jobs`: maintenance on Spark, run once, by hand or by another scheduler (`run`), or scheduled (`serve`)."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from sparklog.base.addresses import Address
from sparklog.base.health import Health
from sparklog.cli import run
from sparklog.cli.common import NOTHING, json_option, print_json, print_table
from sparklog.cli.job_runs import COULD_NOT_RUN, REPORTS, reason, run_command, whole_path
from sparklog.cli.logs import log_to_stderr, report_failed_start
from sparklog.jobs.table import JOBS

if TYPE_CHECKING:
    from sparklog.base.metrics_http import MetricsServer
    from sparklog.jobs.runs import PastRun
    from sparklog.jobs.schedule import JobServer
    from sparklog.jobs.schedule_config import Schedule, ServerConfig

logger = logging.getLogger(__name__)
SCRIPTS = Path(__file__).with_name("scripts")
"""Not a package: the import of one of these files would run a job."""
NEW_SCHEDULE = "python -m sparklog.jobs.config_doc > jobs.toml"


@click.group("jobs")
def command() -> None:
    """Run compaction, archive, latest, retention, offsets replay and the audit of replicas on Spark.

    \b
      sparklog jobs run compaction --dry-run
      sparklog jobs run compaction --master spark://host:7077
      spark-submit "$(sparklog jobs script compaction)" --dry-run
      sparklog jobs serve --config conf/jobs.toml
      sparklog jobs list --config conf/jobs.toml

    Exit status of a run: 0 done, 1 done with findings, 2 could not run.
    """


command.add_command(run_command)
config_option = click.option(
    "--config",
    "config_file",
    envvar="SPARKLOG_JOBS_CONFIG",
    metavar="FILE",
    show_envvar=True,
    help="The schedule's file.",
)


@command.command("list")
@config_option
@click.option(
    "--reports", envvar="SPARKLOG_REPORTS", metavar="FOLDER", show_envvar=True,
    help=f"Folder of the reports.  [default: the schedule's, or {REPORTS}]",
)  # fmt: skip
@json_option
def list_jobs(config_file: str | None, reports: str | None, as_json: bool) -> None:
    """List each job's last run, its outcome, and the time of the next run.

    The runs come from the reports, whoever started them; a run by hand has no schedule. Spark is not started.
    """
    # Imported here: the schedule's jobs import Spark's Python packages.
    from sparklog.jobs.runs import last_runs
    from sparklog.jobs.schedule_config import load_server_config

    config = load_server_config(config_file) if config_file else None
    folder = reports or (config.reports if config else REPORTS)
    past = last_runs(f"{whole_path(folder).rstrip('/')}/runs")
    schedules = config.schedules if config else ()
    rows = [_list_row(schedule.name, schedule.job.name, past.pop((schedule.job.name, schedule.name), None), schedule)
            for schedule in schedules]  # fmt: skip
    rows += [_list_row(last.schedule, last.job, last, None) for _, last in sorted(past.items(), key=str)]
    if as_json:
        for row in rows:
            print_json(
                {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
            )
    elif rows:
        titles = [name.upper().replace("_", " ") for name in rows[0]]
        print_table(titles, [[_cell(value) for value in row.values()] for row in rows])
    else:
        click.echo(f"no schedule, and no run in {folder}; --config names a schedule: {NEW_SCHEDULE}", err=True)


@command.command()
@config_option
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def serve(config_file: str | None, log_level: str) -> int:
    """Run jobs on their schedule until SIGTERM or Ctrl-C, in one Spark session that stays open.

    A stop gives running jobs `stop.timeout.ms`, then cancels them; a second signal cancels them at once. Exit status:
    0 after a stop, 2 if the server could not start or a job did not end.
    """
    if not config_file:
        raise click.UsageError(f"--config FILE is missing; one to begin with: {NEW_SCHEDULE}")
    # Imported here: it imports Spark.
    from sparklog.jobs.schedule_config import load_server_config

    config = load_server_config(config_file)
    log_to_stderr(log_level, config.logging_format)
    for chatty in ("py4j", "apscheduler"):
        logging.getLogger(chatty).setLevel(logging.ERROR)  # the server logs their warnings more briefly
    return _serve(config)


def _serve(config: ServerConfig) -> int:
    from sparklog.base.metrics_http import MetricsServer
    from sparklog.jobs.metrics import JobCollector
    from sparklog.jobs.schedule import JobServer
    from sparklog.jobs.session import WarmSession, open_session

    stop, has_started = threading.Event(), threading.Event()

    def health() -> Health:
        return Health(not_ready="stopping" if stop.is_set() else "" if has_started.is_set() else "starting")

    session = WarmSession(lambda: open_session("sparklog jobs", conf=config.spark))
    server = JobServer(config, session)
    listener = Address.parse(config.metrics_listener, "metrics.listener") if config.metrics_listener else None
    metrics = MetricsServer(JobCollector(server), listener, health) if listener else None
    if metrics:
        metrics.start()
    try:
        server.start()
    except Exception as error:  # noqa: BLE001 - anything that keeps Spark from starting
        report_failed_start(logger, config.logging_format, f"sparklog: the jobs could not start: {reason(error)}")
        return COULD_NOT_RUN
    has_started.set()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.cancel() if stop.is_set() else stop.set())
    where = f"; metrics on {metrics.address}" if metrics else ""
    click.echo(f"sparklog jobs serves {len(config.schedules)} schedules{where}")
    server.wait(stop)  # a signal sets it
    return _stop_server(server, metrics)


def _stop_server(server: JobServer, metrics: MetricsServer | None) -> int:
    ended = server.stop()
    if metrics:
        metrics.stop()
    if not ended:
        # Python's exit would wait without limit for the thread of a job that does not end.
        logger.error("a job did not end when it was cancelled: leaving it")
        logging.shutdown()
        os._exit(COULD_NOT_RUN)
    return 0


@command.command()
@click.argument("name", type=click.Choice([*JOBS, "schedule"]))
def script(name: str) -> None:
    """Print the path of a job's script for spark-submit, or of the schedule's.

    \b
      spark-submit --master yarn "$(sparklog jobs script compaction)" --bootstrap broker:9094
      spark-submit "$(sparklog jobs script schedule)" --config jobs.toml

    A job's script takes the options of `sparklog jobs run`, the schedule's script those of `sparklog jobs serve`.
    """
    click.echo(SCRIPTS / f"{name}.py")


def submit(*arguments: str) -> NoReturn:
    """Run `sparklog jobs` with these arguments and the script's own, and exit; never return. The scripts call this."""
    sys.exit(run(["jobs", *arguments, *sys.argv[1:]]))


def _list_row(name: str | None, job: str, last: PastRun | None, schedule: Schedule | None) -> dict[str, object]:
    return {
        "schedule": name,
        "job": job,
        "cron": schedule.cron if schedule else None,
        "next_run": schedule.trigger.get_next_fire_time(None, datetime.now(UTC)) if schedule else None,
        "last_run": last.started if last else None,
        "outcome": last.outcome if last else None,
        "findings": last.findings if last else None,
        "seconds": last.seconds if last else None,
        "error": last.error if last else None,
    }


def _cell(value: object) -> object:
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value.partition("\n")[0]
    return f"{value:%Y-%m-%d %H:%M:%S %Z}" if isinstance(value, datetime) else value
