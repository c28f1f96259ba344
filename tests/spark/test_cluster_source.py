"""The source over three brokers whose leaders go and come: nothing is missing, nothing twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from reading import Topics, make_reader, rows_of

from sparklog.base.ids import TopicPartition
from sparklog.client import Maintenance
from sparklog.spark.scan import FetchTask, FilesTask
from sparklog.testing import RunningCluster, start_cluster

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


class Rolling:
    """Stops and starts one broker after the other, for as long as it is told."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rounds = 0

    def __enter__(self) -> Rolling:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for broker in (1, 2, 3):
                self._cluster.stop_broker(broker)
                self._cluster.start_broker(broker)
            self.rounds += 1


def test_a_stream_and_a_write_go_on_while_leaders_change(
    spark: SparkSession, cluster: RunningCluster, made: Topics, tmp_path: Path
) -> None:
    source, target = fill(made, 300), made.create(PARTITIONS)
    stream = spark.readStream.format("sparklog").options(**options(cluster, source), startingOffsets="earliest")
    copied = stream.load().selectExpr("value", "partition")
    writing = copied.writeStream.format("sparklog").option("kafka.bootstrap.servers", cluster.bootstrap)
    writing = writing.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with Rolling(cluster) as rolling:
        query = writing.trigger(processingTime="200 milliseconds").start()
        try:
            for _ in range(5):
                for number in range(PARTITIONS):
                    made.fill(source, 100, partition=number, batches=5)
                query.processAllAvailable()
        finally:
            query.stop()
    assert rolling.rounds
    read = spark.read.format("sparklog")
    sent, got = (read.options(**options(cluster, topic)).load() for topic in (source, target))
    assert sent.count() == PARTITIONS * (300 + 5 * 100)
    assert sent.select("partition", "value").exceptAll(got.select("partition", "value")).isEmpty()
    assert got.count() == sent.count()
