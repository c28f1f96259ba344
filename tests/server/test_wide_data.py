"""Produce and fetch requests with thousands of partitions: in order, while other requests are served."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest

from sparklog.broker.apis import fetch, produce
from sparklog.runtime import slices
from sparklog.server.grpc import produce_message
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc
from support.brokers.most_calls import most_calls
from support.kafka.connection import Wire
from support.logs.builders import batch, offsets_in
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

PRODUCE, FETCH = 0, 1
PARTITIONS = 30
PER_PARTITION = 20
"""How often a request names each of them."""


@pytest.fixture(autouse=True)
def little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for api in (produce, fetch):
        monkeypatch.setattr(api, "TOGETHER", 20)
        monkeypatch.setattr(api, "PART", 10)
    monkeypatch.setattr(slices, "SLICE_S", 0)


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True) as started, grpc.insecure_channel(started.bootstrap) as channel:
        topic = {"name": "t", "partitions": PARTITIONS}
        admin_pb2_grpc.AdminStub(channel).CreateTopics(admin_pb2.CreateTopicsRequest(topics=[topic]))
        yield started


@pytest.fixture
def log(broker: RunningBroker) -> Iterator[log_pb2_grpc.LogStub]:
    with grpc.insecure_channel(broker.bootstrap) as channel:
        yield log_pb2_grpc.LogStub(channel)


def wide(number: int = 0) -> log_pb2.ProduceRequest:
    data = bytes(batch(1, value=b"%d" % number))
    parts = [{"topic": "t", "partition": each, "batches": data} for each in range(PARTITIONS)] * PER_PARTITION
    return log_pb2.ProduceRequest(partitions=parts, correlation_id=number)


def narrow(number: int, partition: int = PARTITIONS - 1) -> log_pb2.ProduceRequest:
    part = {"topic": "t", "partition": partition, "batches": bytes(batch(1))}
    return log_pb2.ProduceRequest(partitions=[part], correlation_id=number)


def all_partitions(**fields: int) -> log_pb2.FetchRequest:
    parts = [{"topic": "t", "partition": each, "fetch_offset": fields.get("offset", 0)} for each in range(PARTITIONS)]
    return log_pb2.FetchRequest(
        partitions=parts, max_wait_ms=fields.get("max_wait_ms", 0), min_bytes=fields.get("min_bytes", 1)
    )


def test_others_have_their_turn_between_appends_and_between_reads(
    broker: RunningBroker, log: log_pb2_grpc.LogStub
) -> None:
    with most_calls(broker) as most:
        done = log.Produce(wide())
    assert [part.base_offset for part in done.partitions] == [
        number for number in range(PER_PARTITION) for _ in range(PARTITIONS)
    ]
    assert most.calls < most.total / 5

    with most_calls(broker) as most:
        found = log.Fetch(all_partitions())
    assert [offsets_in(part.batches) for part in found.partitions] == [[*range(PER_PARTITION)]] * PARTITIONS
    assert most.calls < most.total / 2


def test_others_have_their_turn_between_appends_of_many_bytes(
    broker: RunningBroker, log: log_pb2_grpc.LogStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most_at_once in {"TOGETHER": 1_000, "BYTES_TOGETHER": 10_000, "PART_BYTES": 1_000}.items():
        monkeypatch.setattr(produce, name, most_at_once)
    with most_calls(broker) as most:
        done = log.Produce(wide())
    assert [part.base_offset for part in done.partitions] == [
        number for number in range(PER_PARTITION) for _ in range(PARTITIONS)
    ]
    assert most.calls < most.total / 5

    answers = list(log.ProduceStream(iter([wide(0), narrow(1)]), timeout=PATIENCE_S))
    assert [answer.correlation_id for answer in answers] == [0, 1]
    assert answers[1].partitions[0].base_offset == 2 * PER_PARTITION


def test_others_have_their_turn_while_one_partition_gets_many_bytes(
    broker: RunningBroker, log: log_pb2_grpc.LogStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_message, "COPIED_TOGETHER", 1_000)
    data = bytes(batch(1, value=bytes(500_000)))
    part = {"topic": "t", "partition": 0, "batches": data}
    with most_calls(broker) as most:
        done = log.Produce(log_pb2.ProduceRequest(partitions=[part]))
    assert done.partitions[0].base_offset == 0
    assert most.calls < most.total / 5
    wanted = log_pb2.PartitionFetch(topic="t", partition=0)
    found = log.Fetch(log_pb2.FetchRequest(partitions=[wanted])).partitions[0]
    assert found.batches[21:] == data[21:]


def test_what_a_stream_sends_is_appended_in_its_order(log: log_pb2_grpc.LogStub) -> None:
    answers = list(log.ProduceStream(iter([wide(0), narrow(1), wide(2), narrow(3)]), timeout=PATIENCE_S))

    assert [answer.correlation_id for answer in answers] == [0, 1, 2, 3]
    ends = [answer.partitions[-1].base_offset for answer in answers]
    assert ends == [PER_PARTITION - 1, PER_PARTITION, 2 * PER_PARTITION, 2 * PER_PARTITION + 1]


def test_what_a_connection_sends_is_appended_in_its_order(broker: RunningBroker) -> None:
    def fields(*partitions: int) -> dict[str, object]:
        data = [{"index": each, "records": bytes(batch(1))} for each in partitions]
        topics = [{"name": "t", "partition_data": data}]
        return {"transactional_id": None, "acks": -1, "timeout": PATIENCE_MS, "topic_data": topics}

    with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire, most_calls(broker) as most:
        numbers = [
            wire.write(PRODUCE, 9, **fields(*partitions))
            for partitions in ([*range(PARTITIONS)] * PER_PARTITION, [PARTITIONS - 1])
        ]
        first, second = (wire.read(PRODUCE, 9, number) for number in numbers)
    assert first.responses[0].partition_responses[-1].base_offset == PER_PARTITION - 1
    assert second.responses[0].partition_responses[0].base_offset == PER_PARTITION
    assert most.calls < most.total / 2


@pytest.mark.parametrize("partition", [0, PARTITIONS - 1])
def test_who_waits_for_many_partitions_is_woken_by_any(log: log_pb2_grpc.LogStub, partition: int) -> None:
    waiting = log.Fetch.future(all_partitions(max_wait_ms=PATIENCE_MS))
    log.Produce(narrow(0, partition))
    found = waiting.result(PATIENCE_S)
    assert [part.partition for part in found.partitions if part.batches] == [partition]


def test_who_waits_for_many_bytes_has_them_together(broker: RunningBroker, log: log_pb2_grpc.LogStub) -> None:
    waiting = log.Fetch.future(all_partitions(max_wait_ms=PATIENCE_MS, min_bytes=3 * len(batch(1))))
    for partition in (5, 0, 29):
        wait_until(lambda: broker.node.broker.waiting_requests == 1, "it waits")
        log.Produce(narrow(0, partition))
    found = waiting.result(PATIENCE_S)
    assert [part.partition for part in found.partitions if part.batches] == [0, 5, 29]


def test_who_waits_in_vain_is_answered_when_the_time_is_over(log: log_pb2_grpc.LogStub) -> None:
    found = log.Fetch(all_partitions(max_wait_ms=50))
    assert len(found.partitions) == PARTITIONS
    assert not any(part.batches for part in found.partitions)


def test_who_waits_is_answered_when_the_broker_stops(broker: RunningBroker, log: log_pb2_grpc.LogStub) -> None:
    waiting = log.Fetch.future(all_partitions(max_wait_ms=PATIENCE_MS))
    wait_until(lambda: broker.node.broker.waiting_requests == 1, "it waits")
    stopping = threading.Thread(target=broker.stop)
    stopping.start()
    try:
        assert len(waiting.result(PATIENCE_S).partitions) == PARTITIONS
    finally:
        stopping.join(PATIENCE_S)
