"""A broker shared by the tests of this folder, and gRPC stubs to it; each test has a topic of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import grpc
import pytest

from sparklog.records.batch import HEADER_SIZE, build_header, seal
from sparklog.records.records import Record, write_records
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc

MEBIBYTE = 1 << 20
UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


def make_batch(values: list[bytes], timestamp_ms: int = 1000, **fields: int) -> bytearray:
    """One uncompressed batch with a record for each value, without keys; `fields` change its header."""
    rows = [
        Record(offset=number, timestamp_ms=timestamp_ms + number, value=value) for number, value in enumerate(values)
    ]
    records = write_records(rows)[HEADER_SIZE:] if rows else b""
    header = {
        "base_offset": 0,
        "leader_epoch": -1,
        "attributes": 0,
        "last_offset_delta": len(values) - 1,
        "base_timestamp": timestamp_ms,
        "max_timestamp": timestamp_ms + len(values) - 1,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": len(values),
    } | fields
    batch = build_header(records_size=len(records), **header) + records
    seal(batch)
    return batch


class Client(SimpleNamespace):
    """Stubs of one broker, with short forms of common calls."""

    log: log_pb2_grpc.LogStub
    admin: admin_pb2_grpc.AdminStub

    def produce(self, topic: str, batches: bytes, partition: int = 0, **fields) -> log_pb2.PartitionProduced:
        part = log_pb2.PartitionProduce(topic=topic, partition=partition, batches=bytes(batches))
        return self.log.Produce(log_pb2.ProduceRequest(partitions=[part], **fields)).partitions[0]

    def fetch(self, topic: str, offset: int, partition: int = 0, limit: int = 0, **fields) -> log_pb2.PartitionFetched:
        part = log_pb2.PartitionFetch(topic=topic, partition=partition, fetch_offset=offset, partition_max_bytes=limit)
        return self.log.Fetch(log_pb2.FetchRequest(partitions=[part], **fields)).partitions[0]

    def describe(self, topic: str) -> admin_pb2.TopicDescription:
        return self.admin.DescribeTopics(admin_pb2.DescribeTopicsRequest(names=[topic])).topics[0]

    def end_offset(self, topic: str, partition: int = 0) -> int:
        return self.describe(topic).partitions[partition].log_end_offset


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(auto_create_topics_enable=False, socket_request_max_bytes=20 * MEBIBYTE) as running:
        yield running


@pytest.fixture(scope="module")
def connect() -> Iterator[Callable[..., Client]]:
    channels: list[grpc.Channel] = []

    def connect(broker: RunningBroker, *options: tuple[str, int]) -> Client:
        channel = grpc.insecure_channel(broker.bootstrap, options=(*UNLIMITED, *options))
        channels.append(channel)
        return Client(log=log_pb2_grpc.LogStub(channel), admin=admin_pb2_grpc.AdminStub(channel), channel=channel)

    yield connect
    for channel in channels:
        channel.close()


@pytest.fixture(scope="module")
def client(broker: RunningBroker, connect: Callable[..., Client]) -> Client:
    return connect(broker)


@pytest.fixture(scope="session")
def names() -> Iterator[str]:
    return (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def topic(client: Client, names: Iterator[str]) -> str:
    """A new topic with one partition."""
    name = next(names)
    result = client.admin.CreateTopics(
        admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name, partitions=1)])
    ).topics[0]
    assert not result.HasField("error"), result.error.message
    return name


@pytest.fixture(scope="session")
def batch() -> Callable[..., bytearray]:
    return make_batch
