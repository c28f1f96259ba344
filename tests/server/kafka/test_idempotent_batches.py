"""Batches with a producer id: written, refused and duplicate ones, and the answers about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from kio.schema.errors import ErrorCode

from sparklog.base.errors import OutOfOrderSequenceNumber
from sparklog.records.records import Record, write_records
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import log_pb2, log_pb2_grpc
from support.kafka.connection import Wire
from support.patience import PATIENCE_MS

PRODUCE, LIST_OFFSETS, CREATE_TOPICS, INIT_PRODUCER_ID, DESCRIBE_PRODUCERS = 0, 2, 19, 22, 61
NOW_MS = 1_700_000_000_000


def numbered(producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0) -> bytes:
    records = [Record(offset=i, timestamp_ms=NOW_MS + i, value=b"value", sequence=sequence + i) for i in range(count)]
    return bytes(write_records(records, producer_id=producer_id, producer_epoch=epoch))


@pytest.fixture
def topic(wire: Wire, new_name: Callable[[], str]) -> str:
    name = new_name()
    wire.send(
        CREATE_TOPICS, 5, timeout=PATIENCE_MS, validate_only=False,
        topics=[{"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}],
    )  # fmt: skip
    return name


@pytest.fixture
def producer_id(wire: Wire) -> int:
    return wire.send(INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout=60_000).producer_id


def produce(wire: Wire, topic: str, records: bytes) -> tuple[ErrorCode, int]:
    """The answer's error and offset."""
    part = {"index": 0, "records": records}
    sent = wire.send(
        PRODUCE, 9, transactional_id=None, acks=-1, timeout=PATIENCE_MS,
        topic_data=[{"name": topic, "partition_data": [part]}],
    )  # fmt: skip
    (answer,) = sent.responses[0].partition_responses
    return answer.error_code, answer.base_offset


@contextmanager
def sending_to(broker: RunningBroker, topic: str) -> Iterator[Callable[..., tuple[int, int, int]]]:
    """A function that sends batches in one request over gRPC, and returns the answer's error code and offsets."""

    def send(*batches: bytes) -> tuple[int, int, int]:
        part = log_pb2.PartitionProduce(topic=topic, partition=0, batches=b"".join(batches))
        (answer,) = log.Produce(log_pb2.ProduceRequest(partitions=[part])).partitions
        return answer.error.code, answer.base_offset, answer.last_offset

    with grpc.insecure_channel(broker.bootstrap) as channel:
        log = log_pb2_grpc.LogStub(channel)
        yield send


def end_offset(wire: Wire, topic: str) -> int:
    found = wire.send(
        LIST_OFFSETS, 5, replica_id=-1, isolation_level=0,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}],
    )  # fmt: skip
    return found.topics[0].partitions[0].offset


def test_a_batch_that_is_sent_again_is_answered_again_and_written_once(
    wire: Wire, topic: str, producer_id: int
) -> None:
    first = produce(wire, topic, numbered(producer_id, 0, 3))
    second = produce(wire, topic, numbered(producer_id, 3, 2))
    assert (first, second) == ((ErrorCode.none, 0), (ErrorCode.none, 3))
    assert produce(wire, topic, numbered(producer_id, 0, 3)) == first
    assert produce(wire, topic, numbered(producer_id, 3, 2)) == second
    assert end_offset(wire, topic) == 5


def test_a_gap_and_an_older_epoch_are_refused(wire: Wire, topic: str, producer_id: int) -> None:
    assert produce(wire, topic, numbered(producer_id, 0, epoch=1)) == (ErrorCode.none, 0)
    assert produce(wire, topic, numbered(producer_id, 2, epoch=1))[0] is ErrorCode.out_of_order_sequence_number
    assert produce(wire, topic, numbered(producer_id, 1, epoch=0))[0] is ErrorCode.invalid_producer_epoch
    assert produce(wire, topic, numbered(producer_id, 5, epoch=2))[0] is ErrorCode.out_of_order_sequence_number
    assert produce(wire, topic, numbered(producer_id, -1))[0] is ErrorCode.invalid_record
    assert end_offset(wire, topic) == 1
    assert produce(wire, topic, numbered(producer_id, 0, epoch=2)) == (ErrorCode.none, 1)


def test_what_is_sent_again_over_grpc_is_written_once_whole_requests_only(
    wire: Wire, topic: str, producer_id: int, kafka_broker: RunningBroker
) -> None:
    batches = [numbered(producer_id, sequence, 2) for sequence in (0, 2, 4)]
    with sending_to(kafka_broker, topic) as send:
        assert send(*batches[:2]) == (0, 0, 3)
        assert send(*batches[:2]) == (0, 0, 3)
        assert send(batches[1]) == (0, 2, 3)
        assert send(*batches[1:])[0] == OutOfOrderSequenceNumber.code
        assert send(batches[2]) == (0, 4, 5)


def test_a_broker_that_was_stopped_and_started_knows_the_batches_before_the_last_one(tmp_path: Path) -> None:
    batches = [numbered(7, sequence, 2) for sequence in (0, 2, 4)]
    with start_broker(tmp_path) as broker, sending_to(broker, "t") as send:
        assert [send(each) for each in batches[:2]] == [(0, 0, 1), (0, 2, 3)]
    with start_broker(tmp_path) as broker, sending_to(broker, "t") as send:
        assert [send(each) for each in batches] == [(0, 0, 1), (0, 2, 3), (0, 4, 5)]


def test_the_partition_tells_who_has_written_to_it(wire: Wire, topic: str, producer_id: int) -> None:
    produce(wire, topic, numbered(producer_id, 0, 3))
    produce(wire, topic, numbered(producer_id + 100_000, 7, 2, epoch=4))
    answer = wire.send(DESCRIBE_PRODUCERS, 0, topics=[{"name": topic, "partition_indexes": (0, 1)}])
    there, missing = answer.topics[0].partitions
    assert missing.error_code is ErrorCode.unknown_topic_or_partition
    assert [(each.producer_id, each.producer_epoch, each.last_sequence) for each in there.active_producers] == [
        (producer_id, 0, 2),
        (producer_id + 100_000, 4, 8),
    ]
    first = there.active_producers[0]
    assert (first.last_timestamp, first.coordinator_epoch, first.current_txn_start_offset) == (NOW_MS + 2, -1, -1)
