"""All jobs by name. The list imports no job: a job's module imports Spark's Python packages."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from sparklog.base.config_keys import nearest
from sparklog.base.errors import ConfigError
from sparklog.base.extras import advice

if TYPE_CHECKING:
    from sparklog.jobs.job import Job

JOBS = {
    "compaction": "Keep the newest record of every key, in topics with cleanup.policy=compact.",
    "archive": "Keep the Delta tables of topics with retention.archive no further behind than a target.",
    "latest": "Keep Delta tables of the newest record of each key of compacted topics no further behind than a target.",
    "retention": "Delete what is too old or too much, archived to Delta first where a topic says so.",
    "offset_replay": "The offsets topic as Delta tables, and snapshots that coordinators load.",
    "isr_audit": "Compare what brokers and the store say with the bytes of every replica.",
}


def load_job(name: str) -> Job:
    """Return the job of that name (hyphens count as underscores), or a user's own job, given as MODULE:NAME.

    Raises ConfigError if there is no such job.
    """
    module, colon, attribute = name.partition(":")
    if colon:
        return _import_job(module, attribute)
    known = name.replace("-", "_")
    if known not in JOBS:
        raise ConfigError(f"no job {name!r}{nearest(known, JOBS) or '; there are ' + ', '.join(JOBS)}")
    return _import_job(f"sparklog.jobs.{known}", "JOB")


def _import_job(module: str, attribute: str) -> Job:
    try:
        job: Job = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ConfigError(advice(error) or f"{module}: {error}") from error
    except AttributeError:
        raise ConfigError(f"{module} has no {attribute}") from None
    return job
