"""Refused Produce requests and their errors."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from sparklog.base.errors import InvalidRequest
from sparklog.server.kafka.packing import MAX_TAGS, varint
from sparklog.server.kafka.produce_request import MAX_PARTITIONS, read_produce_request
from sparklog.testing import RunningBroker
from support.kafka.connection import Wire, request_frame
from support.kafka.topic import PRODUCE, Topic, make_batch, values_in
from support.patience import PATIENCE_MS

ZSTD, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 4, 0x08, 0x10, 0x20
MAGIC_AT = 16
HOUR_MS = 3_600_000


@pytest.fixture
def topic(wire: Wire, new_name) -> Topic:
    return Topic(wire, new_name())


def old_format() -> bytes:
    batch = bytearray(make_batch(b"a"))
    batch[MAGIC_AT] = 1
    return bytes(batch)


@pytest.fixture(scope="module")
def empty(kafka_address: tuple[str, int], new_name) -> Iterator[Topic]:
    """A topic that stays empty, because all writes to it fail."""
    with Wire(kafka_address) as wire:
        yield Topic(wire, new_name())


@pytest.mark.parametrize("version", [3, 8, 13])
@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.invalid_record),
        (b"", ErrorCode.invalid_record),
        (old_format(), ErrorCode.invalid_record),
        (make_batch(b"a") + make_batch(b"b"), ErrorCode.invalid_record),
        (make_batch(b"a")[:-1], ErrorCode.invalid_record),
        (make_batch(b"a", record_count=2), ErrorCode.invalid_record),
        (make_batch(b"a", attributes=CONTROL), ErrorCode.invalid_record),
        (make_batch(b"a", attributes=LOG_APPEND_TIME), ErrorCode.invalid_timestamp),
        (make_batch(b"a", timestamp_ms=2**42), ErrorCode.invalid_timestamp),
        (make_batch(b"x" * 1_100_000), ErrorCode.message_too_large),
        (make_batch(b"a", attributes=TRANSACTIONAL), ErrorCode.invalid_record),
    ],
)
def test_records_that_are_refused(empty: Topic, version: int, records: bytes | None, error: ErrorCode) -> None:
    result = empty.produce(version, records)
    assert (result.error_code, result.base_offset) == (error, -1)
    assert (version < 8) or result.error_message
    assert empty.list_offset(1, -1).offset == 0


def test_zstd_before_version_7(topic: Topic) -> None:
    batch = make_batch(b"a", attributes=ZSTD)
    assert topic.produce(6, batch).error_code == ErrorCode.unsupported_compression_type
    assert topic.produce(7, batch).error_code == ErrorCode.none


def test_a_transactional_id_without_a_transaction(topic: Topic) -> None:
    assert topic.produce(13, make_batch(b"a"), transactional_id="t").error_code == ErrorCode.none


@pytest.mark.parametrize("version", [3, 8, 13])
def test_acks_that_do_not_exist(empty: Topic, version: int) -> None:
    assert empty.produce(version, make_batch(b"a"), acks=2).error_code == ErrorCode.invalid_required_acks


def test_one_partition_s_error_harms_no_other(topic: Topic, new_name) -> None:
    other = Topic(topic.wire, new_name())
    parts = [(topic, 0, b"first"), (topic, 7, b"nowhere"), (other, 0, None), (other, 0, b"last")]
    topics = [
        {
            "name": each.name,
            "topic_id": each.topic_id,
            "partition_data": [{"index": number, "records": value and make_batch(value)}],
        }
        for each, number, value in parts
    ]
    response = topic.wire.send(PRODUCE, 12, acks=1, timeout=PATIENCE_MS, topic_data=topics)
    assert [found.name for found in response.responses] == [each.name for each, _, _ in parts]
    assert [found.partition_responses[0].error_code for found in response.responses[:2]] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert values_in(topic.fetch(12, 0).responses[0].partitions[0].records) == [b"first"]


def test_a_partition_that_is_named_twice_has_an_answer_for_each(topic: Topic) -> None:
    parts = [(0, None), (0, b"good"), (7, b"nowhere")]
    data = [{"index": number, "records": value and make_batch(value)} for number, value in parts]
    asked = {"name": topic.name, "partition_data": data}
    response = topic.wire.send(PRODUCE, 12, acks=1, timeout=PATIENCE_MS, topic_data=[asked])
    assert [(found.index, found.error_code) for found in response.responses[0].partition_responses] == [
        (0, ErrorCode.invalid_record),
        (0, ErrorCode.none),
        (7, ErrorCode.unknown_topic_or_partition),
    ]


def test_topics_that_are_not_there_are_not_created(kafka_broker: RunningBroker, topic: Topic, new_name) -> None:
    topic.name = new_name()
    assert topic.produce(12, make_batch(b"a")).error_code == ErrorCode.unknown_topic_or_partition
    assert topic.name not in kafka_broker.node.broker.services.metadata
    topic.topic_id = uuid.uuid4()
    assert topic.produce(13, make_batch(b"a")).error_code == ErrorCode.unknown_topic_id


def test_internal_topics(wire: Wire) -> None:
    topic = Topic(wire, "__cluster_history")
    assert topic.produce(12, make_batch(b"a")).error_code == ErrorCode.invalid_topic_exception


def test_without_acks_nothing_is_answered_but_an_error_closes(topic: Topic) -> None:
    part = {"name": topic.name, "partition_data": [{"index": 0, "records": make_batch(b"a")}]}
    topic.wire.write(PRODUCE, 9, acks=0, timeout=PATIENCE_MS, topic_data=[part])
    assert topic.list_offset(1, -1).offset == 1
    part["partition_data"][0]["records"] = old_format()
    topic.wire.write(PRODUCE, 9, acks=0, timeout=PATIENCE_MS, topic_data=[part])
    with pytest.raises(ConnectionError):
        topic.wire.read_frame()


@pytest.mark.parametrize("version", range(3, 14))
def test_requests_that_end_too_early(version: int) -> None:
    topic = {
        "name": "t", "topic_id": uuid.uuid4(), "partition_data": [{"index": 0, "records": make_batch(b"a")}],
    }  # fmt: skip
    fields = {"transactional_id": "id", "acks": 1, "timeout": 5, "topic_data": [topic]}
    body = request_frame(PRODUCE, version, **fields)[15 if version >= 9 else 14 :]
    whole = read_produce_request(version, memoryview(bytearray(body)))
    assert (whole.acks, whole.timeout_ms, whole.transactional_id) == (1, 5, "id")
    assert bytes(whole.topics[0].partitions[0].records) == make_batch(b"a")
    for size in range(len(body) - 3):
        with pytest.raises(InvalidRequest):
            read_produce_request(version, memoryview(bytearray(body[:size])))


def test_a_length_larger_than_the_request() -> None:
    for count in (2**31 - 1, -5):
        body = struct.pack(">hhii", -1, 1, 1000, count)
        if count > 0:
            with pytest.raises(InvalidRequest):
                read_produce_request(3, memoryview(bytearray(body)))
        else:
            assert read_produce_request(3, memoryview(bytearray(body))).topics == []


@pytest.mark.parametrize(("partitions", "tags"), [(1, MAX_TAGS + 1), (MAX_PARTITIONS // 100, 100)])
def test_tagged_fields_count_as_partitions(partitions: int, tags: int) -> None:
    """One more partition or tagged field is too many; half of them are not."""

    def body(count: int, tags: int) -> memoryview:
        part = struct.pack(">i", 0) + b"\0" + varint(tags) + b"\5\0" * tags
        topics = b"\2\2t" + varint(count + 1) + part * count + b"\0"
        return memoryview(bytearray(b"\0" + struct.pack(">hi", -1, 1000) + topics + b"\0"))

    found = read_produce_request(9, body(partitions // 2 + 1, tags // 2))
    assert len(found.topics[0].partitions) == partitions // 2 + 1
    with pytest.raises(InvalidRequest):
        read_produce_request(9, body(partitions, tags))
