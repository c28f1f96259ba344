"""Transactions of librdkafka and kafka-python on a real broker, for readers of committed records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer

from sparklog.testing import RunningBroker, start_broker
from support.names import unique
from support.patience import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True, num_partitions=3, group_initial_rebalance_delay_ms=0) as running:
        yield running


@pytest.fixture
def producer(broker: RunningBroker) -> Producer:
    return new_producer(broker, unique("id"))


def new_producer(broker: RunningBroker, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    return producer


def read_committed(broker: RunningBroker, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.kafka, isolation_level="read_committed", auto_offset_reset="earliest",
        consumer_timeout_ms=2_000,
    )  # fmt: skip
    found = [record.value for record in consumer]
    consumer.close()
    assert len(found) == count, found
    return sorted(found)


def send(producer: Producer, topic: str, *values: bytes) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0


def test_a_transaction_is_seen_when_it_is_committed_and_never_when_it_is_aborted(
    broker: RunningBroker, producer: Producer
) -> None:
    topic = unique("t")
    producer.begin_transaction()
    send(producer, topic, b"a", b"b", b"c")
    assert read_committed(broker, topic, 0) == []

    producer.commit_transaction(PATIENCE_S)
    assert read_committed(broker, topic, 3) == [b"a", b"b", b"c"]

    producer.begin_transaction()
    send(producer, topic, b"x", b"y", b"z")
    producer.abort_transaction(PATIENCE_S)
    producer.begin_transaction()
    send(producer, topic, b"d", b"e", b"f")
    producer.commit_transaction(PATIENCE_S)

    assert read_committed(broker, topic, 6) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    everything = KafkaConsumer(
        topic, bootstrap_servers=broker.kafka, auto_offset_reset="earliest", consumer_timeout_ms=2_000
    )
    assert sorted(record.value for record in everything) == [b"a", b"b", b"c", b"d", b"e", b"f", b"x", b"y", b"z"]
    everything.close()


def test_a_producer_is_fenced_by_the_next_one_of_its_id(broker: RunningBroker) -> None:
    topic, transactional_id = unique("t"), unique("id")
    first = new_producer(broker, transactional_id)
    first.begin_transaction()
    send(first, topic, b"lost")

    second = new_producer(broker, transactional_id)
    second.begin_transaction()
    send(second, topic, b"kept")
    second.commit_transaction(PATIENCE_S)

    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    assert read_committed(broker, topic, 1) == [b"kept"]


def test_offsets_are_committed_with_the_transaction(broker: RunningBroker, producer: Producer) -> None:
    source, target, group = unique("s"), unique("t"), unique("g")
    feeder = Producer({"bootstrap.servers": broker.kafka})
    send(feeder, source, b"1", b"2", b"3")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka, "group.id": group, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "isolation.level": "read_committed",
        }
    )  # fmt: skip
    consumer.subscribe([source])
    taken = [consumer.poll(PATIENCE_S) for _ in range(3)]
    assert all(message is not None and message.error() is None for message in taken)

    producer.begin_transaction()
    send(producer, target, *(message.value() * 2 for message in taken))
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), PATIENCE_S
    )
    names = [TopicPartition(source, number) for number in range(3)]
    producer.abort_transaction(PATIENCE_S)
    assert {each.offset for each in consumer.committed(names, PATIENCE_S)} == {-1001}

    producer.begin_transaction()
    send(producer, target, *(message.value() * 2 for message in taken))
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), PATIENCE_S
    )
    producer.commit_transaction(PATIENCE_S)
    assert [each.offset for each in consumer.committed(names, PATIENCE_S)] == [1, 1, 1]
    assert read_committed(broker, target, 3) == [b"11", b"22", b"33"]
    consumer.close()


def test_kafka_python_commits_and_aborts(broker: RunningBroker) -> None:
    topic = unique("t")
    producer = KafkaProducer(bootstrap_servers=broker.kafka, transactional_id=unique("id"))
    producer.init_transactions()
    for value, ends in ((b"a", producer.commit_transaction), (b"b", producer.abort_transaction)):
        producer.begin_transaction()
        producer.send(topic, value, partition=0).get(PATIENCE_S)
        ends()
    producer.close()

    assert read_committed(broker, topic, 1) == [b"a"]
