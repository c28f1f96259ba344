"""`sparklog jobs`: upkeep on Spark, once, by hand or by another scheduler (`run`), or on a schedule (`serve`)."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from sparklog.cli import run
from sparklog.cli.job_runs import run_command


@click.group("jobs")
def command() -> None:
    """Compaction, retention, offsets replay and the audit of replicas, which Spark does.

    \b
      sparklog jobs run compaction --dry-run
      sparklog jobs run compaction --master spark://host:7077
      spark-submit jobs/compaction.py
      sparklog jobs serve --config conf/jobs.toml
      sparklog jobs list --config conf/jobs.toml

    Exit status of a run: 0 done, 1 done with findings, 2 could not run.
    """


command.add_command(run_command)


def submit(*arguments: str) -> NoReturn:
    """What a script of jobs/ does: `sparklog jobs` with these arguments, and the script's own."""
    sys.exit(run(["jobs", *arguments, *sys.argv[1:]]))
