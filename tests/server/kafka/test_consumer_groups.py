"""Consumers of several client libraries in one group, through failures of members and of the broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as CkPartition
from kafka import KafkaConsumer

from sparklog.testing import RunningBroker, start_broker
from support.patience import PATIENCE_S
from support.processes.broker import BrokerProcess

pytestmark = pytest.mark.slow

PARTITIONS = 4
CRASHING = """
import sys
from kafka import KafkaConsumer
consumer = KafkaConsumer(
    sys.argv[2], bootstrap_servers=sys.argv[1], group_id=sys.argv[3], metadata_max_age_ms=500,
    session_timeout_ms=4000, heartbeat_interval_ms=200
)
while True:
    consumer.poll(timeout_ms=1000)
    if consumer.assignment():
        print(len(consumer.assignment()), flush=True)
"""
NewName = Callable[[], str]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(
        listeners=("PLAINTEXT://127.0.0.1:0",),
        num_partitions=PARTITIONS,
        offsets_topic_num_partitions=5,
        group_initial_rebalance_delay_ms=0,
        group_min_session_timeout_ms=500,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(broker: RunningBroker) -> str:
    return str(broker.node.kafka_addresses["PLAINTEXT"])


@pytest.fixture
def topic(bootstrap: str, new_name: NewName) -> str:
    name = new_name()
    produce(bootstrap, name, range(20))
    return name


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


@pytest.fixture
def librdkafka(bootstrap: str, new_name: NewName) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def consume(topic: str, group: str, **config: Any) -> Consumer:
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
            | {name.replace("_", "."): value for name, value in config.items()}
        )
        consumer.subscribe([topic])
        made.append(consumer)
        return consumer

    yield consume
    for consumer in made:
        consumer.close()


@pytest.fixture
def kafka_python(bootstrap: str) -> Iterator[Callable[..., KafkaConsumer]]:
    made: list[KafkaConsumer] = []

    def consume(topic: str, group: str, **config: Any) -> KafkaConsumer:
        config = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, "metadata_max_age_ms": 500} | config
        made.append(KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, **config))
        return made[-1]

    yield consume
    for consumer in made:
        consumer.close(autocommit=False)


def assigned(consumer: Consumer | KafkaConsumer) -> set[int]:
    return {partition.partition for partition in consumer.assignment()}


def poll_until(done: Callable[[], bool], *consumers: Consumer | KafkaConsumer) -> list[bytes]:
    """Poll all until `done`; what they read.

    A KafkaConsumer of kafka-python 3.0 whose poll ends at the moment at which it joins takes itself for joined, has no
    partitions and sends no heartbeats any more: the longer the polls, the less that happens.
    """
    values: list[bytes] = []
    until = monotonic() + PATIENCE_S
    while not done():
        assert monotonic() < until, [assigned(consumer) for consumer in consumers]
        for consumer in consumers:
            if isinstance(consumer, KafkaConsumer):
                values += [record.value for records in consumer.poll(timeout_ms=250).values() for record in records]
            else:
                values += [message.value() for message in consumer.consume(100, 0.05) if not message.error()]
    return values


def test_clients_of_two_makers_share_a_topic_and_one_takes_over_from_the_other(
    topic: str, new_name: NewName, librdkafka: Callable[..., Consumer], kafka_python: Callable[..., KafkaConsumer]
) -> None:
    group = new_name()
    first = librdkafka(topic, group, partition_assignment_strategy="range", heartbeat_interval_ms=100)
    poll_until(lambda: len(assigned(first)) == PARTITIONS, first)
    second = kafka_python(topic, group)

    poll_until(lambda: len(assigned(first)) == len(assigned(second)) == PARTITIONS // 2, first, second)

    assert assigned(first) | assigned(second) == set(range(PARTITIONS))
    second.close()
    poll_until(lambda: len(assigned(first)) == PARTITIONS, first)


def test_a_group_reads_on_where_it_committed(
    bootstrap: str, topic: str, new_name: NewName, librdkafka: Callable[..., Consumer]
) -> None:
    group = new_name()
    consumer = librdkafka(topic, group, enable_auto_commit=False)
    seen = read(consumer, 20)
    consumer.commit(asynchronous=False)
    consumer.close()
    produce(bootstrap, topic, range(20, 24))

    more = read(librdkafka(topic, group, enable_auto_commit=False), 4)

    assert sorted(map(int, seen)) == list(range(20))
    assert sorted(map(int, more)) == list(range(20, 24))


def read(consumer: Consumer, count: int) -> list[bytes]:
    messages = []
    until = monotonic() + PATIENCE_S
    while len(messages) < count and monotonic() < until:
        messages += consumer.consume(count - len(messages), 0.2)
    return [message.value() for message in messages]


def test_the_partitions_of_a_member_that_was_killed_go_to_the_others(
    bootstrap: str, topic: str, new_name: NewName, kafka_python: Callable[..., KafkaConsumer]
) -> None:
    group = new_name()
    with subprocess.Popen(
        [sys.executable, "-c", CRASHING, bootstrap, topic, group], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as victim:
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline().strip() == str(PARTITIONS).encode()
            survivor = kafka_python(topic, group)
            poll_until(lambda: len(assigned(survivor)) == PARTITIONS // 2, survivor)
        finally:
            victim.kill()

    poll_until(lambda: len(assigned(survivor)) == PARTITIONS, survivor)


def test_what_is_committed_survives_a_broker_that_was_killed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    found: list[int] = []
    for offset in (7, None):
        broker.start()
        try:
            found.append(commit_and_fetch(broker.kafka, offset))
        finally:
            broker.kill()

    assert found == [7, 7]


def commit_and_fetch(bootstrap: str, offset: int | None) -> int:
    """As a member of a group: commit an offset, if there is one, and return the committed one."""
    produce(bootstrap, "kept", range(1))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.subscribe(["kept"])
    poll_until(lambda: bool(consumer.assignment()), consumer)
    if offset is not None:
        consumer.commit(offsets=[CkPartition("kept", 0, offset)], asynchronous=False)
    (committed,) = consumer.committed([CkPartition("kept", 0)], timeout=PATIENCE_S)
    consumer.close()
    return int(committed.offset)


def test_a_lost_topic_takes_its_offsets_with_it(broker: RunningBroker, bootstrap: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "of-a-lost-topic"})
    consumer.commit(offsets=[CkPartition(topic, 0, 3)], asynchronous=False)
    assert [each.offset for each in consumer.committed([CkPartition(topic, 0)])] == [3]

    services = broker.node.broker.services
    ids = {topic: services.metadata.get(topic).topic_id}
    broker.run(services.topics.delete(topic))
    broker.run(services.groups.delete_topics(ids))
    produce(bootstrap, topic, range(4))

    assert [each.offset for each in consumer.committed([CkPartition(topic, 0)])] == [-1001]
    consumer.close()
