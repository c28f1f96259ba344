"""Three brokers that copy over gRPC, while they stop and start under load, end with the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Producer
from sparklog.log.log import Log
from sparklog.testing.cluster import RunningCluster, start_cluster
from support.patience import wait_until

TOPIC = "copied"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(3)]


def logs_of(cluster: RunningCluster, name: TopicPartition) -> list[Log]:
    return [node.broker.services.replicas.get(name).log for node in cluster.nodes.values()]


def files_of(log: Log) -> dict[str, bytes]:
    """The segments' batches, but for an empty last one."""
    return {path.name: data for path in sorted(Path(log.folder).glob("*.log")) if (data := path.read_bytes())}


def wait_for_copies(cluster: RunningCluster) -> None:
    def tell() -> object:
        return {str(name): are_copied(cluster, name) for name in PARTITIONS}

    wait_until(lambda: all(are_copied(cluster, name) for name in PARTITIONS), "all have the same records", tell=tell)


def are_copied(cluster: RunningCluster, name: TopicPartition) -> bool:
    replicas = [node.broker.services.replicas.find(name) for node in cluster.nodes.values()]
    return None not in replicas and len({replica.log.log_end_offset for replica in replicas if replica}) == 1


@pytest.mark.slow
def test_the_files_of_three_brokers_are_the_same_after_all_have_been_away(tmp_path: Path) -> None:
    with start_cluster(3, tmp_path, num_replica_fetchers=2) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=3, configs={"internal.segment.bytes": "20000"})
        with Producer(bootstrap_servers=cluster.bootstrap, batch_size=2_000, linger_ms=0) as producer:
            for away in (1, 2, 3):
                for number in range(1_000):
                    producer.send(TOPIC, b"%d" % number * 10, key=b"%d" % number)
                cluster.stop_broker(away)
                for number in range(1_000):
                    producer.send(TOPIC, b"%d" % number * 10, key=b"%d" % number)
                producer.flush()
                cluster.start_broker(away)
        wait_for_copies(cluster)
        for name in PARTITIONS:
            first, *others = (files_of(log) for log in logs_of(cluster, name))
            assert len(first) > 3
            assert all(files == first for files in others)
