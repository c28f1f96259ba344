"""Fetch requests as consumers send them: long polls, limits, sessions, deleted and recreated topics."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.base.ids import TopicPartition
from sparklog.testing import RunningBroker, start_broker
from support.kafka.connection import Wire
from support.kafka.topic import FETCH, MEBIBYTE, Topic, make_batch, values_in

VERSION = 17
FULL, NO_SESSION = 0, -1


class Reader:
    """Fetches partitions of topics, in a session if the broker grants one; each call is one request."""

    def __init__(self, wire: Wire, version: int = VERSION) -> None:
        self.wire = wire
        self.version = version
        self.session_id = 0

    def fetch(self, epoch: int, parts: Any = (), forget: Any = (), **fields: Any) -> Any:
        """`parts`: (topic, partition, offset)…, `forget`: (topic, partition)…, topics as `Topic`."""
        asked = {"max_wait": 0, "min_bytes": 1, "max_bytes": MEBIBYTE, "isolation_level": 0, "replica_id": -1} | fields
        response = self.wire.send(
            FETCH, self.version, session_id=self.session_id, session_epoch=epoch,
            topics=[
                {**_named(topic), "partitions": [
                    {"partition": number, "fetch_offset": offset, "partition_max_bytes": MEBIBYTE}
                ]}
                for topic, number, offset in parts
            ],
            forgotten_topics_data=[{**_named(topic), "partitions": [number]} for topic, number in forget],
            **asked,
        )  # fmt: skip
        self.session_id = response.session_id
        return response

    def read(self, epoch: int, *args: Any, **fields: Any) -> list[tuple[int, ErrorCode, list[bytes]]]:
        """Number, error and values of each partition in the answer."""
        response = self.fetch(epoch, *args, **fields)
        assert response.error_code == ErrorCode.none
        return [
            (part.partition_index, part.error_code, values_in(part.records or b""))
            for topic in response.responses
            for part in topic.partitions
        ]


def _named(topic: Topic) -> dict[str, Any]:
    return {"topic": topic.name, "topic_id": topic.topic_id}


OK = ErrorCode.none


@pytest.fixture
def topic(wire: Wire, new_name, kafka_broker: RunningBroker) -> Topic:
    """A topic of three partitions."""
    name = new_name()
    kafka_broker.run(kafka_broker.node.broker.services.topics.create(name, partitions=3))
    return Topic(wire, name)


@pytest.fixture
def reader(wire: Wire) -> Reader:
    return Reader(wire)


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_session_tells_what_is_new(wire: Wire, topic: Topic, version: int) -> None:
    reader = Reader(wire, version)
    assert reader.read(FULL, [(topic, 0, 0), (topic, 1, 0)]) == [(0, OK, []), (1, OK, [])]
    assert reader.session_id > 0
    assert reader.read(1) == []
    topic.produce(13, make_batch(b"a"), partition=1)
    assert reader.read(2) == [(1, OK, [b"a"])]
    assert reader.read(3, [(topic, 1, 1)]) == []
    assert reader.read(4, [(topic, 2, 0)], forget=[(topic, 0)]) == [(2, OK, [])]
    topic.produce(13, make_batch(b"b"), partition=0)
    assert reader.read(5) == []


def test_sessions_that_do_not_exist_or_are_out_of_turn(topic: Topic, reader: Reader) -> None:
    reader.session_id = 12345
    response = reader.fetch(1)
    assert (response.error_code, response.session_id) == (ErrorCode.fetch_session_id_not_found, 0)
    reader.fetch(FULL, [(topic, 0, 0)])
    session_id = reader.session_id
    assert reader.fetch(7).error_code == ErrorCode.invalid_fetch_session_epoch
    older = Reader(reader.wire, 12)
    older.session_id = session_id
    assert older.fetch(1).error_code == ErrorCode.fetch_session_topic_id_error


def test_a_long_poll_ends_when_records_come(kafka_address, wire: Wire, topic: Topic) -> None:
    with Wire(kafka_address) as other:
        reader = Reader(other)
        reader.read(FULL, [(topic, number, 0) for number in range(3)])
        answers: list[Any] = []
        polling = threading.Thread(target=lambda: answers.append(reader.read(1, max_wait=20_000)))
        polling.start()
        topic.produce(13, make_batch(b"a"), partition=2)
        polling.join()
    assert answers == [[(2, OK, [b"a"])]]


def test_no_partition_starves_where_the_limit_is_small(topic: Topic, reader: Reader) -> None:
    for number in range(3):
        topic.produce(13, make_batch(b"x" * 100), partition=number)
    parts = [(topic, number, 0) for number in range(3)]
    answers = [reader.read(epoch, parts if epoch == FULL else (), max_bytes=10) for epoch in range(4)]
    assert [[number for number, _, values in answer if values] for answer in answers] == [[0], [0], [1], [2]]


def test_the_first_batch_comes_whole_whatever_the_limit(topic: Topic, reader: Reader) -> None:
    topic.produce(13, make_batch(b"x" * 1000))
    topic.produce(13, make_batch(b"y" * 1000))
    assert reader.read(NO_SESSION, [(topic, 0, 0)], max_bytes=1) == [(0, OK, [b"x" * 1000])]


@pytest.mark.parametrize("version", [12, VERSION])
def test_a_topic_that_is_deleted_and_created_again(
    kafka_broker: RunningBroker, wire: Wire, topic: Topic, version: int
) -> None:
    topics = kafka_broker.node.broker.services.topics
    topic.produce(13, make_batch(b"old"))
    reader = Reader(wire, version)
    assert reader.read(FULL, [(topic, 0, 0)]) == [(0, OK, [b"old"])]
    reader.read(1, [(topic, 0, 1)])
    kafka_broker.run(topics.delete(topic.name))
    gone = ErrorCode.unknown_topic_or_partition
    assert reader.read(2) == [(0, gone, [])]
    kafka_broker.run(topics.create(topic.name, partitions=1))
    again = Topic(wire, topic.name)
    again.produce(13, make_batch(b"new"))
    if version < 13:
        assert reader.read(3, [(topic, 0, 0)]) == [(0, OK, [b"new"])]
    else:
        assert reader.read(3) == [(0, ErrorCode.inconsistent_topic_id, [])]
        assert reader.read(4, [(again, 0, 0)], forget=[(topic, 0)]) == [(0, OK, [b"new"])]
        assert reader.read(5, [(topic, 0, 0)])[-1] == (0, ErrorCode.unknown_topic_id, [])


def test_a_topic_id_that_never_was(topic: Topic, reader: Reader) -> None:
    topic.topic_id = uuid.uuid4()
    assert reader.read(NO_SESSION, [(topic, 0, 0)]) == [(0, ErrorCode.unknown_topic_id, [])]


def test_a_log_start_that_moves_past_the_reader(kafka_broker: RunningBroker, topic: Topic, reader: Reader) -> None:
    topic.produce(13, make_batch(b"a", b"b"))
    topic.produce(13, make_batch(b"c"))
    reader.read(FULL, [(topic, 0, 0)])
    replicas = kafka_broker.node.broker.services.replicas
    replicas.get(TopicPartition(topic.name, 0)).log.advance_log_start(2)
    assert reader.read(1, [(topic, 0, 0)]) == [(0, ErrorCode.offset_out_of_range, [])]
    part = reader.fetch(2, [(topic, 0, 2)]).responses[0].partitions[0]
    assert (part.log_start_offset, values_in(part.records)) == (2, [b"c"])


def test_leader_epochs_are_compared_and_the_right_one_told(tmp_path, new_name) -> None:
    def start() -> RunningBroker:
        return start_broker(tmp_path, listeners=("PLAINTEXT://127.0.0.1:0",))

    name = new_name()
    with start() as broker, Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire:
        Topic(wire, name).produce(13, make_batch(b"a"))
    with start() as broker, Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire:
        topic = Topic(wire, name)
        epoch = broker.node.broker.services.metadata.get(name).partitions[0].leader_epoch
        assert epoch > 0
        for version in (9, 16):
            response = topic.fetch(version, 0, current_leader_epoch=0)
            part = response.responses[0].partitions[0]
            assert part.error_code == ErrorCode.fenced_leader_epoch
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (0, epoch)
        (node,) = response.node_endpoints
        assert (node.node_id, node.port) == (0, broker.node.kafka_addresses["PLAINTEXT"].port)
        assert topic.fetch(16, 0, current_leader_epoch=epoch + 1).responses[0].partitions[0].error_code == (
            ErrorCode.unknown_leader_epoch
        )
        fetched = topic.fetch(16, 0, current_leader_epoch=epoch).responses[0].partitions[0]
        assert values_in(fetched.records) == [b"a"]


def test_a_reader_whose_log_departed_is_told_where(topic: Topic) -> None:
    topic.produce(13, make_batch(b"a", b"b"))
    same = topic.fetch(12, 2, last_fetched_epoch=0).responses[0].partitions[0]
    assert (same.error_code, same.diverging_epoch.epoch) == (OK, -1)
    longer = topic.fetch(12, 3, last_fetched_epoch=0).responses[0].partitions[0]
    assert (longer.diverging_epoch.epoch, longer.diverging_epoch.end_offset) == (0, 2)
    assert not longer.records
    unknown = topic.fetch(12, 2, last_fetched_epoch=5).responses[0].partitions[0]
    assert unknown.error_code == ErrorCode.offset_out_of_range


@pytest.mark.parametrize("version", [4, 7, 13])
def test_a_request_that_is_refused_as_a_whole(topic: Topic, version: int) -> None:
    response = topic.fetch(version, 0, max_bytes=-1)
    if version < 7:
        assert response.responses[0].partitions[0].error_code == ErrorCode.invalid_request
    else:
        assert (response.error_code, response.responses) == (ErrorCode.invalid_request, ())


def test_a_partition_that_does_not_exist_does_not_keep_its_reader_busy(
    kafka_address: tuple[str, int], topic: Topic
) -> None:
    with Wire(kafka_address) as other:
        reader = Reader(other)
        gone = [(topic, 9, 0)]
        assert reader.read(NO_SESSION, gone, max_wait=20_000) == [(9, ErrorCode.unknown_topic_or_partition, [])]
        answers: list[Any] = []
        both = [*gone, (topic, 0, 0)]
        polling = threading.Thread(target=lambda: answers.append(reader.read(NO_SESSION, both, max_wait=20_000)))
        polling.start()
        topic.produce(13, make_batch(b"a"))
        polling.join()
    assert answers == [[(9, ErrorCode.unknown_topic_or_partition, []), (0, OK, [b"a"])]]
