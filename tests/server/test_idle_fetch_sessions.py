"""Fetch sessions of many partitions with few changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.broker import fetch_sessions
from sparklog.testing import RunningBroker, start_broker
from support.brokers.most_calls import fewest_calls
from support.kafka.connection import Wire
from support.kafka.topic import MEBIBYTE, Topic, make_batch, values_in

pytestmark = pytest.mark.slow

FETCH, DELETE_RECORDS = 1, 21
MANY = 400
MOST_CALLS = 600
"""For a fetch and its answer: far fewer than two for each of MANY partitions."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True) as started:
        yield started


@pytest.fixture
def wire(broker: RunningBroker) -> Iterator[Wire]:
    host, _, port = broker.kafka.rpartition(":")
    with Wire((host, int(port))) as connection:
        yield connection


def topic_of(broker: RunningBroker, wire: Wire, partitions: int) -> Topic:
    name = f"t{next(_numbers)}"
    broker.run(broker.node.broker.services.topics.create(name, partitions=partitions))
    return Topic(wire, name)


_numbers = iter(range(1 << 30))


class Consumer:
    """Reads a topic in one session, and sends only partitions with new records, as Kafka's consumers do."""

    def __init__(self, wire: Wire, topic: Topic, partitions: int) -> None:
        self.positions = dict.fromkeys(range(partitions), 0)
        self.log_starts = dict.fromkeys(range(partitions), 0)
        self.values: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        self._wire, self._topic = wire, topic
        self._session_id, self._epoch = 0, 0
        self._named = set(self.positions)

    def poll(self, *, max_bytes: int = MEBIBYTE, **fields: Any) -> set[int]:
        """Fetch once, and return the partitions in the answer."""
        parts = [
            {"partition": number, "fetch_offset": self.positions[number], "partition_max_bytes": MEBIBYTE}
            for number in sorted(self._named)
        ]
        response = self._wire.send(
            FETCH, 11, session_id=self._session_id, session_epoch=self._epoch, forgotten_topics_data=[],
            topics=[{"topic": self._topic.name, "partitions": parts}] if parts else [],
            **{"max_wait": 0, "min_bytes": 1, "max_bytes": max_bytes, "isolation_level": 0, "replica_id": -1} | fields,
        )  # fmt: skip
        assert response.error_code == 0
        self._session_id, self._epoch, self._named = response.session_id, self._epoch + 1, set()
        told = [part for topic in response.responses for part in topic.partitions]
        for part in told:
            number = part.partition_index
            assert part.error_code == 0
            self.log_starts[number] = part.log_start_offset
            if found := values_in(part.records or b""):
                self.values[number] += found
                self.positions[number] += len(found)
                self._named.add(number)
        return {part.partition_index for part in told}


def test_partitions_without_news_cost_nothing(broker: RunningBroker, wire: Wire) -> None:
    topic = topic_of(broker, wire, MANY)
    consumer = Consumer(wire, topic, MANY)
    assert consumer.poll() == set(range(MANY))
    assert consumer.poll() == set()
    assert fewest_calls(broker, consumer.poll).total < MOST_CALLS
    assert fewest_calls(broker, lambda: consumer.poll(max_wait=20)).total < MOST_CALLS
    topic.produce(9, make_batch(b"a"), partition=MANY - 1)
    assert consumer.poll(max_wait=20_000) == {MANY - 1}
    assert fewest_calls(broker, consumer.poll).total < MOST_CALLS


APPEND = st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 3))
DELETE = st.tuples(st.just("delete records"), st.integers(0, 3), st.just(0))
POLL = st.tuples(st.just("poll"), st.sampled_from([10, 300, MEBIBYTE]), st.just(0))


@settings(max_examples=25, deadline=None)
@example(steps=[("append", 0, 1), ("poll", MEBIBYTE, 0), ("poll", MEBIBYTE, 0), ("delete records", 0, 0)])
@given(steps=st.lists(APPEND | DELETE | POLL, max_size=25))
def test_every_record_and_every_log_start_is_told_of(broker: RunningBroker, steps: list[tuple[str, int, int]]) -> None:
    host, _, port = broker.kafka.rpartition(":")
    written: dict[int, list[bytes]] = {number: [] for number in range(4)}
    starts = dict.fromkeys(written, 0)
    with Wire((host, int(port))) as wire:
        topic = topic_of(broker, wire, len(written))
        consumer = Consumer(wire, topic, len(written))
        consumer.poll()
        for step, which, count in steps:
            if step == "append":
                values = [b"%d" % (len(written[which]) + each) for each in range(count)]
                topic.produce(9, make_batch(*values), partition=which)
                written[which] += values
            elif step == "poll":
                consumer.poll(max_bytes=which)
            elif (read := consumer.positions[which]) > starts[which]:
                delete_records(wire, topic, which, read)
                starts[which] = read
        while consumer.poll():
            pass
        assert consumer.values == written
        assert consumer.log_starts == starts


def delete_records(wire: Wire, topic: Topic, partition: int, offset: int) -> None:
    parts = [{"partition_index": partition, "offset": offset}]
    wire.send(DELETE_RECORDS, 1, topics=[{"name": topic.name, "partitions": parts}], timeout=10_000)


def test_the_log_start_that_retention_moved_is_told_in_time(
    broker: RunningBroker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_of(broker, wire, 1)
    topic.produce(9, make_batch(b"a", b"b"))
    consumer = Consumer(wire, topic, 1)
    consumer.poll()
    assert consumer.poll() == set()
    log = next(log for log in broker.node.broker.services.logs if log.partition.topic == topic.name)
    log.advance_log_start(1)
    monkeypatch.setattr(fetch_sessions, "RECHECK_MS", 0)
    assert consumer.poll() == {0}
    assert consumer.log_starts == {0: 1}
