"""Kafka's clients produce and consume: every codec, in both directions with sparklog's client, offsets, changes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

import sparklog.client
from sparklog.base.ids import TopicPartition
from sparklog.testing import RunningBroker
from support.patience import PATIENCE_MS, PATIENCE_S

pytestmark = pytest.mark.slow

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KAFKA_PYTHON_CODECS = ("none", "gzip", "zstd")  # the others want libraries of their own
TIMESTAMP = 1_700_000_000_000


class Librdkafka:
    """confluent-kafka, with short forms of common calls."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._closing: list[Any] = []

    def producer(self, **config: Any) -> confluent_kafka.Producer:
        return confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, **config})

    def consumer(self, **config: Any) -> confluent_kafka.Consumer:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest",
                "enable.auto.commit": False, "fetch.wait.max.ms": 100, "topic.metadata.refresh.interval.ms": 200,
                "reconnect.backoff.ms": 10, "log_level": 0, **config,
            }
        )  # fmt: skip
        self._closing.append(consumer)
        return consumer

    def read(self, topic: str, count: int, partition: int = 0, offset: int = 0, **config: Any) -> list[Any]:
        consumer = self.consumer(**config)
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
        return take(consumer, count)

    def close(self) -> None:
        for consumer in self._closing:
            consumer.close()


def take(consumer: confluent_kafka.Consumer, count: int) -> list[Any]:
    """The next `count` messages, errors included."""
    messages = []
    while len(messages) < count:
        found = consumer.consume(count - len(messages), timeout=PATIENCE_S)
        assert found, f"{len(messages)} of {count} messages came"
        messages += found
    return messages


def send(producer: confluent_kafka.Producer, topic: str, *values: bytes | None, **fields: Any) -> list[Any]:
    """The result of each record."""
    reports: list[Any] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, message: reports.append(error or message), **fields)
    assert producer.flush(PATIENCE_S) == 0
    return reports


@pytest.fixture
def librdkafka(kafka_bootstrap: str) -> Iterator[Librdkafka]:
    client = Librdkafka(kafka_bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(kafka_broker: RunningBroker, new_name) -> str:
    name = new_name()
    kafka_broker.run(kafka_broker.node.broker.services.topics.create(name, partitions=1))
    return name


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_to_every_client(
    librdkafka: Librdkafka, kafka_broker: RunningBroker, kafka_bootstrap: str, topic: str, codec: str
) -> None:
    values = [b"%05d" % number * 20 for number in range(100)]
    producer = librdkafka.producer(**{"compression.type": codec, "linger.ms": 50})
    reports = send(producer, topic, *values)
    assert [report.offset() for report in reports] == list(range(100))
    assert [message.value() for message in librdkafka.read(topic, 100)] == values
    if codec in KAFKA_PYTHON_CODECS:
        with kafka.KafkaConsumer(bootstrap_servers=kafka_bootstrap, consumer_timeout_ms=PATIENCE_MS) as consumer:
            consumer.assign([kafka.TopicPartition(topic, 0)])
            consumer.seek_to_beginning()
            assert [next(consumer).value for _ in values] == values
    with sparklog.client.Consumer(bootstrap_servers=kafka_broker.bootstrap) as ours:
        ours.assign([TopicPartition(topic, 0)])
        ours.seek_to_beginning()
        found: list[bytes] = []
        while len(found) < 100:
            found += [record.value for record in ours.poll(timeout_ms=PATIENCE_MS)]
    assert found == values


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_kafka_python_to_librdkafka(librdkafka: Librdkafka, kafka_bootstrap: str, topic: str, codec: str) -> None:
    with kafka.KafkaProducer(
        bootstrap_servers=kafka_bootstrap, compression_type=None if codec == "none" else codec, linger_ms=50
    ) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, key=b"key")
    assert [message.value() for message in librdkafka.read(topic, 100)] == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("codec", [*CODECS[1:], None])
async def test_aiokafka_there_and_back(kafka_bootstrap: str, topic: str, codec: str | None) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka_bootstrap, compression_type=codec) as producer:
        for number in range(20):
            await producer.send(topic, b"%d" % number)
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=kafka_bootstrap) as consumer:
        part = aiokafka.TopicPartition(topic, 0)
        consumer.assign([part])
        await consumer.seek_to_beginning(part)
        assert [(await consumer.getone()).value for _ in range(20)] == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("codec", CODECS)
