"""Produce in all its forms, through a real broker."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparklog.base.murmur2 import partition_for_key
from sparklog.v1 import admin_pb2, log_pb2, records_pb2

pytestmark = pytest.mark.slow


def arrow_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def grown(client, topic: str, partitions: int) -> str:
    counts = [admin_pb2.PartitionCount(name=topic, total=partitions)]
    client.admin.CreatePartitions(admin_pb2.CreatePartitionsRequest(topics=counts))
    return topic


def records_of(client, topic: str, partition: int = 0) -> list[records_pb2.Record]:
    return list(client.fetch(topic, 0, partition, format=log_pb2.RECORDS).records.records)


def test_batches_get_offsets_without_gaps_and_are_stored_as_sent(client, topic: str, batch) -> None:
    first = client.produce(topic, batch([b"a", b"b"]) + batch([b"c"]))
    second = client.produce(topic, batch([b"d"]))
    assert (first.base_offset, first.last_offset, first.log_append_time_ms, first.log_start_offset) == (0, 2, -1, 0)
    assert (second.base_offset, second.last_offset) == (3, 3)
    stored = client.fetch(topic, 0).batches
    assert stored[21:].startswith(
        bytes(batch([b"a", b"b"])[21:])
    )  # but for offset and leader epoch, which no CRC covers
    assert [record.value for record in records_of(client, topic)] == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("acks", ["ALL", "LEADER"])
def test_acks_all_and_leader_answer_with_the_offsets(acks: str, client, topic: str, batch) -> None:
    assert client.produce(topic, batch([b"x"]), acks=acks).base_offset == 0
    assert client.produce(topic, batch([b"x"]), acks=acks).base_offset == 1


def test_no_acks_answers_nothing_and_reports_no_error(client, topic: str, batch) -> None:
    parts = [
        log_pb2.PartitionProduce(topic=name, partition=0, batches=bytes(batch([b"x"]))) for name in (topic, "nowhere")
    ]
    answer = client.log.Produce(log_pb2.ProduceRequest(partitions=parts, acks="NO_ACKS", correlation_id=4))
    assert answer == log_pb2.ProduceResponse(correlation_id=4)
    assert client.end_offset(topic) == 1


def test_plain_records_come_back_as_they_were(client, topic: str) -> None:
    sent = [
        records_pb2.Record(key=b"k", value=b"v", timestamp_ms=17),
        records_pb2.Record(value=b"without key", timestamp_ms=18, headers=[records_pb2.Header(key="h", value=b"1")]),
        records_pb2.Record(
            key=b"tombstone",
            timestamp_ms=16,
            headers=[records_pb2.Header(key="a"), records_pb2.Header(key="a", value=b"")],
        ),
        records_pb2.Record(key=b"", value=b"", timestamp_ms=19),
    ]
    part = log_pb2.PartitionProduce(
        topic=topic, partition=0, records=records_pb2.RecordList(records=sent), codec="ZSTD"
    )
    assert client.log.Produce(log_pb2.ProduceRequest(partitions=[part])).partitions[0].last_offset == 3
    for offset, record in enumerate(sent):
        record.offset = offset
    assert records_of(client, topic) == sent


def test_a_record_without_timestamp_gets_the_brokers_time(client, broker, topic: str) -> None:
    before = broker.node.broker.services.clock.time_ms()
    part = log_pb2.PartitionProduce(
        topic=topic, records=records_pb2.RecordList(records=[records_pb2.Record(value=b"x")])
    )
    client.log.Produce(log_pb2.ProduceRequest(partitions=[part]))
    after = broker.node.broker.services.clock.time_ms()
    assert before <= records_of(client, topic)[0].timestamp_ms <= after


def test_records_are_spread_by_key_as_kafka_does(client, topic: str) -> None:
    grown(client, topic, 5)
    keys = [f"key-{number}".encode() for number in range(100)]
    sent = [records_pb2.Record(key=key, value=key) for key in keys]
    part = log_pb2.PartitionProduce(topic=topic, records=records_pb2.RecordList(records=sent))
    answer = client.log.Produce(log_pb2.ProduceRequest(partitions=[part]))
    assert sum(result.last_offset - result.base_offset + 1 for result in answer.partitions) == 100
    for partition in range(5):
        expected = [key for key in keys if partition_for_key(key, 5) == partition]
        assert [record.key for record in records_of(client, topic, partition)] == expected


def test_records_without_key_stay_together(client, topic: str) -> None:
    grown(client, topic, 5)
    sent = [records_pb2.Record(value=str(number).encode()) for number in range(10)]
    part = log_pb2.PartitionProduce(topic=topic, records=records_pb2.RecordList(records=sent))
    answer = client.log.Produce(log_pb2.ProduceRequest(partitions=[part]))
    assert [(result.base_offset, result.last_offset) for result in answer.partitions] == [(0, 9)]


@pytest.mark.parametrize("text", [True, False], ids=["string", "binary"])
def test_an_arrow_table_is_spread_by_key_and_comes_back_as_arrow(text: bool, client, topic: str) -> None:
    grown(client, topic, 3)
    keys = [None if number % 10 == 0 else f"k{number}" for number in range(1000)]
    kind = pa.string() if text else pa.binary()
    table = pa.table(
        {
            "key": pa.array([key if key is None or text else key.encode() for key in keys], kind),
            "value": pa.array([str(number) if text else str(number).encode() for number in range(1000)], kind),
            "timestamp": pa.array(range(1000), pa.timestamp("ms", "UTC")),
        }
    )
    part = log_pb2.PartitionProduce(topic=topic, arrow=arrow_ipc(table), codec="LZ4")
    answer = client.log.Produce(log_pb2.ProduceRequest(partitions=[part]))
    assert not [result.error.message for result in answer.partitions if result.HasField("error")]
    read = []
    for partition in range(3):
        found = client.fetch(topic, 0, partition, format=log_pb2.ARROW)
        with pa.ipc.open_stream(found.arrow) as reader:
            rows = reader.read_all().to_pylist()
        assert [row["offset"] for row in rows] == list(range(found.next_offset))
        assert all(partition_for_key(row["key"], 3) == partition for row in rows if row["key"] is not None)
        read += [int(row["value"]) for row in rows]
    assert sorted(read) == list(range(1000))


def test_a_table_larger_than_a_batch_may_be_becomes_several(client, topic: str) -> None:
    table = pa.table({"value": [b"x" * 1000] * 3000})
    part = log_pb2.PartitionProduce(topic=topic, partition=0, arrow=arrow_ipc(table))
    answer = client.log.Produce(log_pb2.ProduceRequest(partitions=[part])).partitions[0]
    assert (answer.base_offset, answer.last_offset) == (0, 2999)


def test_a_stream_is_answered_in_its_order(client, topic: str, batch) -> None:
    def requests():
        for number in range(300):
            if number % 3:
                part = log_pb2.PartitionProduce(topic=topic, partition=0, batches=bytes(batch([str(number).encode()])))
            else:
                record = records_pb2.Record(value=str(number).encode())
                part = log_pb2.PartitionProduce(
                    topic=topic, partition=0, records=records_pb2.RecordList(records=[record])
                )
            yield log_pb2.ProduceRequest(partitions=[part], correlation_id=number)

    answers = list(client.log.ProduceStream(requests()))
    assert [answer.correlation_id for answer in answers] == list(range(300))
    assert [answer.partitions[0].base_offset for answer in answers] == list(range(300))
    assert [int(record.value) for record in records_of(client, topic)] == list(range(300))


def test_an_error_on_a_stream_is_one_answer_and_the_stream_goes_on(client, topic: str, batch) -> None:
    def request(name: str) -> log_pb2.ProduceRequest:
        part = log_pb2.PartitionProduce(topic=name, partition=0, batches=bytes(batch([b"x"])))
        return log_pb2.ProduceRequest(partitions=[part])

    answers = list(client.log.ProduceStream(iter([request(topic), request("nowhere"), request(topic)])))
    assert [answer.partitions[0].error.name for answer in answers] == ["", "UNKNOWN_TOPIC_OR_PARTITION", ""]


def test_log_append_time_is_stamped_and_told(client, broker, topic: str, batch) -> None:
    resource = admin_pb2.ConfigResource(type="TOPIC", name=topic)
    change = admin_pb2.ConfigChange(resource=resource, set={"message.timestamp.type": "LogAppendTime"})
    client.admin.AlterConfigs(admin_pb2.AlterConfigsRequest(changes=[change]))
    told = client.produce(topic, batch([b"x"], timestamp_ms=5)).log_append_time_ms
    record = records_of(client, topic)[0]
    assert (record.timestamp_ms, record.timestamp_type) == (told, records_pb2.LOG_APPEND_TIME)
    assert abs(told - broker.node.broker.services.clock.time_ms()) < 60_000


def test_acks_all_is_refused_where_the_topic_wants_more_replicas(client, topic: str, batch) -> None:
    resource = admin_pb2.ConfigResource(type="TOPIC", name=topic)
    change = admin_pb2.ConfigChange(resource=resource, set={"min.insync.replicas": "2"})
    client.admin.AlterConfigs(admin_pb2.AlterConfigsRequest(changes=[change]))
    assert client.produce(topic, batch([b"x"])).error.name == "NOT_ENOUGH_REPLICAS"
    assert not client.produce(topic, batch([b"x"]), acks="LEADER").HasField("error")
