"""Machines with a broker for each core and one ZooKeeper: one of them dies, with all of its brokers at once."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparklog.client import Admin, Consumer, Producer
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until
from support.processes.machine import Machine
from support.processes.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.jvm]
HOSTS = ("one", "two", "three")
PARTITIONS = 4


def test_no_acknowledged_record_dies_with_a_machine_and_the_others_go_on(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    shared = (f"zookeeper.connect={zookeeper.address}", "zookeeper.session.timeout.ms=2000")
    with ExitStack() as running:
        machines = [
            running.enter_context(
                Machine(
                    tmp_path, host, *shared, f"broker.id={100 * number}", f"broker.rack={host}",
                    cores=cores[:2] if host == "one" else cores[:1],
                )
            )
            for number, host in enumerate(HOSTS, 1)
        ]  # fmt: skip
        others = ",".join(address for machine in machines[1:] for address in machine.addresses)
        with Admin(bootstrap_servers=others) as admin:
            brokers = sum(len(machine.addresses) for machine in machines)
            wait_until(lambda: len(admin.describe_cluster().brokers) == brokers, "all brokers are known")
            racks = {broker.id: broker.rack for broker in admin.describe_cluster().brokers}
            admin.create_topic("t", partitions=PARTITIONS)
            [topic] = admin.describe_topics(["t"])
        for partition in topic.partitions:
            assert {racks[replica] for replica in partition.replicas} == set(HOSTS), "each machine has a replica"
        values = [b"%d" % number for number in range(400)]
        with Producer(bootstrap_servers=others) as producer:
            for number, value in enumerate(values):
                if number == len(values) // 2:
                    machines[0].kill()
                producer.send("t", value, partition=number % PARTITIONS).result(PATIENCE_S)
        found: list[bytes | None] = []
        with Consumer(bootstrap_servers=others, auto_offset_reset="earliest") as consumer:
            consumer.assign_topic("t")
            while len(found) < len(values):
                records = consumer.poll(PATIENCE_MS)
                assert records, f"{len(found)} of {len(values)} records\n{machines[1].log()}"
                found += [record.value for record in records]
    assert sorted(found, key=lambda value: int(value or b"-1")) == values
