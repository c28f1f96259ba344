"""The source on three brokers whose leaders change: each record exactly once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Maintenance
from sparklog.spark.source.scan import FetchTask, FilesTask
from sparklog.testing import RunningCluster, start_cluster
from support.spark_topics import Topics, make_reader, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("read-cluster")
    with start_cluster(3, folder, auto_leader_rebalance_enable=False, replica_lag_time_max_ms=1_000) as running:
        yield running


@pytest.fixture
def made(cluster: RunningCluster) -> Iterator[Topics]:
    topics = Topics(cluster)
    yield topics
    topics.close()


def fill(topics: Topics, count: int) -> str:
    """A topic with so many records in each partition, in several segments."""
    topic = topics.create(PARTITIONS, internal_segment_bytes=5_000)
    for number in range(PARTITIONS):
        topics.fill(topic, count, partition=number, batches=10)
    return topic


def options(cluster: RunningCluster, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, **more}


@pytest.mark.parametrize("mode", ["auto", "segments", "fetch"])
def test_what_was_planned_is_read_though_its_leader_has_gone(cluster: RunningCluster, made: Topics, mode: str) -> None:
    topic = fill(made, 500)
    reader = make_reader(options(cluster, topic, readMode=mode))
    tasks = reader.partitions()
    assert {type(task) for task in tasks} == {FetchTask if mode == "fetch" else FilesTask}
    leader = cluster.leader_of(topic, 1)
    cluster.stop_broker(leader)
    try:
        for planned in (tasks, reader.partitions()):  # before the leader went, and after
            places = sorted((row["partition"], row["offset"]) for row in rows_of(reader, planned))
            assert places == [(number, offset) for number in range(PARTITIONS) for offset in range(500)]
    finally:
        cluster.start_broker(leader)


def test_files_are_those_of_the_leader_never_of_a_replica_that_lags(cluster: RunningCluster, made: Topics) -> None:
    topic = fill(made, 100)
    name = TopicPartition(topic, 0)
    leader = cluster.leader_of(topic)
    for broker in {1, 2, 3} - {leader}:
        if broker != min({1, 2, 3} - {leader}):
            cluster.run(cluster.nodes[broker].broker.services.fetchers.unfollow([name]))
    made.fill(topic, 50)
    tasks = make_reader(options(cluster, topic, readMode="segments")).partitions()
    folders = {task.folder for task in tasks if task.partition == name}
    assert folders == {str(cluster.data_dir / f"broker-{leader}" / f"{topic}-0")}
    assert len(rows_of(make_reader(options(cluster, topic)), tasks)) == 100 * PARTITIONS + 50
    with Maintenance(bootstrap_servers=cluster.bootstrap) as maintenance:
        replicas = [log for log in maintenance.describe_replicas() if log.partition == name]
    assert sorted(log.broker_id for log in replicas) == [1, 2, 3]
    assert [log.broker_id for log in replicas if log.is_leader] == [leader]
