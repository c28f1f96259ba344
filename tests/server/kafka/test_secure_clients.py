"""Client libraries on listeners with TLS and SASL."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AIOKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from support.kafka.secured_broker import MECHANISMS, Secured
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

NewName = Callable[[], str]
WAYS = [
    ("SSL", None),
    *(("SASL_SSL", mechanism) for mechanism in MECHANISMS),
    *(pytest.param("SASL_PLAINTEXT", mechanism, marks=pytest.mark.slow) for mechanism in MECHANISMS),
]
every_way = pytest.mark.parametrize(("protocol", "mechanism"), WAYS)


def librdkafka_options(secured: Secured, protocol: str, mechanism: str | None, password: str = "") -> dict[str, Any]:
    options = {
        "bootstrap.servers": secured.address(protocol),
        "security.protocol": protocol,
        "ssl.ca.location": str(secured.keys / "ca.pem"),
        "log_level": 0,
    }
    if mechanism is None:
        return options
    user, right = MECHANISMS[mechanism]
    return options | {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password or right}


def python_options(secured: Secured, protocol: str, mechanism: str | None, password: str = "") -> dict[str, Any]:
    """Options of kafka-python and of aiokafka."""
    options: dict[str, Any] = {"bootstrap_servers": secured.address(protocol), "security_protocol": protocol}
    if protocol.endswith("SSL"):
        options["ssl_context"] = ssl.create_default_context(cafile=str(secured.keys / "ca.pem"))
    if mechanism is None:
        return options
    user, right = MECHANISMS[mechanism]
    return options | {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password or right,
    }


@every_way
def test_librdkafka_writes_and_reads(secured: Secured, new_name: NewName, protocol: str, mechanism: str | None) -> None:
    options, topic = librdkafka_options(secured, protocol, mechanism), new_name()
    producer = Producer(options)
    producer.produce(topic, b"hello")
    assert producer.flush(PATIENCE_S) == 0

    consumer = Consumer(options | {"group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"hello")
    finally:
        consumer.close()


def test_what_is_larger_than_a_socket_takes_at_once_comes_whole(secured: Secured, new_name: NewName) -> None:
    options, topic = librdkafka_options(secured, "SSL", None), new_name()
    values = [bytes([number]) * 900_000 for number in range(10)]
    producer = Producer(options)
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0

    consumer = Consumer(options | {"group.id": topic, "fetch.message.max.bytes": 10_000_000})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in consumer.consume(len(values), PATIENCE_S)] == values
    finally:
        consumer.close()


@every_way
def test_kafka_python_writes_and_reads(
    secured: Secured, new_name: NewName, protocol: str, mechanism: str | None
) -> None:
    options, topic = python_options(secured, protocol, mechanism), new_name()
    producer = KafkaProducer(**options)
    consumer = KafkaConsumer(topic, **options, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_MS)
    try:
        producer.send(topic, b"hello").get(PATIENCE_S)
        assert next(consumer).value == b"hello"
    finally:
        producer.close()
        consumer.close()


@every_way
async def test_aiokafka_writes_and_reads(
    secured: Secured, new_name: NewName, protocol: str, mechanism: str | None
) -> None:
    options, topic = python_options(secured, protocol, mechanism), new_name()
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait(topic, b"hello")
    async with AIOKafkaConsumer(topic, **options, auto_offset_reset="earliest") as consumer:
        assert (await consumer.getone()).value == b"hello"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_says_that_a_password_is_wrong(secured: Secured, mechanism: str) -> None:
    errors: list[KafkaError] = []
    options = librdkafka_options(secured, "SASL_SSL", mechanism, password="wrong") | {"error_cb": errors.append}
    client = AdminClient(options)

    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.2)

    def has_said_so() -> bool:
        client.poll(0.1)
        return KafkaError._AUTHENTICATION in {error.code() for error in errors}

    wait_until(has_said_so, "it says that it is not let in", tell=lambda: errors)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_clients_in_python_say_that_a_password_is_wrong(secured: Secured, mechanism: str) -> None:
    options = python_options(secured, "SASL_PLAINTEXT", mechanism, password="wrong")

    with pytest.raises(KafkaPythonError):
        KafkaProducer(**options, bootstrap_timeout_ms=300)
    producer = AIOKafkaProducer(**options)
    with pytest.raises(AIOKafkaError):
        await producer.start()
    await producer.stop()
