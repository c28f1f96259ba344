"""A broker with an almost full disk: it serves reads, reports the disk, and recovers once there is room."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from confluent_kafka import KafkaError as KafkaClientError
from confluent_kafka import Producer as KafkaProducer
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sparklog.base.errors import DeliveryTimeout
from sparklog.base.fs import Buffer, LocalFile, LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.cli import run
from sparklog.client import Admin, Consumer, Producer
from sparklog.testing import RunningBroker, start_broker
from support.patience import PATIENCE_S, wait_until
from support.processes.probes import probe

T0 = TopicPartition("t", 0)
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING

pytestmark = pytest.mark.slow


class Disk:
    """The disk of every log directory."""

    free = 1 << 40
    """What it says to have left."""
    is_full = False
    """Half of what is written is written, and then no more."""
    is_broken = False


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(LocalFs, "free_bytes", lambda *_: made.free)
    append = LocalFile.append

    def append_what_there_is_room_for(self: LocalFile, data: Buffer) -> None:
        if made.is_full:
            append(self, memoryview(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        if made.is_broken:
            raise OSError(errno.EIO, "Input/output error")
        append(self, data)

    monkeypatch.setattr(LocalFile, "append", append_what_there_is_room_for)
    return made


@pytest.fixture
def broker(disk: Disk, tmp_path: Path) -> Iterator[RunningBroker]:
    with start_broker(tmp_path, kafka=True, metrics_listener="127.0.0.1:0") as running:
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topic("t")
        yield running


def send(broker: RunningBroker, value: bytes, **options: int) -> int:
    with Producer(bootstrap_servers=broker.bootstrap, **options) as producer:
        return producer.send("t", value, partition=0).result(PATIENCE_S).offset


def read(broker: RunningBroker, count: int) -> list[bytes | None]:
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        found: list[bytes | None] = []

        def enough() -> bool:
            found.extend(record.value for record in consumer.poll(100))
            return len(found) >= count

        wait_until(enough, "all is read", tell=lambda: found)
        return found


def grpc_health(broker: RunningBroker, service: str) -> int:
    with grpc.insecure_channel(broker.bootstrap) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=PATIENCE_S).status)


def http_health(broker: RunningBroker) -> tuple[int, dict[str, object]]:
    return probe(broker.node.metrics_address, "/health")


def readiness(broker: RunningBroker) -> tuple[int, dict[str, object]]:
    return probe(broker.node.metrics_address, "/readyz")


def test_it_reads_says_so_and_goes_on_when_there_is_room(broker: RunningBroker, disk: Disk) -> None:
    assert send(broker, b"a") == 0
    assert http_health(broker) == (200, {"status": "ok"})
    disk.free = 1_000
    wait_until(lambda: grpc_health(broker, "") == NOT_SERVING, "the disk is known to be full")

    with pytest.raises(DeliveryTimeout, match=r"1,000 bytes free, and log\.dir\.min\.free\.bytes is 67,108,864"):
        send(broker, b"b", delivery_timeout_ms=1_000, request_timeout_ms=500)
    assert read(broker, 1) == [b"a"]
    assert grpc_health(broker, "sparklog.v1.Log") == NOT_SERVING
    assert grpc_health(broker, "sparklog.v1.Admin") == SERVING
    assert http_health(broker) == (503, {"status": "down", "full_log_dirs": [str(broker.data_dir)]})
    assert readiness(broker) == (
        503,
        {
            "status": "not ready",
            "reason": "each log directory is full or has failed",
            "full_log_dirs": [str(broker.data_dir)],
        },
    )

    disk.free = 1 << 40
    wait_until(lambda: grpc_health(broker, "") == SERVING, "there is room again")
    assert send(broker, b"c") == 1
    assert read(broker, 2) == [b"a", b"c"]
    assert http_health(broker) == (200, {"status": "ok"})
    assert readiness(broker) == (200, {"status": "ready"})


def test_what_a_full_disk_has_refused_is_done_when_there_is_room(broker: RunningBroker, disk: Disk) -> None:
    disk.is_full = True
    with Admin(bootstrap_servers=broker.bootstrap) as admin, ThreadPoolExecutor() as pool:
        admin.create_topic("new", partitions=2)
        deletion = pool.submit(admin.delete_topics, ["t"])
        wait_until(lambda: not folders(broker, "t-0"), "the folder is renamed")
        offline = {"full_log_dirs": [str(broker.data_dir)], "offline_partitions": ["new-0", "new-1"]}
        wait_until(lambda: http_health(broker) == (503, {"status": "down", **offline}), "it says what is offline")
        assert not deletion.done()

        disk.is_full = False
        deletion.result(PATIENCE_S)
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            assert producer.send("new", b"a", partition=1).result(PATIENCE_S).offset == 0
        assert [each.name for each in admin.list_topics()] == ["new"]
    wait_until(lambda: http_health(broker) == (200, {"status": "ok"}), "all is well", tell=lambda: http_health(broker))


def folders(broker: RunningBroker, name: str) -> list[Path]:
    return list(Path(broker.data_dir).glob(name))


def disks_by_the_tool(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], list[str]]:
    """The full and the failed directories in `sparklog cluster brokers`."""
    command = ("cluster", "brokers", "--bootstrap", broker.bootstrap)
    assert run((*command, "--json")) == 0
    row = json.loads(capsys.readouterr().out)
    full, failed = row["full_log_dirs"], row["failed_log_dirs"]
    assert run(command) == 0
    table = capsys.readouterr().out
    assert "FULL LOG DIRS" in table
    assert "FAILED LOG DIRS" in table
    assert (str(broker.data_dir) in table) == bool(full or failed)
    return full, failed


def test_a_disk_that_others_fill_is_no_failed_disk(
    broker: RunningBroker, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert send(broker, b"a") == 0
    disk.is_full = True
    with pytest.raises(DeliveryTimeout, match="No space left on device"):
        send(broker, b"b", delivery_timeout_ms=1_000, request_timeout_ms=500)
    wait_until(lambda: grpc_health(broker, "") == NOT_SERVING, "the disk is known to be full")
    assert read(broker, 1) == [b"a"]
    assert http_health(broker) == (503, {"status": "down", "full_log_dirs": [str(broker.data_dir)]})
    assert disks_by_the_tool(broker, capsys) == ([str(broker.data_dir)], [])

    disk.is_full = False
    wait_until(lambda: grpc_health(broker, "") == SERVING, "there is room again")
    assert send(broker, b"c") == 1
    assert read(broker, 2) == [b"a", b"c"]
    assert http_health(broker) == (200, {"status": "ok"})
    assert disks_by_the_tool(broker, capsys) == ([], [])


def test_a_tool_says_which_disk_has_failed(
    broker: RunningBroker, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    disk.is_broken = True
    with pytest.raises(DeliveryTimeout):
        send(broker, b"b", delivery_timeout_ms=1_000, request_timeout_ms=500)
    assert disks_by_the_tool(broker, capsys) == ([], [str(broker.data_dir)])
    status, answer = readiness(broker)
    assert status == 503
    assert answer["reason"] == "each log directory is full or has failed"
    assert answer["failed_log_dirs"] == {str(broker.data_dir): "[Errno 5] Input/output error"}


def test_kafkas_clients_are_told_to_try_again(broker: RunningBroker, disk: Disk) -> None:
    disk.free = 1_000
    wait_until(lambda: grpc_health(broker, "") == NOT_SERVING, "the disk is known to be full")
    producer = KafkaProducer({"bootstrap.servers": broker.kafka, "retries": 0, "enable.idempotence": False})
    told: list[KafkaClientError | None] = []
    producer.produce("t", b"x", on_delivery=lambda error, _: told.append(error))
    producer.flush(PATIENCE_S)
    assert [error and error.name() for error in told] == ["KAFKA_STORAGE_ERROR"]
    patient = KafkaProducer({"bootstrap.servers": broker.kafka, "retry.backoff.ms": 10})
    patient.produce("t", b"y", on_delivery=lambda error, _: told.append(error))
    patient.poll(0.2)
    disk.free = 1 << 40
    patient.flush(PATIENCE_S)
    assert told[1:] == [None]
