"""The producer against a real broker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from sparklog.base.errors import (
    BufferExhausted,
    ClosedError,
    DeliveryTimeout,
    InvalidPartitions,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    MessageTooLarge,
    NetworkException,
    SparklogError,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.murmur2 import partition_for_key
from sparklog.client import Admin, ConsumerRecord, Producer, ProducerRecord, RecordMetadata
from sparklog.client.aio import AsyncProducer
from sparklog.client.serializers import to_json, to_long
from sparklog.testing import RunningBroker, start_broker
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

NewProducer = Callable[..., Producer]
ReadAll = Callable[[str], list[ConsumerRecord]]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_sent_is_read_back_with_every_codec(
    codec: str, admin: Admin, new_producer: NewProducer, read_all: ReadAll
) -> None:
    admin.create_topic("t")
    producer = new_producer(compression_type=codec)
    producer.send("t", b"value", b"key", headers=[("h", b"1"), ("h", None), ("ü", b"")], timestamp_ms=1234)
    producer.send("t", None, "schlüssel", headers={"one": "two"}, timestamp_ms=7)
    producer.send("t", bytearray(b"only a value"), timestamp_ms=8)
    producer.flush()

    assert read_all("t") == [
        ConsumerRecord("t", 0, 0, 1234, 0, b"key", b"value", (("h", b"1"), ("h", None), ("ü", b""))),
        ConsumerRecord("t", 0, 1, 7, 0, "schlüssel".encode(), None, (("one", b"two"),)),
        ConsumerRecord("t", 0, 2, 8, 0, None, b"only a value", ()),
    ]


def test_a_delivery_says_where_the_record_is(admin: Admin, new_producer: NewProducer) -> None:
    admin.create_topic("t", partitions=3)
    producer = new_producer()

    deliveries = [producer.send("t", b"v", partition=2, timestamp_ms=100 + number) for number in range(3)]

    assert [delivery.result(PATIENCE_S) for delivery in deliveries] == [
        RecordMetadata("t", 2, number, 100 + number) for number in range(3)
    ]


def test_without_a_timestamp_it_is_now(admin: Admin, new_producer: NewProducer) -> None:
    admin.create_topic("t")
    before_ms = time.time_ns() // 1_000_000

    timestamp_ms = new_producer().send("t", b"v").result(PATIENCE_S).timestamp_ms

    assert before_ms <= timestamp_ms <= time.time_ns() // 1_000_000


def test_the_brokers_timestamp_is_told_where_it_counts(admin: Admin, new_producer: NewProducer) -> None:
    admin.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})

    assert new_producer().send("t", b"v", timestamp_ms=5).result(PATIENCE_S).timestamp_ms > 10**12


def test_a_key_goes_where_kafka_would_put_it(admin: Admin, new_producer: NewProducer) -> None:
    admin.create_topic("t", partitions=7)
    producer = new_producer()
    keys = [f"key-{number}" for number in range(200)]

    deliveries = [producer.send("t", b"v", key) for key in keys]

    assert [delivery.result(PATIENCE_S).partition for delivery in deliveries] == [
        partition_for_key(key.encode(), 7) for key in keys
    ]


def test_a_partitioner_of_ones_own_decides_or_leaves_it_to_the_sticky_partition(
    admin: Admin, new_producer: NewProducer
) -> None:
    admin.create_topic("t", partitions=3)
    producer = new_producer(partitioner=lambda topic, key, partitions: {b"last": partitions - 1, b"wrong": 9}.get(key))

    assert producer.send("t", b"v", b"last").result(PATIENCE_S).partition == 2
    assert producer.send("t", b"v", b"other").result(PATIENCE_S).partition in range(3)
    with pytest.raises(InvalidPartitions, match="partitions 0 to 2, not 9"):
        producer.send("t", b"v", b"wrong")


def test_callbacks_get_the_metadata_and_may_fail(
    admin: Admin, new_producer: NewProducer, caplog: pytest.LogCaptureFixture
) -> None:
    admin.create_topic("t")
    seen: list[tuple[RecordMetadata | None, SparklogError | None]] = []
    producer = new_producer()

    producer.send("t", b"v", timestamp_ms=1, on_delivery=lambda metadata, error: 1 / 0)
    producer.send("t", b"v", timestamp_ms=2, on_delivery=lambda metadata, error: seen.append((metadata, error)))
    producer.flush()

    assert seen == [(RecordMetadata("t", 0, 1, 2), None)]
    assert "on_delivery callback failed" in caplog.text


def test_serializers_make_bytes_and_never_see_none(admin: Admin, new_producer: NewProducer, read_all: ReadAll) -> None:
    admin.create_topic("t")
    producer = new_producer(key_serializer=to_long, value_serializer=to_json)
    producer.send("t", {"a": [1, "é"]}, 7, timestamp_ms=1)
    producer.send("t", None, None, timestamp_ms=1)
    producer.flush()

    assert [(record.key, record.value) for record in read_all("t")] == [
        (bytes(7) + b"\x07", '{"a":[1,"é"]}'.encode()),
        (None, None),
    ]
    with pytest.raises(TypeError):
        producer.send("t", object())


class Stamp:
    """An interceptor: adds a header, counts acknowledgements."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(headers=[*record.headers, ("stamp", b"1")])

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: SparklogError | None) -> None:
        assert metadata
        self.acknowledged.append(metadata.offset)


