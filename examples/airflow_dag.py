"""sparklog's jobs as an Airflow DAG: copy it into the DAGs folder of a machine that has sparklog installed.

Retention, compaction and the replay of offsets run every hour, one after the other; the audit runs at night. For the
jobs archive and latest, which run every few minutes, a warm session (`sparklog jobs serve`) is better. A failed run
(exit status 2) is retried. Findings (1) fail the task at once, because a retry changes nothing. To use a Spark cluster,
set `MASTER`: each task is then a Spark driver, on its Airflow worker.
"""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.models.dag import DAG

BOOTSTRAP = "127.0.0.1:9094"
REPORTS = "/var/lib/sparklog/reports"
MASTER = "local[*]"
FINDINGS = 1
DEFAULTS: dict[str, Any] = {
    "retries": 2,
    "retry_delay": timedelta(minutes=5),
    "execution_timeout": timedelta(hours=2),
}


def command(job: str) -> list[str]:
    """Return the command of a task."""
    shared = ["--bootstrap", BOOTSTRAP, "--reports", REPORTS, "--master", MASTER]
    return ["sparklog", "jobs", "run", job, *shared]


def run(job: str) -> None:
    """Run a job; its output is the task's log."""
    from airflow.exceptions import AirflowFailException

    status = subprocess.run(command(job), check=False).returncode
    if status == FINDINGS:
        raise AirflowFailException(f"{job} has findings: see {REPORTS}/{job}")
    if status:
        raise RuntimeError(f"{job} could not run: exit status {status}")


def make_dag(name: str, cron: str, jobs: list[str]) -> DAG:
    """Return a DAG that runs the jobs one by one, also after a failure of one; runs of the DAG do not overlap."""
    from airflow import DAG
    from airflow.operators.python import PythonOperator

    start = datetime(2026, 1, 1)
    one = {"max_active_runs": 1, "max_active_tasks": 1, "catchup": False}
    with DAG(name, schedule=cron, start_date=start, default_args=DEFAULTS, **one) as dag:
        for job in jobs:
            PythonOperator(task_id=job, python_callable=run, op_args=[job])
    return dag


if __name__ != "__main__":  # Airflow imports this file; run as a script, it only loads
    upkeep = make_dag("sparklog_upkeep", "5 * * * *", ["retention", "compaction", "offset_replay"])
    audit = make_dag("sparklog_audit", "30 3 * * *", ["isr_audit"])
