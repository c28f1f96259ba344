"""Reading of the reports of compaction, without a JVM."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


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
