"""The audit of three live brokers: a finding for each planted fault, and none without faults."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pyspark.sql import Row

from sparklog.base.cluster_config import CLUSTER_STORE
from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin
from sparklog.cluster.partition_states import ISR_CHANGES, encode_state, read_states
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.topics import state_path
from sparklog.jobs.isr_audit import JOB
from sparklog.jobs.job import FINDINGS, OK, JobContext, run_job
from sparklog.jobs.options import parse_options
from sparklog.server.node import BrokerNode
from sparklog.testing import RunningCluster, start_cluster
from support.logs.faulty_replicas import flip, places, rewrite
from support.patience import PATIENCE_S, wait_until
from support.spark_topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SMALL = {"internal_segment_bytes": 20_000, "index_interval_bytes": 500}
MakeContext = Callable[..., JobContext]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("audited-cluster")
    quick: dict[str, Any] = {
        "replica_lag_time_max_ms": 1_000,
        "cluster_history_enable": True,
        "auto_leader_rebalance_enable": False,
    }
    with start_cluster(3, folder, **quick) as running:
        yield running


@pytest.fixture
def made(cluster: RunningCluster) -> Iterator[Topics]:
    topics = Topics(cluster)
    yield topics
    topics.close()


@pytest.fixture
def context(cluster: RunningCluster, make_context: MakeContext) -> JobContext:
    return make_context(client={"bootstrap_servers": cluster.bootstrap})


def audit(context: JobContext, **options: Any) -> tuple[int, set[tuple[Any, ...]], list[Row]]:
    run = run_job(JOB, context, parse_options(JOB, options))
    rows = run.rows.collect()
    found = {(row.outcome, row.kind, row.broker, row.topic, row.offset) for row in rows if row.outcome != "ok"}
    return run.status, found, rows


def folder(cluster: RunningCluster, broker: int, topic: str) -> Path:
    return cluster.data_dir / f"broker-{broker}" / f"{topic}-0"


def followers(cluster: RunningCluster, topic: str) -> list[int]:
    return sorted({1, 2, 3} - {cluster.leader_of(topic)})


def last_log(cluster: RunningCluster, broker: int, topic: str) -> Path:
    return sorted(folder(cluster, broker, topic).glob("*.log"))[-1]


def await_equal(cluster: RunningCluster, *topics: str) -> None:
    """Wait until all replicas have all records, and know that they are committed."""
    names = [TopicPartition(topic, 0) for topic in topics]

    def equal() -> bool:
        parts = [node.broker.services.replicas.get(name) for name in names for node in cluster.nodes.values()]
        ends = [(each.log.log_end_offset, each.partition.high_watermark) for each in parts]
        places = zip((each.partition.name for each in parts), ends, strict=True)
        return len({(name, offset) for name, both in places for offset in both}) == len(names)

    wait_until(equal, "all replicas are equal")


def test_each_fault_that_is_planted_in_live_brokers_is_found(
    cluster: RunningCluster, made: Topics, context: JobContext
) -> None:
    diverged, flipped, lagging, cut, sound = (made.create(**SMALL) for _ in range(5))
    for topic in (diverged, flipped, lagging, cut, sound):
        made.fill(topic, 1000, batches=20)
    await_equal(cluster, diverged, flipped, lagging, cut, sound)

    other = followers(cluster, diverged)[0]
    suffix = last_log(cluster, other, diverged)
    first_other = int(suffix.stem) + (len(places(suffix)) - 3) * 50
    for batch in range(len(places(suffix)) - 3, len(places(suffix))):
        rewrite(suffix, batch)
    damaged = followers(cluster, flipped)[1]
    oldest = sorted(folder(cluster, damaged, flipped).glob("*.log"))[0]
    flip(oldest, places(oldest)[2][0] + 100)
    behind = followers(cluster, lagging)[0]
    let_lag_in_isr(cluster, made, lagging, behind)
    short = followers(cluster, cut)[0]
    with last_log(cluster, short, cut).open("rb+") as log:
        log.truncate(places(last_log(cluster, short, cut))[-2][0])
    orphan = folder(cluster, 2, f"{sound}.forgotten")
    shutil.copytree(folder(cluster, 2, sound), orphan)

    try:
        status, found, rows = audit(context)
    finally:
        shutil.rmtree(orphan)

    assert status == FINDINGS
    assert found == {
        ("critical", "diverged", other, diverged, first_other),
        ("critical", "corrupt_batch", damaged, flipped, 100),
        ("critical", "lagging_in_isr", behind, lagging, 1000),
        ("critical", "hw_above_end", short, cut, 900),
        ("critical", "missing_batch", short, cut, 900),
        ("warning", "orphan_folder", 2, f"{sound}.forgotten", None),
    }
    [decided] = [json.loads(row.decided) for row in rows if row.kind == "lagging_in_isr"]
    assert decided["kind"] == "ISR changed"
    assert behind in decided["previous_isr"]
    assert behind not in decided["isr"]
    made.admin.delete_topics([diverged, flipped, lagging, cut, sound])  # whoever audits all of the cluster next


def let_lag_in_isr(cluster: RunningCluster, made: Topics, topic: str, broker: int) -> None:
    """Stop one follower's fetching until it leaves the ISR, then write it into the ISR again."""
    name = TopicPartition(topic, 0)
    services = cluster.nodes[broker].broker.services
    cluster.run(services.fetchers.unfollow([name]))
    made.fill(topic, 200)
    leader = cluster.nodes[cluster.leader_of(topic)].broker.services

    wait_until(lambda: leader.replicas.get(name).partition.high_watermark == 1200, f"{broker} is out of the ISR")
    store = SqliteStore.open(str(cluster.data_dir / CLUSTER_STORE))
    state = read_states(store, [name])[name]
    assert broker not in state.isr
    store.set(state_path(*name), encode_state(structs.replace(state, isr=(*state.isr, broker))), state.version)
    notice = b'{"version":1,"partitions":[{"topic":"%s","partition":0}]}' % topic.encode()
    store.create(f"{ISR_CHANGES}/isr_change_", notice, sequential=True)
    store.close()

    wait_until(
        lambda: all(broker in isr_of(node, name) for node in cluster.nodes.values()), "all believe it is in the ISR"
    )


