"""Jobs on three brokers, one of which is killed: other brokers lead its partitions, and no work is done twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Producer
from sparklog.jobs import archiving, compaction, offset_replay, retention
from sparklog.jobs.job import OK, Job, JobContext, Run, run_job
from sparklog.jobs.options import parse_options
from sparklog.spark.compaction.compaction import compact
from support.jobs.compactions import consume, newest
from support.names import unique
from support.processes.cluster import ClusterProcesses, partitions_of

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(900)]

PARTITIONS = 3
OFFSETS = "__consumer_offsets"
MakeContext = Callable[..., JobContext]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {"log_retention_check_interval_ms": 3_600_000, "cluster_store_session_timeout_ms": 6_000}
    with ClusterProcesses(tmp_path_factory.mktemp("upkeep"), **settings) as running:
        yield running


@pytest.fixture
def cluster(processes: ClusterProcesses) -> ClusterProcesses:
    processes.make_whole()
    return processes


@pytest.fixture
def context(cluster: ClusterProcesses, make_context: MakeContext) -> JobContext:
    return make_context(client={"bootstrap_servers": cluster.grpc, "request_timeout_ms": 5_000})


def run(job: Job, context: JobContext, **options: Any) -> Run:
    return run_job(job, context, parse_options(job, options))


def create(cluster: ClusterProcesses, purpose: str, **configs: str) -> str:
    """A topic of the test's own, with a leader on each broker."""
    topic = unique(purpose)
    names = {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(bootstrap_servers=cluster.grpc) as admin:
        admin.create_topic(topic, partitions=PARTITIONS, configs={"internal.segment.bytes": "10000", **names})
    assert {cluster.leader(topic, number) for number in range(PARTITIONS)} == {1, 2, 3}
    return topic


def fill(cluster: ClusterProcesses, topic: str, rounds: int = 12, keys: int = 100) -> None:
    """Write so many batches with repeated keys to each partition, all but the last in closed segments."""
    rng = random.Random(topic)
    with Producer(bootstrap_servers=cluster.grpc, linger_ms=0) as producer:
        for _ in range(rounds):
            for number in range(PARTITIONS):
                chosen = [f"k{rng.randrange(keys)}" for _ in range(50)]
                rows = pa.table({"key": chosen, "value": [f"{rng.random():.17f}" * 2 for _ in chosen]})
                producer.send_table(topic, rows, partition=number).result(60)


def killing(broker: Callable[[], None], then: Callable[..., Any]) -> Callable[..., Any]:
    """Return `then`, preceded at its first call by the kill of a broker."""
    left = [broker]

    def call(*arguments: Any, **named: Any) -> Any:
        if left:
            left.pop()()
        return then(*arguments, **named)

    return call


def log_starts(cluster: ClusterProcesses, topic: str) -> list[int]:
    return [part.log_start_offset for part in sorted(cluster.topic(topic).partitions, key=lambda part: part.partition)]


def bring_back(cluster: ClusterProcesses, broker: int, *topics: str) -> None:
    cluster.brokers[broker].start()
    cluster.wait_for_brokers(3)
    cluster.wait_for_isr(3, *topics)
    with Admin(bootstrap_servers=cluster.grpc) as admin:
        admin.elect_leaders([name for topic in topics for name in partitions_of(topic, PARTITIONS)])


def test_compaction_goes_on_with_who_leads_after_a_leader_was_killed(
    cluster: ClusterProcesses, context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create(cluster, "keyed", cleanup_policy="compact")
    fill(cluster, topic)
    before = [newest(consume(cluster.grpc, topic, number)) for number in range(PARTITIONS)]
    victim = cluster.leader(topic, 0)

    with monkeypatch.context() as patched:
        patched.setattr(compaction, "compact", killing(cluster.brokers[victim].kill, compact))
        done = run(compaction.JOB, context, topics=[topic], force=True)

    rows = done.rows.collect()
    assert (done.status, {row.partition: row.outcome for row in rows}) == (OK, dict.fromkeys(range(3), "compacted"))
    assert all(row.records_after < row.records_before for row in rows)
    assert [newest(consume(cluster.grpc, topic, number)) for number in range(PARTITIONS)] == before
    bring_back(cluster, victim, topic)
    again = run(compaction.JOB, context, topics=[topic], force=True)
    assert again.status == OK
    assert [newest(consume(cluster.grpc, topic, number)) for number in range(PARTITIONS)] == before


@pytest.mark.parametrize(
    ("module", "step"),
    [(archiving, "archive"), pytest.param(retention, "_delete", marks=pytest.mark.soak_only)],
    ids=["archive", "delete"],
)
def test_what_is_archived_is_archived_once_and_only_that_is_deleted_when_a_leader_is_killed(
    cluster: ClusterProcesses,
    context: JobContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    step: str,
) -> None:
    uri = str(tmp_path / "archive")
    topic = create(cluster, "kept", retention_archive=uri, retention_bytes="15000")
    fill(cluster, topic)
    victim = cluster.leader(topic, 1)

    with monkeypatch.context() as patched:
        patched.setattr(module, step, killing(cluster.brokers[victim].kill, getattr(module, step)))
        done = run(retention.JOB, context, topics=[topic])

    outcomes = {row.partition: row.outcome for row in done.rows.collect()}
    assert (done.status, outcomes) == (OK, dict.fromkeys(range(PARTITIONS), "done"))
    starts = log_starts(cluster, topic)
    assert all(starts)
    check_archive(uri, starts)
    bring_back(cluster, victim, topic)
    version = DeltaTable(uri).version()
    # Who was away and leads at once may not have heard of what was deleted: it is deleted again, and not archived.
    again = run(retention.JOB, context, topics=[topic])
    assert (again.status, sum(row.archived_records for row in again.rows.collect())) == (OK, 0)
    assert (DeltaTable(uri).version(), log_starts(cluster, topic)) == (version, starts)


def check_archive(uri: str, starts: list[int]) -> None:
    """Check that the archive has each offset once, from the first on, and at least those that the logs lack."""
    table = DeltaTable(uri).to_pyarrow_table(columns=["partition", "offset"])
    for number, start in enumerate(starts):
        offsets = sorted(row["offset"] for row in table.to_pylist() if row["partition"] == number)
        assert offsets == list(range(len(offsets)))
        assert len(offsets) >= start


def test_offsets_are_replayed_and_snapshots_go_to_who_leads_after_a_coordinator_was_killed(
    cluster: ClusterProcesses, context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create(cluster, "any")
    groups = [f"{topic}-group-{number}" for number in range(12)]
    place = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=cluster.grpc) as admin:
        for offset in range(5):
            for group in groups:
                admin.alter_group_offsets(group, {place: offset})
    victim = cluster.coordinator(groups[0])

    with monkeypatch.context() as patched:
        install = killing(cluster.brokers[victim].kill, offset_replay._install_snapshots)
        patched.setattr(offset_replay, "_install_snapshots", install)
        done = run(offset_replay.JOB, context, snapshot_after=1)

    rows = done.rows.collect()
    assert done.status == OK, rows
    assert {row.outcome for row in rows} <= {"read", "unchanged"}
    assert all(row.snapshot_bytes for row in rows if row.outcome == "read")
    history = context.spark.read.format("delta").load(context.table("consumer_offsets_history"))
    commits = history.where(history.topic == topic)
    assert commits.count() == commits.dropDuplicates(["log_partition", "log_offset"]).count() == 5 * len(groups)
    bring_back(cluster, victim, topic, OFFSETS)
    with Admin(bootstrap_servers=cluster.grpc) as admin:
        for group in groups:
            assert admin.list_group_offsets(group)[place].offset == 4
    assert run(offset_replay.JOB, context, snapshot_after=1).status == OK
    assert commits.count() == 5 * len(groups)
