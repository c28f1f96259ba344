"""The compaction job on three brokers: it cleans the leader's log, and all replicas end as the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Producer
from sparklog.jobs import compaction
from sparklog.jobs.job import OK, run_job
from sparklog.jobs.options import parse_options
from sparklog.testing import start_cluster
from sparklog.testing.cluster import RunningCluster
from support.jobs.compactions import consume, newest
from support.patience import PATIENCE_S, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
TOPIC = "departures"


@pytest.fixture
def departures(monkeypatch: pytest.MonkeyPatch):
    """The module of the examples that has the data."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return pytest.importorskip("departures")


def files_of(cluster: RunningCluster) -> list[dict[str, bytes]]:
    """Return the batches of each broker's replica by file name, without files that wait for their deletion."""
    return [
        {path.name: path.read_bytes() for path in Path(cluster.data_dir).glob(f"*-{broker}/**/{TOPIC}-0/*.log")}
        for broker in sorted(cluster.nodes)
    ]


def wait_for_equal_files(cluster: RunningCluster) -> dict[str, bytes]:
    def equal() -> dict[str, bytes] | None:
        first, *others = files_of(cluster)
        return first if all(files == first for files in others) else None

    return wait_until(equal, "the files are equal", tell=lambda: [*map(sorted, files_of(cluster))], every_s=0.1)


@pytest.mark.slow
def test_departures_are_compacted_once_and_all_replicas_are_the_same_files(make_context, tmp_path, departures) -> None:
    configs = {"cleanup.policy": "compact", "segment.bytes": str(8 << 20), "file.delete.delay.ms": "1000"}
    with start_cluster(3, tmp_path / "cluster") as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1, configs=configs)
        table = departures.load()
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for start in range(0, table.num_rows, 20_000):
                producer.send_table(TOPIC, table.slice(start, 20_000), partition=0).result(PATIENCE_S)
        for node in cluster.nodes.values():
            assert node.broker.services.replicas.get(TopicPartition(TOPIC, 0))
        before = wait_for_equal_files(cluster)
        rows = newest(consume(cluster.bootstrap, TOPIC))
        context = make_context(client={"bootstrap_servers": cluster.bootstrap})

        done = run_job(compaction.JOB, context, parse_options(compaction.JOB, {"topics": [TOPIC], "force": True}))
        assert (done.status, [row.outcome for row in done.rows.collect()]) == (OK, ["compacted"])
        after = wait_for_equal_files(cluster)
        assert len(after) < len(before)
        assert sum(map(len, after.values())) < sum(map(len, before.values())) / 2

        leader = cluster.leader_of(TOPIC)
        cluster.stop_broker(leader)
        assert cluster.leader_of(TOPIC) != leader
        assert newest(consume(cluster.bootstrap, TOPIC)) == rows
        cluster.start_broker(leader)
        assert wait_for_equal_files(cluster) == after
