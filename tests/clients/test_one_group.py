"""Clients of every make in one group: each record is read by one of them, and what they commit counts for all."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from sparklog.cli import run
from sparklog.client import Admin, Consumer, Producer
from support.patience import PATIENCE_S, wait_until
from support.processes.broker import BrokerProcess

TOPIC, GROUP = "shared", "all-together"
PARTITIONS, EACH = 8, 100
SESSION_MS = 120_000
"""Nobody loses its partitions because the machine stands still: others would read again what is not committed."""
pytestmark = pytest.mark.slow

Place = tuple[int, int]
"""Partition and offset of a record."""
Reader = Callable[[BrokerProcess, threading.Event, list[Place]], None]
"""Reads the topic with one client until it is told to stop, then leaves, having committed what it found."""


def kafka_python(broker: BrokerProcess, stop: threading.Event, found: list[Place]) -> None:
    consumer = kafka.KafkaConsumer(
        TOPIC,
        bootstrap_servers=broker.kafka,
        group_id=GROUP,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=SESSION_MS,
    )
    while not stop.is_set():
        for records in consumer.poll(timeout_ms=100).values():
            found += [(record.partition, record.offset) for record in records]
    consumer.close()


def librdkafka(broker: BrokerProcess, stop: threading.Event, found: list[Place]) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.kafka,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": SESSION_MS,
        }
    )
    consumer.subscribe([TOPIC])
    while not stop.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append((message.partition(), message.offset()))
    consumer.close()


def aiokafka_client(broker: BrokerProcess, stop: threading.Event, found: list[Place]) -> None:
    async def read() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=broker.kafka,
            group_id=GROUP,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=SESSION_MS,
            partition_assignment_strategy=(RangePartitionAssignor,),  # what all the others offer as well
        )
        await consumer.start()
        while not stop.is_set():
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found.extend((record.partition, record.offset) for record in records)
        await consumer.stop()

    asyncio.run(read())


def over_grpc(broker: BrokerProcess, stop: threading.Event, found: list[Place]) -> None:
    with Consumer(
        bootstrap_servers=broker.grpc,
        group_id=GROUP,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=SESSION_MS,
    ) as consumer:
        consumer.subscribe([TOPIC])
        while not stop.is_set():
            found += [(record.partition, record.offset) for record in consumer.poll(100)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """The test's own: each client knows the topic and the group by name."""
    with BrokerProcess(tmp_path) as process:
        yield process


READERS: tuple[Reader, ...] = (kafka_python, librdkafka, aiokafka_client, over_grpc)


def all_have_a_part(admin: Admin) -> bool:
    [group] = admin.describe_groups([GROUP]) if any(each.group_id == GROUP for each in admin.list_groups()) else [None]
    parts = [len(member.assignment) for member in group.members] if group else []
    return len(parts) == len(READERS) and min(parts) > 0 and sum(parts) == PARTITIONS


def produce(broker: BrokerProcess) -> None:
    with Producer(bootstrap_servers=broker.grpc) as producer:
        for number in range(PARTITIONS * EACH):
            producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)


def test_four_makes_of_clients_share_a_topic(
    broker: BrokerProcess, admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.create_topic(TOPIC, partitions=PARTITIONS)
    stop = threading.Event()
    found: list[list[Place]] = [[] for _ in READERS]

    def tell() -> str:
        return f"{admin.describe_groups([GROUP])}, {[len(places) for places in found]} read\n{broker.log[-5_000:]}"

    threads = [
        threading.Thread(target=reader, args=(broker, stop, places))
        for reader, places in zip(READERS, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: all_have_a_part(admin), "all have a part", tell=tell, every_s=0.05)
        produce(broker)
        wait_until(lambda: sum(map(len, found)) >= PARTITIONS * EACH, "all records are read", tell=tell)
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)

    read = Counter(place for places in found for place in places)
    assert read == Counter((partition, offset) for partition in range(PARTITIONS) for offset in range(EACH))
    assert all(found), [len(places) for places in found]
    assert run(["groups", "describe", GROUP, "--json", "--bootstrap", broker.grpc]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["state"] == "Empty"
    assert [offset["lag"] for offset in described["offsets"]] == [0] * PARTITIONS
