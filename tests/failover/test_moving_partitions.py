"""Partitions move between brokers while clients write, and brokers die meanwhile: nothing acknowledged is lost, nothing
is there twice, and the move is completed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin
from support.clients.writers import PARTITIONS, TOPIC, GrpcWriter, LibrdkafkaWriter, Writing
from support.processes.cluster import ClusterProcesses
from support.processes.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.soak]
BROKERS = (1, 2, 3)


def replicas(cluster: ClusterProcesses) -> list[tuple[int, ...]]:
    return [part.replicas for part in cluster.topic(TOPIC).partitions]


def move_on(cluster: ClusterProcesses) -> list[tuple[int, ...]]:
    """Have each partition go one broker further; where they will be."""
    targets = [tuple(broker % len(BROKERS) + 1 for broker in each) for each in replicas(cluster)]
    with Admin(bootstrap_servers=cluster.grpc) as admin:
        asked = {TopicPartition(TOPIC, number): target for number, target in enumerate(targets)}
        assert admin.alter_partition_reassignments(asked) == {}
    return targets


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=(pytest.mark.jvm, pytest.mark.soak_only))])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ExitStack() as stack:
        address = ""
        if request.param == "zookeeper":
            server = ZooKeeperServer(tmp_path / "zookeeper")
            server.start()
            stack.callback(server.stop)
            address = server.address
        yield stack.enter_context(ClusterProcesses(tmp_path, zookeeper=address))


def test_partitions_go_round_the_cluster_while_its_controllers_die(cluster: ClusterProcesses) -> None:
    with Admin(bootstrap_servers=cluster.grpc) as admin:
        configs = {"min.insync.replicas": "1"}  # so that two replicas go on without one
        admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=2, configs=configs)
    cluster.wait_for_isr(2, TOPIC)
    with Writing(cluster, GrpcWriter, LibrdkafkaWriter) as writing:
        for is_killed in (False, True, True):
            targets = move_on(cluster)
            if is_killed:
                controller = cluster.controller()
                cluster.brokers[controller].kill()
                writing.wait_for_progress()
                cluster.brokers[controller].start()
            cluster.wait(lambda targets=targets: replicas(cluster) == targets, f"the partitions are on {targets}")
            cluster.wait_for_isr(2, TOPIC)
            writing.wait_for_progress()
