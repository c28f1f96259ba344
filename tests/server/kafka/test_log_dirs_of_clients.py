"""AlterReplicaLogDirs and DescribeLogDirs by kafka-python, and every error on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.errors import (
    InvalidReplicationAssignmentError,
    InvalidTopicError,
    KafkaStorageError,
    LogDirNotFoundError,
    NoError,
    ReplicaNotAvailableError,
)

from sparklog.client import Admin, Producer
from sparklog.testing import RunningBroker, start_broker
from support.names import unique
from support.patience import wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp("disks")
    dirs = tuple(str(folder / name) for name in ("disk1", "disk2"))
    with start_broker(folder, kafka=True, log_dirs=dirs) as running:
        yield running


@pytest.fixture(scope="module")
def python_admin(broker: RunningBroker) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.kafka)
    yield admin
    admin.close()


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    name = unique("t")
    with Admin(bootstrap_servers=broker.bootstrap) as admin, Producer(bootstrap_servers=broker.bootstrap) as producer:
        admin.create_topic(name, partitions=1)
        producer.send(name, bytes(1000), partition=0).result()
    return name


def places(admin: KafkaAdminClient, topic: str) -> list[tuple[str, bool]]:
    """The directories of partition 0, and whether each has a copy in progress."""
    [broker] = admin.describe_log_dirs()
    return [
        (each["log_dir"], part["is_future_key"])
        for each in broker["log_dirs"]
        for found in each["topics"]
        for part in found["partitions"]
        if found["name"] == topic
    ]


@pytest.mark.slow
def test_a_replica_is_moved(broker: RunningBroker, python_admin: KafkaAdminClient, topic: str) -> None:
    [(home, _)] = places(python_admin, topic)
    [target] = {str(broker.data_dir / name) for name in ("disk1", "disk2")} - {home}
    assert [*python_admin.alter_replica_log_dirs({(topic, 0, 0): target}).values()] == [NoError]
    wait_until(lambda: places(python_admin, topic) == [(target, False)], "the replica has moved")
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        assert producer.send(topic, b"1", partition=0).result().offset == 1


def test_what_cannot_be_moved_is_refused_apart(
    broker: RunningBroker, python_admin: KafkaAdminClient, topic: str
) -> None:
    disk1, nowhere = str(broker.data_dir / "disk1"), str(broker.data_dir / "nowhere")
    wanted = {
        (topic, 0, 0): nowhere,
        (topic, 1, 0): disk1,
        ("missing", 0, 0): disk1,
        ("t" * 230, 0, 0): disk1,
    }
    answers = python_admin.alter_replica_log_dirs(wanted)
    errors = {(name.topic, name.partition): error for name, error in answers.items()}
    assert errors == {
        (topic, 0): LogDirNotFoundError,
        (topic, 1): ReplicaNotAvailableError,
        ("missing", 0): ReplicaNotAvailableError,
        ("t" * 230, 0): InvalidTopicError,
    }


def test_a_cordoned_broker_moves_nothing(broker: RunningBroker, python_admin: KafkaAdminClient, topic: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_broker_configs(0, set={"cordoned.log.dirs": "*"})
        try:
            wait_until(lambda: 0 in admin.describe_cluster().cordoned, "the broker is cordoned")
            answers = python_admin.alter_replica_log_dirs({(topic, 0, 0): str(broker.data_dir / "disk1")})
        finally:
            admin.alter_broker_configs(0, unset=["cordoned.log.dirs"])
    assert [*answers.values()] == [InvalidReplicationAssignmentError]


def test_nothing_moves_to_a_failed_directory(tmp_path: Path) -> None:
    (tmp_path / "disk2").write_text("no directory")
    dirs = tuple(str(tmp_path / name) for name in ("disk1", "disk2"))
    with start_broker(tmp_path, kafka=True, log_dirs=dirs) as running:
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topic("t", partitions=1)
        client = KafkaAdminClient(bootstrap_servers=running.kafka)
        assert [*client.alter_replica_log_dirs({("t", 0, 0): dirs[1]}).values()] == [KafkaStorageError]
        client.close()
