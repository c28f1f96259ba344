"""An idempotent librdkafka producer with lost answers and a killed broker: every record is written once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from support.patience import PATIENCE_S
from support.processes.broker import BrokerProcess
from support.processes.lossy_proxy import LossyProxy

RECORDS = 4_000
KILL_AT = (1_000, 2_000, 3_000)
POLLS = 20_000

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy() -> Iterator[LossyProxy]:
    proxy = LossyProxy()
    yield proxy
    proxy.close()


@pytest.fixture
def broker(tmp_path: Path, proxy: LossyProxy) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, f"advertised.listeners=PLAINTEXT://{proxy.address}")
    proxy.target = process.kafka
    process.start()
    yield process
    process.kill()


def test_every_record_is_there_once_and_in_order(broker: BrokerProcess, proxy: LossyProxy) -> None:
    offsets: dict[int, int] = {}
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error:
            failures.append(error)
        else:
            offsets[int(message.value())] = message.offset()

    producer = Producer(
        {
            "bootstrap.servers": proxy.address,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 20,
            "reconnect.backoff.max.ms": 100,
            "error_cb": lambda _: None,
        }
    )
    producer.produce("t", b"0", partition=0, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    for number in range(1, RECORDS):
        if number in KILL_AT:
            proxy.lose_answers()
        producer.produce("t", b"%d" % number, partition=0, on_delivery=delivered)
        producer.poll(0)
        if number % 20 == 0:
            time.sleep(0.002)  # spreads the records over the time in which the broker dies
        if number - 100 in KILL_AT:
            assert proxy.wait_for_loss(PATIENCE_S)
            broker.kill()
            broker.start()
            proxy.restore()
    assert producer.flush(PATIENCE_S) == 0

    assert failures == []
    assert _read(broker.kafka) == list(range(RECORDS))
    assert offsets == {number: number for number in range(RECORDS)}


def _read(address: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=PATIENCE_S)
        found: list[int] = []
        for _ in range(POLLS):
            if len(found) >= end:
                break
            found += [int(message.value()) for message in consumer.consume(500, timeout=1) if not message.error()]
        return found
    finally:
        consumer.close()
