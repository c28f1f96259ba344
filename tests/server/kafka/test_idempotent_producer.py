"""An idempotent librdkafka producer through kill -9 of the broker, a real process: every record is there once."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

RECORDS = 6_000
KILLS = 3
POLLS = 20_000

pytestmark = pytest.mark.slow


class Process:
    """`sparklog up` on ports of its own."""

    def __init__(self, folder: Path) -> None:
        self.address = f"127.0.0.1:{_free_port()}"
        self._command = [
            sys.executable, "-m", "sparklog.cli.up", "--data-dir", str(folder),
            "--grpc", "127.0.0.1:0", "--kafka", self.address,
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout
        assert "ready" in self._process.stdout.readline()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "data")
    yield process
    process.kill()


def test_every_record_is_there_once_and_in_order_after_kill_9(broker: Process) -> None:
    offsets: dict[int, int] = {}
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error:
            failures.append(error)
        else:
            offsets[int(message.value())] = message.offset()

    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 20,
            "reconnect.backoff.max.ms": 100,
            "error_cb": lambda _: None,
        }
    )
    kill_at = [RECORDS * (number + 1) // (KILLS + 1) for number in range(KILLS)]
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number, partition=0, on_delivery=delivered)
        producer.poll(0)
        if number % 20 == 0:
            time.sleep(0.002)  # spreads the records over the time in which the broker dies
        if number in kill_at:
            broker.kill()
            broker.start()
    assert producer.flush(60) == 0

    assert failures == []
    found = _read(broker.address)
    assert found == list(range(RECORDS))
    assert offsets == {number: number for number in range(RECORDS)}


def _read(address: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=30)
        found: list[int] = []
        for _ in range(POLLS):
            if len(found) >= end:
                break
            found += [int(message.value()) for message in consumer.consume(500, timeout=1) if not message.error()]
        return found
    finally:
        consumer.close()
