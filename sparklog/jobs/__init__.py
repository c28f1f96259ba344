"""Maintenance jobs on Spark: each plans, applies and reports. One file for each job; `job` has their common part.

    plan      returns a DataFrame with one row for each piece of work and its reason; --dry-run stops here
    apply     does the work, and can be repeated after any crash; returns a DataFrame with the outcome of each piece
    report    appends these rows to a Delta table

Run a job with `sparklog jobs run NAME`, `spark-submit jobs/NAME.py`, or on a schedule with `sparklog jobs serve`.
`table` lists the jobs by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.base.lazy import lazy

__all__ = ["JOBS", "Job", "JobContext", "Options", "Run", "load_job", "parse_options", "run_job"]

_MODULES = {
    "JOBS": "sparklog.jobs.table",
    "Job": "sparklog.jobs.job",
    "JobContext": "sparklog.jobs.job",
    "Options": "sparklog.jobs.job",
    "Run": "sparklog.jobs.job",
    "load_job": "sparklog.jobs.table",
    "parse_options": "sparklog.jobs.options",
    "run_job": "sparklog.jobs.job",
}

if TYPE_CHECKING:
    from sparklog.jobs.job import Job, JobContext, Options, Run, run_job
    from sparklog.jobs.options import parse_options
    from sparklog.jobs.table import JOBS, load_job
else:
    # A list of the jobs needs no Spark.
    __getattr__, __dir__ = lazy(__name__, _MODULES, __all__)
