"""Examples for other schedulers: their commands and times are valid."""

from __future__ import annotations

import runpy
import shlex
from pathlib import Path

from click.testing import CliRunner

from sparklog.cli import cli
from sparklog.jobs.cron import parse_cron
from sparklog.jobs.table import JOBS

EXAMPLES = Path(__file__).parents[2] / "examples"


def check_command(command: list[str]) -> str:
    """Return the job of a command line. Parse all of the line, without running it."""
    assert command[:3] == ["sparklog", "jobs", "run"]
    asked = CliRunner().invoke(cli, [*command[1:], "--help"])
    assert asked.exit_code == 0, asked.output
    return command[3]


def test_the_crontab_runs_every_job():
    lines = [line for line in (EXAMPLES / "crontab").read_text().splitlines() if line[:1] in "*0123456789" and line]
    jobs = []
    for line in lines:
        *fields, rest = line.split(maxsplit=5)
        parse_cron(" ".join(fields), "UTC")
        command = shlex.split(rest.partition("||")[0])
        assert command[:2] == ["flock", "-n"]
        jobs.append(check_command(command[3:]))
    assert jobs == list(JOBS)


def test_the_airflow_dag_is_python_without_airflow_and_runs_jobs_that_there_are():
    dag = runpy.run_path(str(EXAMPLES / "airflow_dag.py"), run_name="__main__")
    for job in JOBS:
        assert check_command(dag["command"](job)) == job
