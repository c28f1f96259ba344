"""`sparklog up --brokers auto`: a broker for each core, one cluster, replicas on different machines."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparklog.client import Admin, Consumer, Producer
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until
from support.processes.machine import Machine

pytestmark = pytest.mark.slow


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_each_core_has_a_broker_and_a_client_that_knows_one_of_them_uses_all(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    with Machine(tmp_path, "data", cores=cores) as machine:
        one = machine.addresses[0]
        with Admin(bootstrap_servers=one) as admin:
            assert [broker.rack for broker in admin.describe_cluster().brokers] == 2 * [socket.gethostname()]
            admin.create_topic("t", partitions=4)
            [topic] = admin.describe_topics(["t"])
            assert {partition.replicas for partition in topic.partitions} == {(1,), (2,)}
        with Producer(bootstrap_servers=one) as producer:
            for partition in range(4):
                producer.send("t", b"%d" % partition, partition=partition).result(PATIENCE_S)
        with Consumer(bootstrap_servers=one, auto_offset_reset="earliest") as consumer:
            consumer.assign_topic("t")
            found: list[bytes | None] = []
            while len(found) < 4:
                records = consumer.poll(PATIENCE_MS)
                assert records
                found += [record.value for record in records]
    assert sorted(found, key=str) == [b"0", b"1", b"2", b"3"]


def test_two_machines_are_one_cluster_and_no_partition_has_two_replicas_on_one(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    shared = f"cluster.store={tmp_path / 'cluster.sqlite'}"
    with ExitStack() as stack:
        first = stack.enter_context(Machine(tmp_path, "here", shared, cores=cores))
        stack.enter_context(Machine(tmp_path, "there", shared, "broker.id=11", "broker.rack=there", cores=cores))
        with Admin(bootstrap_servers=first.addresses[0]) as admin:
            wait_until(lambda: len(admin.describe_cluster().brokers) == 2 * len(cores), "all brokers are known")
            racks = {broker.id: broker.rack for broker in admin.describe_cluster().brokers}
            admin.create_topic("t", partitions=8, replication_factor=2)
            [topic] = admin.describe_topics(["t"])
    for partition in topic.partitions:
        assert {racks[replica] for replica in partition.replicas} == {socket.gethostname(), "there"}
