"""NoteJobRun: count a job run in the broker's metrics, and record it in the cluster's history (`cluster/history.py`).

- The response comes at once; the record is written a little later. Without cluster.history.enable it is only counted.
- A request that is repeated after a lost answer is counted and recorded twice, with the same `run_id`.
"""

from __future__ import annotations

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.broker.api import Api
from sparklog.broker.cluster_history import ClusterHistory
from sparklog.broker.metrics import JobRun, Metrics
from sparklog.broker.rights import on_cluster
from sparklog.cluster.history import HistoryKind


class NoteJobRunRequest(Struct, frozen=True, kw_only=True):
    job: str
    run_id: str
    started_ms: int
    status: int
    rows: int
    findings: int
    error: str | None = None
    schedule: str | None = None


class NoteJobRunResponse(Struct, frozen=True, kw_only=True):
    pass


async def handle(request: NoteJobRunRequest, *, history: ClusterHistory, metrics: Metrics) -> NoteJobRunResponse:
    """Count and record the run; the answer is empty."""
    metrics.job_ran(request.schedule or "", request.job, JobRun(request.started_ms, request.status, request.findings))
    history.note(
        HistoryKind.JOB_RUN,
        job=request.job,
        run_id=request.run_id,
        started_ms=request.started_ms,
        status=request.status,
        rows=request.rows,
        findings=request.findings,
        error=request.error,
        schedule=request.schedule,
    )
    return NoteJobRunResponse()


API = Api(name="NoteJobRun", handle=handle, rights=(on_cluster(AclOperation.CLUSTER_ACTION),))
