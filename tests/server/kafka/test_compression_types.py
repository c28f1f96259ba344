"""compression.type of topics: batches are stored with the topic's codec, in order, without blocking other requests."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kio.schema.errors import ErrorCode

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin
from sparklog.client import Producer as OwnProducer
from sparklog.records.batch import Codec, iterate_headers, seal
from sparklog.records.records import Record, write_records
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import log_pb2, log_pb2_grpc, records_pb2
from support.kafka.connection import Wire
from support.kafka.topic import PRODUCE, Topic, values_in
from support.names import unique
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

TYPES = {
    "uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD,
}  # fmt: skip
INIT_PRODUCER_ID, METADATA = 22, 3
MIB = 1 << 20
Create = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True, transaction_state_log_num_partitions=3, offsets_topic_num_partitions=3) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(broker: RunningBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        yield admin


@pytest.fixture
def create(admin: Admin) -> Create:
    def create(compression_type: str, **configs: Any) -> str:
        name = unique("topic")
        configs = {key.replace("_", "."): str(value) for key, value in configs.items()}
        admin.create_topic(name, partitions=1, configs={"compression.type": compression_type, **configs})
        return name

    return create


@pytest.fixture
def wire(broker: RunningBroker) -> Iterator[Wire]:
    with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as connection:
        yield connection


def stored(topic: Topic) -> bytes:
    return bytes(topic.fetch(12, 0).responses[0].partitions[0].records or b"")


def codecs(records: bytes) -> set[Codec]:
    return {header.codec for _, header in iterate_headers(records)}


def batch(*values: bytes, codec: Codec = Codec.NONE, sequence: int = -1, **fields: Any) -> bytes:
    rows = [
        Record(offset=at, timestamp_ms=1_000 + at, value=value, sequence=sequence if sequence < 0 else sequence + at)
        for at, value in enumerate(values)
    ]
    return bytes(write_records(rows, codec=codec, **fields))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("sent", Codec)
def test_each_codec_is_stored_as_the_topics_and_read_back(name: str, sent: Codec, create: Create, wire: Wire) -> None:
    topic = Topic(wire, create(name))
    values = [b"%d" % number * 100 for number in range(50)]
    answer = topic.produce(9, batch(*values, codec=sent))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
    assert topic.produce(9, batch(b"next", codec=sent)).base_offset == 50
    found = stored(topic)
    assert codecs(found) == {TYPES[name]}
    assert values_in(found) == [*values, b"next"]
    if sent is TYPES[name]:
        assert found.startswith(batch(*values, codec=sent)[21:], 21)  # offset and leader epoch are the broker's


def test_a_topic_of_the_broker_default_keeps_each_producers_codec(wire: Wire, create: Create) -> None:
    topic = Topic(wire, create("producer"))
    for codec in Codec:
        topic.produce(9, batch(b"v" * 100, codec=codec))
    assert codecs(stored(topic)) == set(Codec)


@pytest.mark.parametrize("name", ["gzip", "uncompressed"])
def test_clients_of_all_makes(name: str, create: Create, broker: RunningBroker, wire: Wire) -> None:
    topic = create(name)
    librdkafka = Producer({"bootstrap.servers": broker.kafka, "compression.type": "snappy"})
    librdkafka.produce(topic, b"librdkafka" * 100)
    assert librdkafka.flush(PATIENCE_S) == 0
    python = KafkaProducer(bootstrap_servers=broker.kafka, compression_type="gzip")
    python.send(topic, b"kafka-python" * 100).get(PATIENCE_S)
    python.close()
    with OwnProducer(bootstrap_servers=broker.bootstrap, compression_type="zstd") as own:
        own.send(topic, value=b"sparklog" * 100).result(PATIENCE_S)
    assert codecs(stored(Topic(wire, topic))) == {TYPES[name]}
    sent = [b"librdkafka" * 100, b"kafka-python" * 100, b"sparklog" * 100]

    reader = KafkaConsumer(topic, bootstrap_servers=broker.kafka, auto_offset_reset="earliest")
    found: list[bytes] = []
    while len(found) < 3:
        found += [record.value for some in reader.poll(PATIENCE_MS).values() for record in some]
    reader.close()
    assert found == sent
    consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert [record.value() for record in consumer.consume(3, PATIENCE_S)] == sent
    consumer.close()


def test_plain_records_over_grpc_are_encoded_with_the_topics_codec(
    create: Create, broker: RunningBroker, wire: Wire
) -> None:
    topic = create("zstd", compression_zstd_level=9)
    sent = records_pb2.RecordList(records=[records_pb2.Record(value=b"plain" * 100)])
    part = log_pb2.PartitionProduce(topic=topic, partition=0, records=sent, codec="GZIP")
    with grpc.insecure_channel(broker.bootstrap) as channel:
        answer = log_pb2_grpc.LogStub(channel).Produce(log_pb2.ProduceRequest(partitions=[part])).partitions[0]
    assert not answer.HasField("error"), answer.error.message
    found = stored(Topic(wire, topic))
    assert codecs(found) == {Codec.ZSTD}
    assert values_in(found) == [b"plain" * 100]


def test_a_resent_batch_is_recognized(create: Create, wire: Wire) -> None:
    topic = Topic(wire, create("lz4"))
    producer = wire.send(INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout=60_000).producer_id

    def send(sequence: int) -> tuple[ErrorCode, int]:
        sent = batch(b"a", b"b", codec=Codec.GZIP, sequence=sequence, producer_id=producer, producer_epoch=0)
        answer = topic.produce(9, sent)
        return answer.error_code, answer.base_offset

    assert [send(0), send(2), send(0), send(2)] == [(ErrorCode.none, 0), (ErrorCode.none, 2)] * 2
    assert send(9)[0] == ErrorCode.out_of_order_sequence_number
    headers = [header for _, header in iterate_headers(stored(topic))]
    assert [(header.producer_id, header.base_sequence) for header in headers] == [(producer, 0), (producer, 2)]


def test_a_transaction(create: Create, broker: RunningBroker, wire: Wire) -> None:
    topic = create("gzip")
    config = {"bootstrap.servers": broker.kafka, "transactional.id": unique("id"), "compression.type": "zstd"}
    producer = Producer(config)
    producer.init_transactions(PATIENCE_S)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(topic, end.__name__.encode() * 100)
        producer.flush(PATIENCE_S)
        end(PATIENCE_S)
    records = [header for _, header in iterate_headers(stored(Topic(wire, topic))) if not header.is_control]
    assert [header.codec for header in records] == [Codec.GZIP] * 2
    reader = KafkaConsumer(
        topic, bootstrap_servers=broker.kafka, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    found: list[bytes] = []
    while not found:
        found += [record.value for some in reader.poll(PATIENCE_MS).values() for record in some]
    reader.close()
    assert found == [b"commit_transaction" * 100]


def test_hostile_batches_are_refused_and_the_connection_lives(create: Create, wire: Wire) -> None:
    topic = Topic(wire, create("gzip"))
    wrong_codec = bytearray(batch(b"v" * 100))
    wrong_codec[22] |= Codec.LZ4
    seal(wrong_codec)
    wrong_crc = bytearray(batch(b"v" * 100))
    wrong_crc[-1] ^= 1
    for bad in (wrong_codec, wrong_crc):
        answer = topic.produce(9, bytes(bad))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.corrupt_message, -1)
    assert topic.produce(9, batch(b"good")).base_offset == 0


def test_what_is_too_large_before_or_after(create: Create, wire: Wire) -> None:
    topic = Topic(wire, create("uncompressed", max_message_bytes=10_000))
    assert topic.produce(9, batch(b"v" * 9_000, codec=Codec.ZSTD)).error_code == ErrorCode.none
    assert topic.produce(9, batch(b"v" * 11_000, codec=Codec.ZSTD)).error_code == ErrorCode.message_too_large
    small = Topic(wire, create("gzip", max_message_bytes=10_000))
    assert small.produce(9, batch(b"v" * 11_000)).error_code == ErrorCode.message_too_large
    assert small.produce(9, batch(b"v" * 9_000)).error_code == ErrorCode.none


def test_a_producer_goes_on_while_its_topic_changes(create: Create, admin: Admin, wire: Wire) -> None:
    name = create("gzip")
    topic = Topic(wire, name)
    for offset, kind in enumerate(("gzip", "zstd", "uncompressed", "lz4", None)):
        if kind:
            admin.alter_configs(name, set={"compression.type": kind})
        else:
            admin.alter_configs(name, unset=["compression.type"])
        assert topic.produce(9, batch(b"v" * 100, codec=Codec.SNAPPY)).base_offset == offset
    found = [header.codec for _, header in iterate_headers(stored(topic))]
    assert found == [Codec.GZIP, Codec.ZSTD, Codec.NONE, Codec.LZ4, Codec.SNAPPY]


def test_a_deleted_topic_leaves_nothing_behind(create: Create, admin: Admin, broker: RunningBroker) -> None:
    known = broker.node.broker.services.replicas.compressions
    name = create("gzip")
    assert TopicPartition(name, 0) in known
    admin.delete_topics([name])
    wait_until(lambda: TopicPartition(name, 0) not in known, "the topic is forgotten")


def test_requests_of_one_connection_keep_their_order(create: Create, wire: Wire) -> None:
    """Requests that are compressed again, which takes long, and others."""
    topic = Topic(wire, create("gzip", compression_gzip_level=9, max_message_bytes=8 * MIB))
    large, small = batch(*[b"%d," % number * 500 for number in range(1_000)]), batch(b"x", codec=Codec.GZIP)
    sent = [
        wire.write(
            PRODUCE, 9, transactional_id=None, acks=-1, timeout=PATIENCE_MS,
            topic_data=[{"name": topic.name, "partition_data": [{"index": 0, "records": each}]}],
        )
        for each in (large, small, large, small)
    ]  # fmt: skip
    answers = [wire.read(PRODUCE, 9, each).responses[0].partition_responses[0] for each in sent]
    assert [answer.base_offset for answer in answers] == [0, 1_000, 1_001, 2_001]


def test_requests_of_one_stream_keep_their_order(create: Create, broker: RunningBroker) -> None:
    name = create("gzip", compression_gzip_level=9, max_message_bytes=8 * MIB)
    large, small = batch(*[b"%d," % number * 500 for number in range(1_000)]), batch(b"x", codec=Codec.GZIP)
    requests = [
        log_pb2.ProduceRequest(
            partitions=[log_pb2.PartitionProduce(topic=name, partition=0, batches=each)], correlation_id=number
        )
        for number, each in enumerate((large, small, large, small))
    ]
    with grpc.insecure_channel(broker.bootstrap) as channel:
        answers = list(log_pb2_grpc.LogStub(channel).ProduceStream(iter(requests)))
    assert [answer.partitions[0].base_offset for answer in answers] == [0, 1_000, 1_001, 2_001]


def test_others_are_served_while_a_hundred_megabytes_are_compressed(
    create: Create, wire: Wire, broker: RunningBroker
) -> None:
    """Another connection gets many answers before the answer to the large request."""
    name = create("gzip", compression_gzip_level=1, max_message_bytes=90 * MIB)
    content = b"".join(b"%d" % (number * number % 1_000_003) for number in range(2 * MIB))
    sent = batch(content * 8, codec=Codec.LZ4)
    number = wire.write(
        PRODUCE, 9, transactional_id=None, acks=-1, timeout=PATIENCE_MS,
        topic_data=[{"name": name, "partition_data": [{"index": 0, "records": sent}]}],
    )  # fmt: skip
    with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as bystander:
        other = Topic(bystander, create("producer"))
        for offset in range(20):
            assert other.produce(9, batch(b"v")).base_offset == offset
    assert not select.select([wire.socket], [], [], 0)[0]
    answer = wire.read(PRODUCE, 9, number).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
