"""Consumers beside a leader that has been replaced and does not know it, and after an election that lost records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.base.errors import LogTruncation
from sparklog.client import Admin, Consumer, Producer
from support.patience import wait_until
from support.processes.cluster import ClusterProcesses, partitions_of
from support.runs.seeds import seeds

pytestmark = [pytest.mark.slow, pytest.mark.soak]
[PLACE] = partitions_of("read", 1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path) as running:
        yield running


def create(cluster: ClusterProcesses, replicas: int, **configs: str) -> tuple[int, int]:
    """-> The leader and a follower."""
    with Admin(bootstrap_servers=cluster.grpc) as admin:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topic("read", partitions=1, replication_factor=replicas, configs=named)
    cluster.wait_for_isr(replicas, "read")
    [part] = cluster.topic("read").partitions
    return part.leader, next(each for each in part.replicas if each != part.leader)


def write(cluster: ClusterProcesses, first: int, count: int) -> None:
    with Producer(bootstrap_servers=cluster.grpc, request_timeout_ms=3_000) as producer:
        for number in range(first, first + count):
            producer.send("read", b"%d" % number)


def reader(addresses: str, reset: str) -> Consumer:
    consumer = Consumer(bootstrap_servers=addresses, auto_offset_reset=reset, request_timeout_ms=3_000)
    consumer.assign([PLACE])
    consumer.seek(PLACE, 0)
    return consumer


def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """Offsets and numbers."""
    found: list[tuple[int, int]] = []

    def has_read() -> bool:
        found.extend((record.offset, int(record.value or b"")) for record in consumer.poll(1_000))
        return len(found) >= count

    wait_until(has_read, f"{count} records are read", tell=lambda: found)
    return found


def test_a_leader_that_hung_while_it_was_replaced_leads_no_consumer_astray(cluster: ClusterProcesses) -> None:
    leader, _ = create(cluster, 3)
    first = cluster.brokers[leader].grpc  # asked before the others
    with reader(f"{first},{cluster.grpc}", "earliest") as consumer:
        expected = 0
        for _ in seeds(1, soak=3):
            cluster.wait_for_isr(3, "read")
            leader = cluster.leader("read")
            cluster.brokers[leader].pause()
            cluster.wait(lambda leader=leader: cluster.leader("read") != leader, f"another than {leader} leads")
            write(cluster, expected, 50)
            found = read(consumer, 50)
            cluster.brokers[leader].resume()
            write(cluster, expected + 50, 50)
            found += read(consumer, 50)
            assert found == [(number, number) for number in range(expected, expected + 100)]
            expected += 100


def test_consumers_notice_what_an_unclean_election_has_lost(cluster: ClusterProcesses) -> None:
    leader, follower = create(cluster, 2, unclean_leader_election_enable="true", min_insync_replicas="1")
    with reader(cluster.grpc, "latest") as moved, reader(cluster.grpc, "none") as told:
        write(cluster, 0, 5)
        cluster.brokers[follower].pause()
        cluster.wait_for_isr(1, "read")
        write(cluster, 5, 5)
        for consumer in (moved, told):
            assert read(consumer, 10) == [(number, number) for number in range(10)]
        cluster.brokers[leader].kill()
        cluster.brokers[follower].resume()
        cluster.wait(lambda: cluster.leader("read") == follower, f"{follower} leads")
        write(cluster, 100, 3)
        assert read(moved, 3) == [(5, 100), (6, 101), (7, 102)]
        with pytest.raises(LogTruncation, match="from offset 5 to 10 were read"):
            read(told, 1)
        told.seek(PLACE, 5)
        assert read(told, 3) == [(5, 100), (6, 101), (7, 102)]