def isr_of(node: BrokerNode, name: TopicPartition) -> tuple[int, ...]:
    return tuple(node.broker.services.metadata.get(name.topic).partitions[name.partition].in_sync_replicas)


@pytest.mark.soak_only
def test_nothing_is_found_under_load_while_a_leader_fails_and_partitions_move(
    cluster: RunningCluster, made: Topics, make_context: MakeContext
) -> None:
    """A broker is restarted and replicas are moved away once it is planned what to read, and back before the second
    reading. Of a log in pieces some may have been read by then; one in one piece is gone.
    """
    steady = made.create(**SMALL)
    two = (f"{steady}-in-pieces", f"{steady}-in-one-piece")
    client = {"bootstrap_servers": cluster.bootstrap}
    with Admin(**client) as admin:
        for topic, configs in zip(two, ({"internal.segment.bytes": "20000"}, {}), strict=True):
            admin.create_topic(topic, replication_factor=2, configs=configs)
        here = {topic.name: topic.partitions[0].replicas for topic in admin.describe_topics(two)}
        away = {topic: [*({1, 2, 3} - set(brokers)), brokers[0]] for topic, brokers in here.items()}
        told: list[str] = []

        def disturb(text: str) -> None:
            told.append(text)
            if len(told) == 1:
                restart_leader_and_move(away)
            elif text.startswith("reading again"):
                restart_leader_and_move(here)

        def restart_leader_and_move(targets: Mapping[str, Sequence[int]]) -> None:
            leader = cluster.leader_of(steady)
            cluster.stop_broker(leader)
            cluster.start_broker(leader)
            moves = {TopicPartition(topic, 0): brokers for topic, brokers in targets.items()}
            assert not any(admin.alter_partition_reassignments(moves).values())
            wait_until(lambda: not admin.list_partition_reassignments(), "the replicas have moved")

        with Writer(made, steady, *two) as writer:
            status, found, rows = audit(make_context(client=client, say=disturb), topics=[steady, *two])
            assert not writer.failed
        assert (status, found) == (OK, set()), [row.reason for row in rows]
        assert told[0].startswith("reading ")
        assert any(text.startswith("reading again") for text in told)
        assert {row.topic for row in rows} == {steady, *two}
        assert {topic.name: set(topic.partitions[0].replicas) for topic in admin.describe_topics(two)} == {
            topic: set(brokers) for topic, brokers in here.items()
        }
    await_equal(cluster, steady)
    assert audit(make_context(client=client), topics=[steady, *two, "__cluster_history"])[:2] == (OK, set())


class Writer:
    """Appends to topics for as long as it is told."""

    def __init__(self, topics: Topics, *names: str) -> None:
        self.failed: list[BaseException] = []
        self._topics, self._names = topics, names
        self._stop, self._has_begun = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writer:
        self._thread.start()
        assert self._has_begun.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        rounds = 0
        try:
            while not self._stop.wait(0.2):
                for name in self._names:
                    self._topics.fill(name, 200, batches=4)
                rounds += 1
                if rounds == 3:
                    self._has_begun.set()
        except SparklogError as error:
            self.failed.append(error)
            self._has_begun.set()
