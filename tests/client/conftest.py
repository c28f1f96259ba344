"""Clients of a real broker, closed at the end of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from sparklog.client import Admin, Consumer, ConsumerRecord, Producer
from sparklog.testing import RunningBroker
from support.patience import PATIENCE_MS

NewProducer = Callable[..., Producer]
NewConsumer = Callable[..., Consumer]


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def admin(sparklog_broker: RunningBroker, closing: ExitStack) -> Admin:
    return closing.enter_context(Admin(bootstrap_servers=sparklog_broker.bootstrap))


@pytest.fixture
def new_producer(sparklog_broker: RunningBroker, closing: ExitStack) -> NewProducer:
    """Producers of the test's broker; a short linger, so that tests do not wait."""

    def make(**options: Any) -> Producer:
        options = {"bootstrap_servers": sparklog_broker.bootstrap, "linger_ms": 1} | options
        return closing.enter_context(Producer(**options))

    return make


@pytest.fixture
def new_consumer(sparklog_broker: RunningBroker, closing: ExitStack) -> NewConsumer:
    """Consumers of the test's broker, from the earliest offset."""

    def make(**options: Any) -> Consumer:
        options = {"bootstrap_servers": sparklog_broker.bootstrap, "auto_offset_reset": "earliest"} | options
        return closing.enter_context(Consumer(**options))

    return make


@pytest.fixture
def read_all(new_consumer: NewConsumer) -> Callable[[str], list[ConsumerRecord]]:
    """Every record of a topic, by partition and offset."""

    def read(topic: str) -> list[ConsumerRecord]:
        with new_consumer() as consumer:
            ends = consumer.end_offsets(consumer.assign_topic(topic))
            wanted = sum(ends.values())
            records: list[ConsumerRecord] = []
            while len(records) < wanted:
                found = consumer.poll(PATIENCE_MS, max_records=10_000)
                assert found, f"{len(records)} of {wanted} records of {topic} have come"
                records += found
        return sorted(records, key=lambda record: (record.partition, record.offset))

    return read
