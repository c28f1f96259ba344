"""Clients continue after a kill and restart of their broker: a real process, on the same port."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Delivery, Producer
from support.patience import PATIENCE_MS, PATIENCE_S
from support.processes.broker import BrokerProcess

PARTITIONS = 2
RECORDS = 6_000

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as process:
        yield process


def sent_while(broker: BrokerProcess, disturb: Callable[[], None]) -> list[list[Delivery]]:
    """Deliveries by partition of records, sent in groups while `disturb` runs in a thread."""
    deliveries: list[list[Delivery]] = [[] for _ in range(PARTITIONS)]
    thread = threading.Thread(target=disturb)
    with Producer(bootstrap_servers=broker.grpc, batch_size=2_000, linger_ms=1) as producer:
        producer.send("t", b"first", partition=0).result(PATIENCE_S)
        thread.start()
        for number in range(RECORDS):
            for partition in range(PARTITIONS):
                deliveries[partition].append(producer.send("t", b"%d" % number, partition=partition))
            if number % 20 == 0:
                time.sleep(0.003)  # spreads the records over the time in which brokers die
        thread.join()
    return deliveries


def read_to_the_end(consumer: Consumer, partition: TopicPartition) -> dict[int, int]:
    """The numbers of the partition's records, by offset."""
    end = consumer.end_offsets([partition])[partition]
    numbers: dict[int, int] = {}
    for _ in range(10_000):
        if consumer.position(partition) >= end:
            break
        numbers |= {record.offset: int(record.value) for record in consumer.poll() if record.value != b"first"}
    return numbers


def test_a_producer_carries_on_after_kill_9_with_every_record_there_once_and_in_order(broker: BrokerProcess) -> None:
    with Admin(bootstrap_servers=broker.grpc) as admin:
        admin.create_topic("t", partitions=PARTITIONS)

    def kill_three_times() -> None:
        for _ in range(3):
            time.sleep(0.15)
            broker.kill()
            broker.start()

    deliveries = sent_while(broker, kill_three_times)

    with Consumer(bootstrap_servers=broker.grpc, auto_offset_reset="earliest") as consumer:
        for number in range(PARTITIONS):
            partition = TopicPartition("t", number)
            consumer.assign([partition])
            numbers = read_to_the_end(consumer, partition)
            assert list(numbers.values()) == list(range(RECORDS))
            offsets = [delivery.result(0).offset for delivery in deliveries[number]]
            assert [numbers[offset] for offset in offsets] == list(range(RECORDS))


def test_a_consumer_carries_on_where_it_was(broker: BrokerProcess) -> None:
    with (
        Producer(bootstrap_servers=broker.grpc, linger_ms=1) as producer,
        Consumer(bootstrap_servers=broker.grpc, auto_offset_reset="earliest") as consumer,
    ):
        producer.send("t", b"0").result(PATIENCE_S)
        consumer.assign_topic("t")
        seen = [int(record.value) for record in consumer.poll(PATIENCE_MS)]
        broker.kill()
        assert consumer.poll(300) == []
        broker.start()
        for number in range(1, 50):
            producer.send("t", b"%d" % number)
        for _ in range(100):
            if len(seen) >= 50:
                break
            seen += [int(record.value) for record in consumer.poll(PATIENCE_MS)]

    assert seen == list(range(50))