def test_our_producer_to_librdkafka(
    librdkafka: Librdkafka, kafka_broker: RunningBroker, topic: str, codec: str
) -> None:
    with sparklog.client.Producer(bootstrap_servers=kafka_broker.bootstrap, compression_type=codec) as producer:
        for number in range(20):
            producer.send(topic, value=b"%d" % number, headers=[("h", b"1")])
    messages = librdkafka.read(topic, 20)
    assert [message.value() for message in messages] == [b"%d" % number for number in range(20)]
    assert messages[0].headers() == [("h", b"1")]


def test_keys_headers_timestamps_and_nulls(librdkafka: Librdkafka, topic: str) -> None:
    producer = librdkafka.producer()
    send(producer, topic, b"v", key=b"k", headers=[("a", b"1"), ("a", None)], timestamp=TIMESTAMP)
    send(producer, topic, None, key=b"tombstone")
    send(producer, topic, b"", key=None)
    first, second, third = librdkafka.read(topic, 3)
    assert (first.key(), first.headers(), first.timestamp()) == (b"k", [("a", b"1"), ("a", None)], (1, TIMESTAMP))
    assert (second.key(), second.value()) == (b"tombstone", None)
    assert (third.key(), third.value()) == (None, b"")


def test_log_append_time(librdkafka: Librdkafka, kafka_broker: RunningBroker, new_name) -> None:
    name, services = new_name(), kafka_broker.node.broker.services
    config = {"message.timestamp.type": "LogAppendTime"}
    kafka_broker.run(services.topics.create(name, partitions=1, overrides=config))
    before = services.clock.time_ms()
    (report,) = send(librdkafka.producer(), name, b"v", timestamp=5)
    (message,) = librdkafka.read(name, 1)
    kind, timestamp = message.timestamp()
    assert kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
    assert before <= timestamp <= services.clock.time_ms()
    assert report.timestamp() == (kind, timestamp)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(librdkafka: Librdkafka, topic: str, acks: int | str) -> None:
    send(librdkafka.producer(acks=acks), topic, b"a", b"b", partition=0)
    assert [message.value() for message in librdkafka.read(topic, 2)] == [b"a", b"b"]


def test_large_batches(librdkafka: Librdkafka, topic: str) -> None:
    values = [bytes([number]) * 900_000 for number in range(5)]
    send(librdkafka.producer(), topic, *values)
    assert [message.value() for message in librdkafka.read(topic, 5)] == values


def test_a_record_that_is_too_large_is_refused(librdkafka: Librdkafka, topic: str) -> None:
    (report,) = send(librdkafka.producer(**{"message.max.bytes": 3_000_000}), topic, b"x" * 2_000_000)
    assert report.code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE


def test_topics_are_created_for_who_asks(librdkafka: Librdkafka, kafka_broker: RunningBroker, new_name) -> None:
    name = new_name()
    (report,) = send(librdkafka.producer(), name, b"v")
    assert report.offset() == 0
    assert name in kafka_broker.node.broker.services.metadata


def test_offsets_for_times_and_watermarks(librdkafka: Librdkafka, topic: str) -> None:
    producer = librdkafka.producer()
    for number in range(3):
        send(producer, topic, b"v", timestamp=TIMESTAMP + number * 1000)
    consumer = librdkafka.consumer()
    asked = [confluent_kafka.TopicPartition(topic, 0, TIMESTAMP + at) for at in (0, 1, 2000)]
    assert [consumer.offsets_for_times([part], PATIENCE_S)[0].offset for part in asked] == [0, 1, 2]
    late = confluent_kafka.TopicPartition(topic, 0, TIMESTAMP + 2001)
    assert consumer.offsets_for_times([late], PATIENCE_S)[0].offset == confluent_kafka.OFFSET_END
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), PATIENCE_S) == (0, 3)


def test_seek(librdkafka: Librdkafka, topic: str) -> None:
    send(librdkafka.producer(), topic, *(b"%d" % number for number in range(10)))
    consumer = librdkafka.consumer()
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 8)])
    assert [message.value() for message in take(consumer, 2)] == [b"8", b"9"]
    consumer.seek(confluent_kafka.TopicPartition(topic, 0, 3))
    assert take(consumer, 1)[0].value() == b"3"


