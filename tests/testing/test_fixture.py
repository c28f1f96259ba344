"""The helpers of `sparklog.testing` for users' own tests."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sparklog.base.errors import ConfigError
from sparklog.testing import RunningBroker, SimClock, start_broker
from sparklog.v1 import admin_pb2, admin_pb2_grpc
from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow


def brokers_of(bootstrap: str) -> list[str]:
    with grpc.insecure_channel(bootstrap) as channel:
        found = admin_pb2_grpc.AdminStub(channel).DescribeCluster(admin_pb2.DescribeClusterRequest())
    return [broker.grpc_address for broker in found.brokers]


def test_the_fixture_is_a_running_broker(sparklog_broker: RunningBroker, tmp_path: Path) -> None:
    assert brokers_of(sparklog_broker.bootstrap) == [sparklog_broker.bootstrap]
    assert sparklog_broker.data_dir.is_relative_to(tmp_path)


def test_kafkas_clients_can_connect_where_that_is_wanted(sparklog_broker: RunningBroker) -> None:
    with start_broker() as without:
        assert without.kafka == ""
    host, _, port = sparklog_broker.kafka.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        assert struct.unpack(">iih", connection.recv(10))[1:] == (7, 0)


def test_kafka_s_clients_have_transactions(sparklog_broker: RunningBroker) -> None:
    producer = Producer({"bootstrap.servers": sparklog_broker.kafka, "transactional.id": "totals"})
    producer.init_transactions(PATIENCE_S)
    for value, end in ((b"no", producer.abort_transaction), (b"yes", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("totals", value, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        end(PATIENCE_S)

    for isolation_level, values in (("read_uncommitted", [b"no", b"yes"]), ("read_committed", [b"yes"])):
        consumer = Consumer(
            {"bootstrap.servers": sparklog_broker.kafka, "group.id": "none", "isolation.level": isolation_level}
        )
        consumer.assign([TopicPartition("totals", 0, 0)])
        assert [message.value() for message in consumer.consume(len(values), PATIENCE_S)] == values
        consumer.close()


def test_a_temporary_folder_goes_with_the_broker_and_a_given_one_stays(tmp_path: Path) -> None:
    with start_broker() as temporary, start_broker(tmp_path / "given") as given:
        assert temporary.bootstrap != given.bootstrap
    assert not temporary.data_dir.exists()
    assert given.data_dir.exists()


def test_stopping_twice_does_no_harm(sparklog_broker: RunningBroker) -> None:
    broker = start_broker()
    for _ in range(2):
        broker.stop()
        assert not broker.data_dir.exists()
        with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
            brokers_of(broker.bootstrap)
        assert brokers_of(sparklog_broker.bootstrap) == [sparklog_broker.bootstrap], "another broker runs on"


def test_a_broker_that_cannot_start_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError):
        start_broker(grpc_listener="nowhere")
    assert list(tmp_path.iterdir()) == []


def test_keys_are_checked() -> None:
    with pytest.raises(
        ConfigError, match=r"start_broker: unknown key 'num\.partition'; did you mean num\.partitions\?"
    ):
        start_broker(num_partition=3)


def test_a_broker_starts_and_stops_well_within_a_second() -> None:
    def is_quick() -> bool:
        started = time.perf_counter()
        start_broker().stop()
        return time.perf_counter() - started < 1

    wait_until(is_quick, "a broker starts and stops within a second")  # not at first: some things are imported once


def test_having_the_plugin_costs_nothing_until_it_is_used() -> None:
    code = "import sys, sparklog.testing.plugin; print('grpc' in sys.modules, 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_a_simulated_clock_moves_when_told_and_never_back() -> None:
    clock = SimClock(time_ms=100)
    clock.advance(5)
    assert (clock.time_ms(), clock.monotonic_ms()) == (105, 5)
    with pytest.raises(ValueError, match="cannot advance by -1"):
        clock.advance(-1)
