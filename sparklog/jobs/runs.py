"""Reads the table of runs, and the reports of compaction, without a JVM."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

INTERRUPTED = "interrupted"
OUTCOMES = ("ok", "findings", "could not run")
"""Names of the statuses 0, 1 and 2 of a run, which are its exit statuses too."""


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
        """How the run ended: one of OUTCOMES, or INTERRUPTED."""
        return INTERRUPTED if self.error == INTERRUPTED else OUTCOMES[self.status]

    @property
    def seconds(self) -> float:
        """How long the run took."""
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


class PastCompaction(NamedTuple):
    """The outcome of a run for one partition: some columns of a row in the report."""

    partition: int
    at: datetime
    outcome: str
    reason: str
    cleaned_offset: int | None
    """None if the partition was not compacted."""
    next_delete_horizon_ms: int | None
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int
    segments_before: int
    segments_after: int


class PastCompactions(NamedTuple):
    """The newest compactions of one partition."""

    last: PastCompaction
    last_done: PastCompaction | None
    """The last compaction that completed; it has the delete horizon."""


def past_compactions(table: str, topic: str) -> dict[int, PastCompactions]:
    """Return the newest compactions of a topic, by partition; empty if there is no table yet."""
    # Imported here: a Spark worker that imports a job does not need it.
    import pyarrow.dataset as ds
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        reports = DeltaTable(table).to_pyarrow_dataset()
    except TableNotFoundError:
        return {}
    found: dict[int, PastCompactions] = {}
    for batch in reports.to_batches(columns=list(PastCompaction._fields), filter=ds.field("topic") == topic):
        for row in batch.to_pylist():
            past = PastCompaction(**row)
            known = found.get(past.partition, PastCompactions(past, None))
            done = known.last_done
            if past.cleaned_offset is not None and (done is None or done.at < past.at):
                done = past
            found[past.partition] = PastCompactions(max(known.last, past, key=lambda it: it.at), done)
    return found
