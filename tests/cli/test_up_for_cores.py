"""`sparklog up --brokers auto`: a broker for each core, one cluster for clients, replicas on different machines."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sparklog.client import Admin, Consumer, Producer
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until
from support.processes.output import first_line

pytestmark = pytest.mark.slow
UP = [sys.executable, "-m", "sparklog.cli.up", "--brokers", "auto", "--grpc", "127.0.0.1:0", "--kafka", "none"]


@contextmanager
def machine(folder: Path, name: str, *settings: str, cores: Sequence[int]) -> Iterator[str]:
    """A parent with its brokers, on these cores, with its data in folder / name; the addresses of its brokers."""
    keys = [word for setting in settings for word in ("--set", setting)]
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # which the process inherits
    try:
        with (folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [*UP, *keys, "--data-dir", name], cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
            )
    finally:
        os.sched_setaffinity(0, own)
    try:
        said = first_line(process)
        assert f"ready: {len(cores)} brokers, grpc " in said, (said, (folder / f"{name}.log").read_text())
        yield said.partition("grpc ")[2].partition(", data")[0]
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, (folder / f"{name}.log").read_text()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_each_core_has_a_broker_and_a_client_that_knows_one_of_them_uses_all(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    with machine(tmp_path, "data", cores=cores) as addresses:
        one = addresses.split(",")[0]
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
        first = stack.enter_context(machine(tmp_path, "here", shared, cores=cores))
        stack.enter_context(machine(tmp_path, "there", shared, "broker.id=11", "broker.rack=there", cores=cores))
        with Admin(bootstrap_servers=first.split(",")[0]) as admin:
            wait_until(lambda: len(admin.describe_cluster().brokers) == 2 * len(cores), "all brokers are known")
            racks = {broker.id: broker.rack for broker in admin.describe_cluster().brokers}
            admin.create_topic("t", partitions=8, replication_factor=2)
            [topic] = admin.describe_topics(["t"])
    for partition in topic.partitions:
        assert {racks[replica] for replica in partition.replicas} == {socket.gethostname(), "there"}
