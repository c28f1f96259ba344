"""gRPC clients with the default limit of 4 MiB can read all records of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest

from sparklog.client import Admin, Producer
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import log_pb2
from sparklog.v1.log_pb2_grpc import LogStub
from support.patience import PATIENCE_S

PARTITIONS = 4
COUNTS = {"plain": 3_000, "squeezed": 12_000}
"""Records of each partition; those of one topic are a fiftieth of their size in its batches."""
FORMS = {"batches": log_pb2.BATCHES, "records": log_pb2.RECORDS, "arrow": log_pb2.ARROW}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with start_broker(tmp_path_factory.mktemp("sizes")) as running:
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            for topic in COUNTS:
                admin.create_topic(topic, partitions=PARTITIONS)
        for topic, codec in (("plain", "none"), ("squeezed", "zstd")):
            rows = pa.table({"value": [b"%07d" % number * 60 for number in range(COUNTS[topic])]})
            with Producer(bootstrap_servers=running.bootstrap, compression_type=codec) as producer:
                for number in range(PARTITIONS):
                    producer.send_table(topic, rows, partition=number).result(PATIENCE_S)
        yield running


@pytest.fixture
def stub(broker: RunningBroker) -> Iterator[LogStub]:
    with grpc.insecure_channel(broker.bootstrap) as channel:  # with the limits that it has by itself
        yield LogStub(channel)


def asked(topic: str, positions: dict[int, int]) -> list[Any]:
    return [
        log_pb2.PartitionFetch(topic=topic, partition=number, fetch_offset=offset)
        for number, offset in positions.items()
    ]


@pytest.mark.parametrize("topic", COUNTS)
@pytest.mark.parametrize("form", FORMS)
def test_fetches_read_on_where_the_last_one_ended(stub: LogStub, topic: str, form: str) -> None:
    positions = dict.fromkeys(range(PARTITIONS), 0)
    while positions:
        request = log_pb2.FetchRequest(partitions=asked(topic, positions), format=FORMS[form], max_wait_ms=0)
        before = dict(positions)
        for part in stub.Fetch(request, timeout=PATIENCE_S).partitions:
            assert not part.HasField("error")
            if form == "records" and part.records.records:
                offsets = [record.offset for record in part.records.records]
                assert offsets == list(range(positions[part.partition], part.next_offset))
            positions[part.partition] = part.next_offset
        assert positions != before
        positions = {number: offset for number, offset in positions.items() if offset < COUNTS[topic]}


@pytest.mark.parametrize("topic", COUNTS)
@pytest.mark.parametrize("form", FORMS)
def test_a_subscription_comes_in_messages_that_can_be_taken(stub: LogStub, topic: str, form: str) -> None:
    left = dict.fromkeys(range(PARTITIONS), COUNTS[topic])
    request = log_pb2.SubscribeRequest(partitions=asked(topic, dict.fromkeys(left, 0)), format=FORMS[form])
    stream = stub.Subscribe(request, timeout=PATIENCE_S)
    for message in stream:
        for part in message.partitions:
            assert not part.HasField("error")
            if part.next_offset >= COUNTS[topic]:
                left.pop(part.partition, None)
        if not left:
            break
    stream.cancel()
    assert not left


@pytest.mark.parametrize("form", FORMS)
def test_large_records_of_several_partitions_come_in_messages_that_can_be_taken(
    broker: RunningBroker, stub: LogStub, form: str
) -> None:
    topic = f"zeros-{form}"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    with Producer(bootstrap_servers=broker.bootstrap, compression_type="zstd", max_request_size=32 << 20) as producer:
        for number in range(PARTITIONS):
            producer.send(topic, bytes(3_000_000), partition=number).result(PATIENCE_S)
    left = dict.fromkeys(range(PARTITIONS), 0)
    while left:
        request = log_pb2.FetchRequest(partitions=asked(topic, left), format=FORMS[form], max_wait_ms=0)
        before = dict(left)
        for part in stub.Fetch(request, timeout=PATIENCE_S).partitions:
            assert not part.HasField("error")
            if part.next_offset > 0:
                del left[part.partition]
        assert left != before


def test_long_names_of_many_partitions_leave_room_for_records(broker: RunningBroker, stub: LogStub) -> None:
    topic, count = "n" * 240, 2_000
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=count)
    with Producer(bootstrap_servers=broker.bootstrap, max_request_size=32 << 20) as producer:
        for number in range(PARTITIONS):
            producer.send(topic, bytes(1_000_000), partition=number).result(PATIENCE_S)
    for form in FORMS.values():
        wanted = asked(topic, dict.fromkeys(range(count), 0))
        answer = stub.Fetch(log_pb2.FetchRequest(partitions=wanted, format=form, max_wait_ms=0), timeout=PATIENCE_S)
        assert not any(part.HasField("error") for part in answer.partitions)
        assert any(part.next_offset == 1 for part in answer.partitions)


def test_who_asks_for_more_gets_it(broker: RunningBroker) -> None:
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(broker.bootstrap, options=options) as channel:
        wanted = asked("plain", dict.fromkeys(range(PARTITIONS), 0))
        for part in wanted:
            part.partition_max_bytes = 4 << 20
        request = log_pb2.FetchRequest(partitions=wanted, format=log_pb2.RECORDS, max_bytes=50 << 20)
        answer = LogStub(channel).Fetch(request, timeout=PATIENCE_S)
    assert answer.ByteSize() > 4 << 20


@pytest.mark.parametrize("max_bytes", [0, 50 << 20])
def test_one_record_that_is_larger_than_a_message_comes_alone(broker: RunningBroker, max_bytes: int) -> None:
    topic = f"large-{max_bytes}"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(topic, configs={"max.message.bytes": str(16 << 20)})
    with Producer(bootstrap_servers=broker.bootstrap, max_request_size=32 << 20) as producer:
        for size in (100, 9 << 20, 100):
            producer.send(topic, bytes(size), partition=0).result(PATIENCE_S)
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(broker.bootstrap, options=options) as channel:
        sizes, offset = [], 0
        while offset < 3:
            part = log_pb2.PartitionFetch(topic=topic, fetch_offset=offset, partition_max_bytes=64 << 20)
            request = log_pb2.FetchRequest(partitions=[part], format=log_pb2.RECORDS, max_bytes=max_bytes)
            [found] = LogStub(channel).Fetch(request, timeout=PATIENCE_S).partitions
            sizes.append([len(record.value) for record in found.records.records])
            offset = found.next_offset
    assert sizes == [[100], [9 << 20], [100]]
