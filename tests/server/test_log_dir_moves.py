"""Replicas move between log directories of real brokers, while clients of librdkafka write and read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from sparklog.base.ids import TopicPartition
from sparklog.cli.dump import command as dump
from sparklog.client import Admin
from sparklog.client.admin.descriptions import LogDirPartition
from support.clients.move_traffic import Traffic
from support.names import unique
from support.patience import wait_until
from support.processes.broker import BrokerProcess
from support.processes.cluster import ClusterProcesses

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
SETTINGS = {"log.segment.bytes": 1 << 20, "log.segment.delete.delay.ms": 0, "transaction.state.log.num.partitions": 1}
FILLED_BYTES = 8 << 20
DISKS = ("disk1", "disk2")
pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = (f"{key}={value}" for key, value in SETTINGS.items())
    with BrokerProcess(tmp_path, *settings, log_dirs=DISKS) as running:
        yield running


def fill(kafka: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 5})
    for _ in range(FILLED_BYTES // 10_000):
        producer.produce(topic, bytes(10_000), partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def replicas(admin: Admin, topic: str, broker: int = 0) -> dict[str, LogDirPartition]:
    """The replica and its copy, by their directories."""
    return {each.path: part for each in admin.describe_log_dirs([topic])[broker] for part in each.partitions}


def begin(admin: Admin, topic: str, broker: int = 0) -> tuple[Path, Path]:
    """Begin to move partition 0 to the broker's other directory; returns its present and its new directory."""
    dirs = {each.path for each in admin.describe_log_dirs()[broker]}
    [(home, _)] = replicas(admin, topic, broker).items()
    [target] = dirs - {home}
    assert admin.alter_replica_log_dirs({(TopicPartition(topic, 0), broker): target}) == {}
    return Path(home), Path(target)


def await_moved(admin: Admin, topic: str, home: Path, target: Path, broker: int = 0) -> None:
    def has_moved() -> bool:
        return [(path, part.is_future) for path, part in replicas(admin, topic, broker).items()] == [
            (str(target), False)
        ]

    wait_until(has_moved, f"{topic} has moved to {target}", tell=lambda: replicas(admin, topic, broker), every_s=0.1)
    wait_until(lambda: not list(home.glob(f"{topic}-0*")), "the old folder is deleted", every_s=0.1)
    # A copy from before a kill is deleted in the background.
    wait_until(
        lambda: [path.name for path in target.glob(f"{topic}-0*")] == [f"{topic}-0"], "no copy is left", every_s=0.1
    )


def check_files(folder: Path) -> None:
    """Check that the files of the folder are consistent."""
    files = [str(path) for suffix in ("log", "index", "timeindex", "snapshot") for path in folder.glob(f"*.{suffix}")]
    assert len(files) > 20
    result = CliRunner().invoke(dump, [*files, "--deep-iteration"])
    assert result.exit_code == 0, result.output[-2000:]


def test_clients_notice_nothing_of_a_move(broker: BrokerProcess) -> None:
    topic = unique("moved")
    with Admin(bootstrap_servers=broker.grpc) as admin:
        admin.create_topic(topic, partitions=1)
        fill(broker.kafka, topic)
        with Traffic(broker.kafka, topic) as traffic:
            home, target = begin(admin, topic)
            await_moved(admin, topic, home, target)
            seen = len(traffic.read)
            wait_until(lambda: len(traffic.read) > seen + 100, "records are read from the new directory")
            back = begin(admin, topic)
            await_moved(admin, topic, *back)
        traffic.check()
    broker.stop()
    check_files(home / f"{topic}-0")


def test_a_move_goes_on_after_the_broker_was_killed(broker: BrokerProcess) -> None:
    topic = unique("killed")
    with Admin(bootstrap_servers=broker.grpc) as admin:
        admin.create_topic(topic, partitions=1)
        fill(broker.kafka, topic)
        admin.alter_broker_configs(0, set={RATE: str(FILLED_BYTES // 8)})
        with Traffic(broker.kafka, topic) as traffic:
            home, target = begin(admin, topic)
            wait_until(
                lambda: any(part.is_future and part.size_bytes for part in replicas(admin, topic).values()),
                "a part is copied",
            )
            broker.kill()
            assert [path.name.rpartition("-")[2] for path in target.glob(f"{topic}-0*")] == ["future"]
            broker.start()
            parts = wait_until(lambda: len(found := replicas(admin, topic)) == 2 and found, "the move has begun again")
            assert parts[str(target)].is_future
            assert parts[str(target)].offset_lag > 0
            admin.alter_broker_configs(0, unset=[RATE])
            await_moved(admin, topic, home, target)
        traffic.check()
    broker.kill()
    broker.start()
    broker.stop()
    check_files(target / f"{topic}-0")


def test_leader_and_followers_move_at_once(tmp_path: Path) -> None:
    topic = unique("replicated")
    settings = {key.replace(".", "_"): value for key, value in SETTINGS.items()}
    with (
        ClusterProcesses(tmp_path, log_dirs=DISKS, **settings) as cluster,
        Admin(bootstrap_servers=cluster.grpc) as admin,
    ):
        admin.create_topic(topic, partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
        fill(cluster.kafka, topic)
        with Traffic(cluster.kafka, topic) as traffic:
            moves = {number: begin(admin, topic, number) for number in cluster.brokers}
            for number, (home, target) in moves.items():
                await_moved(admin, topic, home, target, number)
        traffic.check()
        cluster.wait_for_isr(3, topic)
        wait_until(
            lambda: len({contents(target, topic) for _, target in moves.values()}) == 1, "all replicas are equal"
        )


def contents(target: Path, topic: str) -> tuple[tuple[str, bytes], ...]:
    return tuple((path.name, path.read_bytes()) for path in sorted((target / f"{topic}-0").glob("*.log")))