class Broken:
    """An interceptor whose methods all raise."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ValueError("broken on_send")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: SparklogError | None) -> None:
        raise ValueError("broken on_acknowledgement")


class Forgetful:
    """An interceptor without a returned record and without on_acknowledgement."""

    def on_send(self, record: ProducerRecord) -> Any:
        return None


def test_interceptors_see_every_record_and_a_broken_one_loses_none(
    admin: Admin, new_producer: NewProducer, read_all: ReadAll, caplog: pytest.LogCaptureFixture
) -> None:
    admin.create_topic("t")
    stamp = Stamp()
    called = []
    producer = new_producer(interceptors=[Broken(), stamp, Forgetful(), Broken()])

    for number in range(3):
        producer.send("t", b"%d" % number, on_delivery=lambda metadata, error: called.append(metadata))
    producer.flush()

    records = read_all("t")
    assert [(record.value, record.headers) for record in records] == [
        (b"%d" % number, (("stamp", b"1"),)) for number in range(3)
    ]
    assert stamp.acknowledged == [0, 1, 2]
    assert len(called) == 3
    for message in ("failed in on_send", "not a record", "failed in on_acknowledgement"):
        assert message in caplog.text


def test_flush_returns_when_everything_is_acknowledged(admin: Admin, new_producer: NewProducer) -> None:
    admin.create_topic("t", partitions=4)
    producer = new_producer(linger_ms=60_000)
    deliveries = [producer.send("t", b"v", f"{number}") for number in range(100)]
    assert not deliveries[0].done()

    producer.flush()

    assert all(delivery.done() for delivery in deliveries)


def test_closing_sends_what_is_left_and_refuses_more(admin: Admin, new_producer: NewProducer) -> None:
    admin.create_topic("t")
    producer = new_producer(linger_ms=60_000)
    delivery = producer.send("t", b"v")

    producer.close()
    producer.close()

    assert delivery.result(0).offset == 0
    with pytest.raises(ClosedError):
        producer.send("t", b"v")
    with pytest.raises(ClosedError):
        producer.send("another", b"v")


@pytest.mark.parametrize(("acks", "offset"), [("all", 0), (1, 0), (0, -1)])
def test_acks_say_what_is_waited_for(
    acks: Any, offset: int, admin: Admin, new_producer: NewProducer, read_all: ReadAll
) -> None:
    admin.create_topic("t")
    producer = new_producer(acks=acks)

    assert producer.send("t", b"v").result(PATIENCE_S).offset == offset
    assert [record.value for record in read_all("t")] == [b"v"]


def test_records_that_can_never_be_written_are_refused_at_once(admin: Admin, new_producer: NewProducer) -> None:
    admin.create_topic("t", partitions=2)
    producer = new_producer(max_request_size=1_000)
    wrong: list[tuple[type[SparklogError], dict[str, Any]]] = [
        (MessageTooLarge, {"value": b"x" * 1_000}),
        (MessageTooLarge, {"value": b"v", "headers": [("h", b"x" * 1_000)]}),
        (InvalidRecord, {"value": 7}),
        (InvalidRecord, {"key": 7}),
        (InvalidRecord, {"value": "\ud800"}),
        (InvalidRecord, {"headers": [(b"h", b"v")]}),
        (InvalidRecord, {"headers": [("\ud800", b"v")]}),
        (InvalidRecord, {"headers": {"h": 1}}),
        (InvalidTimestamp, {"timestamp_ms": -1}),
        (InvalidTimestamp, {"timestamp_ms": 1.5}),
        (InvalidTimestamp, {"timestamp_ms": 2**63}),
        (InvalidPartitions, {"partition": 2}),
        (InvalidPartitions, {"partition": -1}),
    ]
    for error, record in wrong:
        with pytest.raises(error):
            producer.send("t", **record)

    assert producer.send("t", b"fine").result(PATIENCE_S).offset == 0


def test_a_topic_that_nobody_created_is_created_if_the_broker_allows_it(
    new_producer: NewProducer, read_all: ReadAll
) -> None:
    assert new_producer().send("new", b"v").result(PATIENCE_S).offset == 0
    assert [record.value for record in read_all("new")] == [b"v"]


def test_a_topic_that_is_not_there_is_an_error_if_it_does_not() -> None:
    with (
        start_broker(auto_create_topics_enable=False) as broker,
        Producer(bootstrap_servers=broker.bootstrap) as producer,
    ):
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'new'"):
            producer.send("new", b"v")
        with pytest.raises(InvalidTopic):
            producer.send("no/such", b"v")


def test_partitions_that_were_added_are_found_when_they_are_asked_for(admin: Admin, new_producer: NewProducer) -> None:
    admin.create_topic("t")
    producer = new_producer()
    producer.send("t", b"v").result(PATIENCE_S)
    admin.create_partitions("t", 3)

    assert producer.send("t", b"v", partition=2, timestamp_ms=1).result(PATIENCE_S) == RecordMetadata("t", 2, 0, 1)
    assert producer.partitions_for("t") == [0, 1, 2]


def test_a_batch_larger_than_the_topic_takes_is_split_in_order(
    admin: Admin, new_producer: NewProducer, read_all: ReadAll
) -> None:
    admin.create_topic("t", configs={"max.message.bytes": "3000"})
    producer = new_producer(linger_ms=50)
    values = [b"%03d" % number + b"x" * 500 for number in range(100)]
    called: list[int] = []

    deliveries = [
        producer.send(
            "t", value, on_delivery=lambda metadata, error: called.append(metadata.offset if metadata else -1)
        )
        for value in values
    ]
    producer.flush()

    assert [delivery.result(0).offset for delivery in deliveries] == list(range(100))
    assert called == list(range(100))
    assert [record.value for record in read_all("t")] == values
    with pytest.raises(MessageTooLarge):
        producer.send("t", b"x" * 4_000).result(PATIENCE_S)


def test_a_full_buffer_makes_send_wait_until_there_is_room(
    admin: Admin, new_producer: NewProducer, read_all: ReadAll
) -> None:
    admin.create_topic("t")
    producer = new_producer(buffer_memory=20_000, batch_size=5_000, linger_ms=60_000)

    for number in range(1_000):  # forty times what the buffer holds
        producer.send("t", b"%04d" % number + b"x" * 800)
    producer.flush()

    assert [record.value and record.value[:4] for record in read_all("t")] == [b"%04d" % n for n in range(1_000)]


def has_sent(producer: Producer) -> bool:
    try:
        return producer.send("t", b"v").result(PATIENCE_S).offset >= 0
    except (NetworkException, DeliveryTimeout):
        return False


def test_a_buffer_that_stays_full_is_an_error_after_max_block_ms(admin: Admin, sparklog_broker: RunningBroker) -> None:
    admin.create_topic("t")
    producer = Producer(
        bootstrap_servers=sparklog_broker.bootstrap, buffer_memory=2_000, max_block_ms=2_000, delivery_timeout_ms=60_000
    )
    wait_until(lambda: has_sent(producer), "a record is sent in the short time that it has")
    sparklog_broker.stop()
    delivery = producer.send("t", b"x" * 1_500)

    with pytest.raises(BufferExhausted, match=r"buffer_memory = 2000 stayed used up for .*: no broker answers"):
        producer.send("t", b"x" * 1_500)

    producer.close(timeout_ms=0)
    with pytest.raises(ClosedError):
        delivery.result(PATIENCE_S)


def test_records_that_no_broker_takes_time_out(admin: Admin, sparklog_broker: RunningBroker) -> None:
    admin.create_topic("t")
    errors: list[SparklogError | None] = []
    with Producer(bootstrap_servers=sparklog_broker.bootstrap, delivery_timeout_ms=300, linger_ms=0) as producer:
        wait_until(lambda: has_sent(producer), "a record is sent in the short time that it has")
        sparklog_broker.stop()

        delivery = producer.send("t", b"v", on_delivery=lambda metadata, error: errors.append(error))

        with pytest.raises(DeliveryTimeout, match="no broker answers at"):
            delivery.result(PATIENCE_S)
        assert [type(error) for error in errors] == [DeliveryTimeout]


def test_where_no_broker_is_send_says_so_after_max_block_ms() -> None:
    with (
        Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=1_000) as producer,
        pytest.raises(NetworkException, match=r"no broker answers at 127\.0\.0\.1:1"),
    ):
        producer.send("t", b"v")


def test_many_threads_may_send_at_once(admin: Admin, new_producer: NewProducer, read_all: ReadAll) -> None:
    admin.create_topic("t", partitions=2)
    producer = new_producer(batch_size=2_000)

    def send(thread: int) -> None:
        for number in range(500):
            producer.send("t", b"%d" % number, b"%d" % thread)

    threads = [threading.Thread(target=send, args=[thread]) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush()

    for thread in range(4):
        sent = [record.value for record in read_all("t") if record.key == b"%d" % thread]
        assert sent == [b"%d" % number for number in range(500)]


async def test_on_an_event_loop_sending_and_waiting_are_awaited(sparklog_broker: RunningBroker) -> None:
    async with AsyncProducer(bootstrap_servers=sparklog_broker.bootstrap, linger_ms=1) as producer:
        deliveries = [await producer.send("t", b"%d" % number, timestamp_ms=number) for number in range(10)]
        await producer.flush(PATIENCE_MS)

        assert await deliveries[9] == RecordMetadata("t", 0, 9, 9)
        assert (await (await producer.send("t", b"v"))).offset == 10
        assert await producer.partitions_for("t") == [0]


async def test_a_flush_that_takes_too_long_says_so(sparklog_broker: RunningBroker) -> None:
    producer = AsyncProducer(bootstrap_servers=sparklog_broker.bootstrap, linger_ms=1)
    await (await producer.send("t", b"v"))
    sparklog_broker.run(sparklog_broker.node.stop())
    await producer.send("t", b"v")

    with pytest.raises(DeliveryTimeout, match="within 50 ms"):
        await producer.flush(50)
    await producer.close(timeout_ms=50)


def test_a_failure_is_logged_once_for_a_batch(
    admin: Admin, new_producer: NewProducer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    admin.create_topic("t", configs={"max.message.bytes": "100"})
    delivery = new_producer().send("t", b"x" * 500)

    with pytest.raises(MessageTooLarge):
        delivery.result(PATIENCE_S)
    assert "1 records for partition t-0 were not delivered" in caplog.text


def test_delete_records_does_not_disturb_a_producer(admin: Admin, new_producer: NewProducer) -> None:
    admin.create_topic("t")
    producer = new_producer()
    producer.send("t", b"a").result(PATIENCE_S)
    admin.delete_records({TopicPartition("t", 0): -1})

    assert producer.send("t", b"b").result(PATIENCE_S).offset == 1
