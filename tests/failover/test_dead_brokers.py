"""Brokers that die, hang and come back, on both kinds of cluster store, while clients write: nothing that was
acknowledged is lost, nothing is there twice, and each producer's records keep their order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from sparklog.client import Admin
from support.clients.group_reader import GroupReader
from support.clients.writers import (
    PARTITIONS,
    TOPIC,
    AiokafkaWriter,
    GrpcWriter,
    JavaWriter,
    KafkaPythonWriter,
    LibrdkafkaWriter,
    Writer,
    Writing,
)
from support.processes.cluster import ClusterProcesses
from support.processes.zookeeper import ZooKeeperServer
from support.runs.seeds import seeds

pytestmark = [pytest.mark.slow, pytest.mark.soak]
LONGER_THAN_A_SESSION_S = 5.0
Choose = Callable[[ClusterProcesses], int]
on_sqlite = pytest.mark.parametrize(
    "cluster", ["sqlite", pytest.param("zookeeper", marks=(pytest.mark.jvm, pytest.mark.soak_only))], indirect=True
)
on_zookeeper = pytest.mark.parametrize(
    "cluster",
    [pytest.param("sqlite", marks=pytest.mark.soak_only), pytest.param("zookeeper", marks=pytest.mark.jvm)],
    indirect=True,
)
"""The store of `make test`; soaks run on both."""


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterProcesses]:
    if request.param == "sqlite":
        with ClusterProcesses(tmp_path) as running:
            yield with_topic(running)
        return
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    try:
        with ClusterProcesses(tmp_path, zookeeper=server.address) as running:
            running.zookeeper = server
            yield with_topic(running)
    finally:
        server.stop()


def with_topic(cluster: ClusterProcesses) -> ClusterProcesses:
    with Admin(bootstrap_servers=cluster.grpc) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
    cluster.wait_for_isr(3, TOPIC)
    return cluster


def leader(cluster: ClusterProcesses) -> int:
    return cluster.leader(TOPIC, 0)


def controller(cluster: ClusterProcesses) -> int:
    return cluster.controller()


def coordinator(cluster: ClusterProcesses) -> int:
    return cluster.coordinator(GroupReader.GROUP)


EVERYBODY: tuple[Choose, ...] = (leader, controller, coordinator)
CLIENTS: tuple[type[Writer], ...] = (GrpcWriter, LibrdkafkaWriter)


@on_zookeeper
def test_leader_controller_and_coordinator_are_killed_in_turn_and_come_back(cluster: ClusterProcesses) -> None:
    with GroupReader(cluster) as reader:
        with Writing(cluster, *CLIENTS) as writing:
            reader.wait_for_progress()
            for who in EVERYBODY:
                victim = cluster.brokers[who(cluster)]
                victim.kill()
                writing.wait_for_progress()
                reader.wait_for_progress()
                victim.start()
                cluster.wait_for_isr(3, TOPIC)
                writing.wait_for_progress()
        reader.check(writing)


@on_sqlite
def test_leader_controller_and_coordinator_hang_in_turn_for_longer_than_a_session_and_go_on(
    cluster: ClusterProcesses,
) -> None:
    with GroupReader(cluster) as reader:
        with Writing(cluster, *CLIENTS) as writing:
            reader.wait_for_progress()
            for who in EVERYBODY:
                victim = cluster.brokers[who(cluster)]
                victim.pause()
                writing.wait_for_progress()
                cluster.wait_for_brokers(2)  # it is to come back as one that knows nothing of the end of its session
                victim.resume()
                cluster.wait_for_isr(3, TOPIC)
                writing.wait_for_progress()
        reader.check(writing)


@on_sqlite
def test_every_broker_is_stopped_and_started_in_turn(cluster: ClusterProcesses) -> None:
    with GroupReader(cluster) as reader:
        with Writing(cluster, GrpcWriter, LibrdkafkaWriter) as writing:
            for broker in cluster.brokers.values():
                broker.stop()
                writing.wait_for_progress()
                broker.start()
                cluster.wait_for_isr(3, TOPIC)
        reader.check(writing)


def test_all_brokers_are_killed_at_once_and_come_back(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster, GroupReader(with_topic(cluster)) as reader:
        with Writing(cluster, *CLIENTS) as writing:
            reader.wait_for_progress()
            for broker in cluster.brokers.values():
                broker.kill()
            for broker in cluster.brokers.values():
                broker.launch()
            for broker in cluster.brokers.values():
                broker.await_ready()
            writing.wait_for_progress()
            cluster.wait_for_isr(3, TOPIC)
        reader.check(writing)


@pytest.mark.parametrize("seed", seeds(1, soak=4))
def test_one_broker_after_another_dies_or_hangs_while_the_one_before_still_catches_up(
    tmp_path: Path, seed: int
) -> None:
    chance = Random(seed)
    with ClusterProcesses(tmp_path) as cluster, Writing(with_topic(cluster), *CLIENTS) as writing:
        for _ in range(4):
            victim = cluster.brokers[chance.choice((leader, controller))(cluster)]
            if chance.random() < 0.5:
                victim.kill()
                victim.start()
            else:
                victim.pause()
                time.sleep(chance.uniform(0.5, 4))
                victim.resume()
        writing.wait_for_progress()
        cluster.wait_for_isr(3, TOPIC)


@pytest.mark.jvm
def test_other_clients_of_kafka_get_over_the_death_of_a_leader(tmp_path: Path) -> None:
    clients = (KafkaPythonWriter, AiokafkaWriter, JavaWriter)
    with ClusterProcesses(tmp_path) as cluster, Writing(with_topic(cluster), *clients) as writing:
        victim = leader(cluster)
        cluster.brokers[victim].kill()
        writing.wait_for_progress()
        cluster.brokers[victim].start()
        cluster.wait_for_isr(3, TOPIC)
        writing.wait_for_progress()


def wait_for_the_controller(cluster: ClusterProcesses) -> None:
    """Until it can make a topic, and all replicas are in sync.

    Brokers that have lost their sessions leave the ISR for a moment: nobody can take over from a leader that dies then.
    """

    def has_made_a_topic() -> bool:
        with Admin(bootstrap_servers=cluster.grpc) as admin:
            if "afterwards" not in {each.name for each in admin.list_topics()}:
                admin.create_topic("afterwards")
        return True

    cluster.wait_for_brokers(3)
    cluster.wait(has_made_a_topic, "the controller has made a topic")
    cluster.wait_for_isr(3, "afterwards", TOPIC)


@pytest.mark.jvm
@pytest.mark.parametrize("cluster", ["zookeeper"], indirect=True)
@pytest.mark.parametrize("how", ["killed", pytest.param("paused", marks=pytest.mark.soak_only)])
def test_records_are_written_though_zookeeper_is_away(cluster: ClusterProcesses, how: str) -> None:
    server = cluster.zookeeper
    assert isinstance(server, ZooKeeperServer)
    with Writing(cluster, *CLIENTS) as writing:
        server.kill() if how == "killed" else server.pause()
        writing.wait_for_progress()
        time.sleep(LONGER_THAN_A_SESSION_S)
        server.start() if how == "killed" else server.resume()
        wait_for_the_controller(cluster)
        writing.wait_for_progress()
        cluster.brokers[leader(cluster)].kill()
        writing.wait_for_progress()
