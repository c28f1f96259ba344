"""Reading of the table of runs, without a JVM."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

INTERRUPTED = "interrupted"
OUTCOMES = ("ok", "findings", "could not run")
"""Names of the statuses 0, 1 and 2 of a run, which are its exit statuses, too."""


class PastRun(NamedTuple):
    """A run that has ended: some columns of its row in the table."""

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
    """Return the newest run by job and schedule (None: started by hand); empty if there is no table yet."""
    # Imported here: a Spark worker that imports a job does not need it.
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
