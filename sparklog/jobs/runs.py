"""What the table of runs says, read without a JVM."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

INTERRUPTED = "interrupted"
OUTCOMES = ("ok", "findings", "could not run")
"""What a run's status, which is its exit status too, is called."""


class PastRun(NamedTuple):
    """A run that is over: a row of the table, some of its columns."""

    job: str
    schedule: str | None
    run_id: str
    started: datetime
    ended: datetime
    status: int
    findings: int
    error: str | None

    @property
    def outcome(self) -> str:
        return INTERRUPTED if self.error == INTERRUPTED else OUTCOMES[self.status]

    @property
    def seconds(self) -> float:
        return (self.ended - self.started).total_seconds()


def last_runs(table: str) -> dict[tuple[str, str | None], PastRun]:
    """The newest run of each job by each schedule, None being by hand; of none where there is no table yet."""
    # Loaded here: a Spark worker that loads a job has no use for it.
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        runs = DeltaTable(table)
    except TableNotFoundError:
        return {}
    newest: dict[tuple[str, str | None], PastRun] = {}
    for batch in runs.to_pyarrow_dataset().to_batches(columns=list(PastRun._fields)):
        for row in batch.to_pylist():
            run = PastRun(**row)
            known = newest.get((run.job, run.schedule))
            if known is None or known.started < run.started:
                newest[run.job, run.schedule] = run
    return newest
