"""The limit of open files: a broker reserves some, so that it stays reachable."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparklog.base.addresses import Address
from sparklog.base.errors import PolicyViolation
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from sparklog.log.directory.open_files import LEAST, OpenFileLimits
from support.kafka.connection import Wire
from support.processes.broker import BrokerProcess

pytestmark = pytest.mark.slow
API_VERSIONS = 18
FILES, FEWER = 400, 200
CONNECTIONS = 60
ROOM = OpenFileLimits.of(FILES).logs


@pytest.mark.parametrize("limit", [64, 256, 1024, 20_000, 1 << 20])
def test_most_files_are_for_logs_and_some_are_kept_back(limit: int) -> None:
    files = OpenFileLimits.of(limit)
    assert files.logs >= limit / 2
    assert limit - files.logs - files.closed_segments >= limit // 4


def test_no_more_partitions_are_made_than_can_be_opened_and_clients_connect_all_the_while(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, open_files=FILES) as broker, Admin(bootstrap_servers=broker.grpc) as admin:
        admin.create_topic("first", partitions=ROOM - 10)
        with pytest.raises(PolicyViolation, match=f"room for {ROOM} partitions: raise the limit"):
            admin.create_topic("second", partitions=11)
        with pytest.raises(PolicyViolation, match=f"room for {ROOM} partitions: raise the limit"):
            admin.create_partitions("first", ROOM + 1)
        admin.create_topic("third", partitions=5, configs={"internal.segment.bytes": "100"})

        send(broker, "first", range(ROOM - 10))
        for _ in range(20):  # a closed segment each
            send(broker, "third", range(5))
        with ExitStack() as connections:
            for _ in range(CONNECTIONS):
                wire = connections.enter_context(Wire(Address.parse(broker.kafka, "kafka")))
                assert wire.send(API_VERSIONS, 0).error_code == 0
            assert count(broker, "third", 5) == 100
        assert "Too many open files" not in broker.log


def test_a_broker_that_may_open_less_than_before_is_reached_and_says_what_is_offline(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, open_files=FILES)
    with broker, Admin(bootstrap_servers=broker.grpc) as admin:
        admin.create_topic("first", partitions=ROOM - 10)

    broker.open_files = FEWER
    room = OpenFileLimits.of(FEWER).logs
    with broker, Admin(bootstrap_servers=broker.grpc) as admin:
        [found] = admin.describe_topics(["first"])
        assert sum(part.leader >= 0 for part in found.partitions) == room
        assert f"is offline: a broker that may have so few files open has room for {room} partitions" in broker.log

    broker.open_files = FILES
    with broker, Admin(bootstrap_servers=broker.grpc) as admin:
        [found] = admin.describe_topics(["first"])
        assert all(part.leader >= 0 for part in found.partitions)


def send(broker: BrokerProcess, topic: str, partitions: range) -> None:
    with Producer(bootstrap_servers=broker.grpc) as producer:
        for number in partitions:
            producer.send(topic, b"value", partition=number)


def count(broker: BrokerProcess, topic: str, partitions: int) -> int:
    """The records of a topic."""
    with Consumer(bootstrap_servers=broker.grpc) as consumer:
        parts = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        consumer.seek_to_beginning(*parts)
        found = 0
        while any(consumer.position(part) < end for part, end in ends.items()):
            found += len(consumer.poll(100))
        return found


def test_idle_connections_leave_the_logs_their_files(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, open_files=FILES) as broker, Admin(bootstrap_servers=broker.grpc) as admin:
        admin.create_topic("first", partitions=ROOM)
        address = Address.parse(broker.kafka, "kafka")
        with ExitStack() as connections:
            for _ in range(FILES):
                connections.enter_context(socket.create_connection((address.host, address.port)))
            send(broker, "first", range(ROOM))
            assert count(broker, "first", ROOM) == ROOM
        assert "Too many open files" not in broker.log
        assert "raise it (ulimit -n)" in broker.log


def test_a_broker_that_may_open_too_few_files_says_so(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, open_files=LEAST - 1)
    broker.launch()
    with pytest.raises(AssertionError, match="is not ready"):
        broker.await_ready()
    broker.kill()
    assert f"{LEAST - 1} open files here, and a broker needs {LEAST}: raise ulimit -n" in broker.log
    broker.open_files = LEAST
    with broker, Admin(bootstrap_servers=broker.grpc) as admin:
        admin.create_topic("t")
        send(broker, "t", range(1))
        assert count(broker, "t", 1) == 1