def test_many_partitions_of_one_consumer(librdkafka: Librdkafka, kafka_broker: RunningBroker, new_name) -> None:
    name, count = new_name(), 100
    kafka_broker.run(kafka_broker.node.broker.services.topics.create(name, partitions=count))
    consumer = librdkafka.consumer()
    consumer.assign([confluent_kafka.TopicPartition(name, number, 0) for number in range(count)])
    producer = librdkafka.producer()
    for value in (b"first", b"second"):
        for number in range(count):
            producer.produce(name, value, partition=number)
        producer.flush(PATIENCE_S)
        messages = take(consumer, count)
        assert sorted(message.partition() for message in messages) == list(range(count))
        assert {message.value() for message in messages} == {value}


@pytest.mark.parametrize("sessions", [True, False])
def test_kafka_python_reads_many_partitions(
    kafka_broker: RunningBroker, kafka_bootstrap: str, new_name, sessions: bool
):
    name, count = new_name(), 50
    kafka_broker.run(kafka_broker.node.broker.services.topics.create(name, partitions=count))
    with (
        kafka.KafkaProducer(bootstrap_servers=kafka_bootstrap) as producer,
        kafka.KafkaConsumer(
            bootstrap_servers=kafka_bootstrap, consumer_timeout_ms=PATIENCE_MS, fetch_max_wait_ms=100,
            enable_incremental_fetch_sessions=sessions,
        ) as consumer,
    ):  # fmt: skip
        consumer.assign([kafka.TopicPartition(name, number) for number in range(count)])
        consumer.seek_to_beginning()
        for value in (b"first", b"second", b"third"):
            for number in range(count):
                producer.send(name, value, partition=number)
            producer.flush()
            messages = [next(consumer) for _ in range(count)]
            assert sorted(message.partition for message in messages) == list(range(count))
            assert {message.value for message in messages} == {value}
    opened = len(kafka_broker.node.broker.services.fetch_sessions)
    assert opened > 0 or not sessions


def test_partitions_that_are_added_under_a_producer(
    librdkafka: Librdkafka, kafka_broker: RunningBroker, topic: str
) -> None:
    producer = librdkafka.producer(**{"topic.metadata.refresh.interval.ms": 100})
    send(producer, topic, b"a", partition=0)
    kafka_broker.run(kafka_broker.node.broker.services.topics.grow(topic, 2))
    librdkafka_sees = producer.list_topics(topic, PATIENCE_S).topics[topic].partitions
    assert sorted(librdkafka_sees) == [0, 1]
    (report,) = send(producer, topic, b"b", partition=1)
    assert (report.partition(), report.offset()) == (1, 0)
    assert librdkafka.read(topic, 1, partition=1)[0].value() == b"b"


def test_a_topic_that_is_deleted_and_created_again_under_a_consumer(
    librdkafka: Librdkafka, kafka_broker: RunningBroker, topic: str
) -> None:
    topics = kafka_broker.node.broker.services.topics
    send(librdkafka.producer(), topic, b"old")
    consumer = librdkafka.consumer()
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    assert take(consumer, 1)[0].value() == b"old"
    kafka_broker.run(topics.delete(topic))
    kafka_broker.run(topics.create(topic, partitions=1))
    send(librdkafka.producer(), topic, b"new", b"newer")
    values: list[bytes] = []
    while b"newer" not in values:
        values += [message.value() for message in take(consumer, 1) if not message.error()]
    assert values[-1] == b"newer"


def test_a_log_start_that_moves_past_a_consumer(
    librdkafka: Librdkafka, kafka_broker: RunningBroker, topic: str
) -> None:
    for value in (b"0", b"1", b"2"):
        send(librdkafka.producer(), topic, value)
    kafka_broker.node.broker.services.replicas.get(TopicPartition(topic, 0)).log.advance_log_start(2)
    assert [message.value() for message in librdkafka.read(topic, 1)] == [b"2"]
    refusing = librdkafka.read(topic, 1, **{"auto.offset.reset": "error"})
    assert refusing[0].error().code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET
