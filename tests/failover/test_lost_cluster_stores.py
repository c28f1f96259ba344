"""Three broker processes that are killed and lose their cluster store: they come back with everything, in any order."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from support.patience import wait_until
from support.processes.cluster import ClusterProcesses, partitions_of
from support.processes.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.slow

GROUP = "readers"
CONFIGS = {"retention.ms": "-1", "min.insync.replicas": "2"}
COPIED, SINGLE = partitions_of("copied", 2), partitions_of("single", 3)
BEHIND = 1


def addresses(cluster: ClusterProcesses) -> list[str]:
    return [broker.grpc for broker in cluster.brokers.values() if broker.is_running]


def write(cluster: ClusterProcesses, names: list[TopicPartition], first: int, count: int) -> None:
    with Producer(bootstrap_servers=addresses(cluster), acks="all") as producer:
        sent = [
            producer.send(name.topic, b"%d" % number, partition=name.partition)
            for name in names
            for number in range(first, first + count)
        ]
        for each in sent:
            each.result(60)


def read(cluster: ClusterProcesses, names: list[TopicPartition], count: int) -> dict[TopicPartition, list[int]]:
    """The numbers in each partition by their offsets, which are the same."""
    found: dict[TopicPartition, list[int]] = {name: [] for name in names}
    with Consumer(bootstrap_servers=addresses(cluster)) as consumer:
        consumer.assign(names)
        for name in names:
            consumer.seek(name, 0)

        def has_read() -> bool:
            for record in consumer.poll(500):
                assert int(record.value or b"") == record.offset
                found[TopicPartition(record.topic, record.partition)].append(record.offset)
            return sum(map(len, found.values())) >= count

        wait_until(has_read, f"{count} records are read", tell=lambda: f"{found}\n{cluster.logs}")
    return found


def lose_store(folder: Path) -> None:
    for path in folder.glob("cluster.sqlite*"):
        path.unlink()


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1)], ids=str)
def test_a_cluster_comes_back_with_its_records_groups_and_topics(tmp_path: Path, order: tuple[int, ...]) -> None:
    """One broker is behind: it was stopped before the last records."""
    with ClusterProcesses(tmp_path) as cluster:
        with Admin(bootstrap_servers=cluster.grpc) as admin:
            admin.create_topic("copied", partitions=2, replication_factor=3, configs=CONFIGS)
            admin.create_topic("single", partitions=3, replication_factor=1, configs={"min.insync.replicas": "1"})
            cluster.wait_for_isr(3, "copied")
            write(cluster, COPIED + SINGLE, 0, 50)
            admin.alter_group_offsets(GROUP, dict.fromkeys(COPIED, 10))
        cluster.wait_for_isr(3, "copied", "__consumer_offsets")
        cluster.brokers[BEHIND].stop()
        cluster.wait_for_isr(2, "copied", "__consumer_offsets")
        write(cluster, COPIED, 50, 50)
        with Admin(bootstrap_servers=addresses(cluster)) as admin:
            admin.alter_group_offsets(GROUP, dict.fromkeys(COPIED, 70))
        for broker in cluster.brokers.values():
            if broker.is_running:
                broker.kill()
        lose_store(tmp_path)
        for number in order:
            cluster.brokers[number].start()
        cluster.wait_for_isr(3, "copied", "__consumer_offsets")
        cluster.wait_for_isr(1, "single")
        assert read(cluster, COPIED, 200) == {name: list(range(100)) for name in COPIED}
        assert read(cluster, SINGLE, 150) == {name: list(range(50)) for name in SINGLE}
        write(cluster, COPIED, 100, 1)
        with Admin(bootstrap_servers=cluster.grpc) as admin:
            [copied] = admin.describe_topics(["copied"])
            assert dict(copied.configs) == CONFIGS
            committed = admin.list_group_offsets(GROUP)
            assert {name: each.offset for name, each in committed.items()} == dict.fromkeys(COPIED, 70)


LOST_STORE = 3
"""The exit status of a broker whose store has lost topics."""


@pytest.mark.jvm
def test_states_that_are_deleted_by_hand_come_back_and_no_partition_counts_as_new(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    """Also while the controller changes, whose successor finds topics whose partitions have no state."""
    with ClusterProcesses(tmp_path, zookeeper=zookeeper.address) as cluster:
        with Admin(bootstrap_servers=cluster.grpc) as admin:
            admin.create_topic("copied", partitions=2, replication_factor=3, configs=CONFIGS)
        cluster.wait_for_isr(3, "copied")
        write(cluster, COPIED, 0, 50)
        controller = cluster.controller()
        behind, successor = (number for number in cluster.brokers if number != controller)
        cluster.brokers[behind].kill()
        write(cluster, COPIED, 50, 50)

        zookeeper.shell("deleteall /brokers/topics/copied/partitions")
        cluster.brokers[controller].kill()
        assert cluster.brokers[successor].await_end() == LOST_STORE, cluster.logs
        assert "the cluster store has lost the states of copied-0, copied-1" in cluster.brokers[successor].log
        for broker in cluster.brokers.values():
            broker.start()

        cluster.wait_for_isr(3, "copied")
        assert read(cluster, COPIED, 200) == {name: list(range(100)) for name in COPIED}
        write(cluster, COPIED, 100, 1)


@pytest.mark.jvm
def test_brokers_whose_zookeeper_is_emptied_say_so_and_come_back_with_everything(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with ClusterProcesses(tmp_path, zookeeper=zookeeper.address) as cluster:
        with Admin(bootstrap_servers=cluster.grpc) as admin:
            admin.create_topic("copied", partitions=2, replication_factor=3, configs=CONFIGS)
            admin.create_topic("single", partitions=3, replication_factor=1, configs={"min.insync.replicas": "1"})
            cluster.wait_for_isr(3, "copied")
            write(cluster, COPIED + SINGLE, 0, 50)
            admin.alter_group_offsets(GROUP, dict.fromkeys(COPIED, 40))
        cluster.wait_for_isr(3, "copied", "__consumer_offsets")
        listed = next(
            line for line in zookeeper.shell("ls /").splitlines() if line.startswith("[") and "brokers" in line
        )
        nodes = set(listed.strip("[]").split(", ")) - {"zookeeper"}
        assert nodes >= {"brokers", "cluster", "controller"}, nodes

        zookeeper.shell(*(f"deleteall /{name}" for name in sorted(nodes)))
        for broker in cluster.brokers.values():
            assert broker.await_end() == LOST_STORE, broker.log
            assert "the cluster store has lost everything" in broker.log
        for broker in cluster.brokers.values():
            broker.start()

        cluster.wait_for_isr(3, "copied", "__consumer_offsets")
        assert read(cluster, COPIED, 100) == {name: list(range(50)) for name in COPIED}
        assert read(cluster, SINGLE, 150) == {name: list(range(50)) for name in SINGLE}
        write(cluster, COPIED, 50, 1)
        with Admin(bootstrap_servers=cluster.grpc) as admin:
            [copied] = admin.describe_topics(["copied"])
            assert dict(copied.configs) == CONFIGS
            committed = admin.list_group_offsets(GROUP)
            assert {name: each.offset for name, each in committed.items()} == dict.fromkeys(COPIED, 40)
