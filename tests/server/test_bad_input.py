"""Invalid input of clients: the right error, nothing written, and no harm to others."""

from __future__ import annotations

import resource
import struct
import threading

import grpc
import pyarrow as pa
import pytest

from sparklog.base import errors
from sparklog.records.batch import seal
from sparklog.testing import start_broker
from sparklog.v1 import admin_pb2, log_pb2

MEBIBYTE = 1 << 20


def with_length(batch: bytearray, length: int) -> bytearray:
    struct.pack_into(">i", batch, 8, length)
    return batch


def flipped(batch: bytearray, position: int) -> bytearray:
    batch[position] ^= 1
    return batch


def with_magic(batch: bytearray, magic: int) -> bytearray:
    batch[16] = magic
    return batch


BAD_BATCHES = {
    "a wrong CRC": (lambda make: flipped(make([b"x"]), 62), errors.CorruptRecord),
    "magic 1": (lambda make: with_magic(make([b"x"]), 1), errors.UnsupportedForMessageFormat),
    "magic 3": (lambda make: with_magic(make([b"x"]), 3), errors.UnsupportedForMessageFormat),
    "no bytes": (lambda make: b"", errors.InvalidRecord),
    "ten bytes": (lambda make: b"0123456789", errors.CorruptRecord),
    "a batch without records": (lambda make: make([], last_offset_delta=0), errors.InvalidRecord),
    "fewer records than offsets": (lambda make: make([b"x"], last_offset_delta=1), errors.InvalidRecord),
    "more records than offsets": (lambda make: make([b"x", b"y"], last_offset_delta=0), errors.InvalidRecord),
    "a negative record count": (lambda make: make([b"x"], record_count=-1), errors.InvalidRecord),
    "a negative last offset delta": (lambda make: make([b"x"], last_offset_delta=-5), errors.InvalidRecord),
    "a length of -1": (lambda make: with_length(make([b"x"]), -1), errors.CorruptRecord),
    "a length below the header's": (lambda make: with_length(make([b"x"]), 48), errors.CorruptRecord),
    "a length of 100 MB": (lambda make: with_length(make([b"x"]), 100 * MEBIBYTE), errors.CorruptRecord),
    "the largest length": (lambda make: with_length(make([b"x"]), 2**31 - 1), errors.CorruptRecord),
    "a batch cut short": (lambda make: make([b"x" * 100])[:-1], errors.CorruptRecord),
    "bytes after a good batch": (lambda make: make([b"x"]) + b"rest", errors.CorruptRecord),
    "a bad batch after a good one": (lambda make: make([b"x"]) + flipped(make([b"y"]), 62), errors.CorruptRecord),
    "a control batch": (lambda make: make([b"x"], attributes=0x20), errors.InvalidRecord),
    "codec 7": (lambda make: make([b"x"], attributes=0x07), errors.InvalidRecord),
    "a batch over max.message.bytes": (lambda make: make([b"x" * 2 * MEBIBYTE]), errors.MessageTooLarge),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_a_bad_batch_is_refused_and_nothing_is_written(case: str, client, topic: str, batch) -> None:
    build, error = BAD_BATCHES[case]
    result = client.produce(topic, build(batch))
    assert (result.error.code, result.error.name) == (error.code, error.name), result.error.message
    assert result.error.message
    assert result.base_offset == -1
    assert client.end_offset(topic) == 0
    assert client.produce(topic, batch([b"next"])).base_offset == 0


ARROW_BAD = {
    "garbage": b"\x00garbage that is not Arrow" * 100,
    "nothing": b"",
    "a claim of 2 GB": b"\xff\xff\xff\xff" + struct.pack("<i", 2**31 - 1) + b"0123456789",
}


def arrow(**columns) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


ARROW_BAD |= {
    "an unknown column": arrow(value=[b"x"], colour=["red"]),
    "neither key nor value": arrow(timestamp=pa.array([1], pa.int64())),
    "a value of the wrong type": arrow(value=pa.array([1.5])),
    "headers of the wrong type": arrow(value=[b"x"], headers=["h"]),
    "a timestamp of the wrong type": arrow(value=[b"x"], timestamp=["today"]),
    "no rows": arrow(value=pa.array([], pa.binary())),
    "cut in the middle": arrow(value=[b"x" * 10_000])[:5000],
}


@pytest.mark.parametrize("case", ARROW_BAD)
@pytest.mark.parametrize("partition", [None, 0], ids=["spread by key", "one partition"])
def test_bad_arrow_is_an_invalid_record(case: str, partition: int | None, client, topic: str, batch) -> None:
    part = log_pb2.PartitionProduce(topic=topic, partition=partition, arrow=ARROW_BAD[case])
    result = client.log.Produce(log_pb2.ProduceRequest(partitions=[part])).partitions[0]
    assert result.error.name == "INVALID_RECORD", result.error.message
    assert client.end_offset(topic) == 0


def test_arrow_with_offsets_that_point_outside_is_an_invalid_record(client, topic: str) -> None:
    good = arrow(value=[b"abc", b"defg"])
    offsets = struct.pack("<iii", 0, 3, 7)
    assert good.count(offsets) == 1
    bad = good.replace(offsets, struct.pack("<iii", 0, 3, 70_000_000))
    part = log_pb2.PartitionProduce(topic=topic, arrow=bad)
    assert client.log.Produce(log_pb2.ProduceRequest(partitions=[part])).partitions[0].error.name == "INVALID_RECORD"


@pytest.mark.parametrize("partition", [-1, 1, 2**31 - 1])
def test_a_partition_that_is_not_there_is_unknown(partition: int, client, topic: str, batch) -> None:
    name = "UNKNOWN_TOPIC_OR_PARTITION"
    assert client.produce(topic, batch([b"x"]), partition).error.name == name
    assert client.fetch(topic, 0, partition).error.name == name
    query = log_pb2.PartitionOffsetQuery(topic=topic, partition=partition, latest=True)
    found = client.log.ListOffsets(log_pb2.ListOffsetsRequest(partitions=[query])).partitions[0]
    assert found.error.name == name


@pytest.mark.parametrize("name", ["nowhere", "", ".", "../../etc", "a" * 250, "späť"])
def test_an_unknown_topic_is_unknown_whatever_its_name(name: str, client, batch) -> None:
    produced = client.produce(name, batch([b"x"]))
    assert produced.error.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert produced.error.retriable
    assert client.fetch(name, 0).error.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert client.describe(name).error.name == "UNKNOWN_TOPIC_OR_PARTITION" if name else True


def test_one_bad_partition_of_a_request_harms_no_other(client, topic: str, batch) -> None:
    parts = [
        log_pb2.PartitionProduce(topic="nowhere", partition=0, batches=bytes(batch([b"x"]))),
        log_pb2.PartitionProduce(topic=topic, partition=0, batches=bytes(flipped(batch([b"x"]), 62))),
        log_pb2.PartitionProduce(topic=topic, partition=0, batches=bytes(batch([b"good"]))),
        log_pb2.PartitionProduce(topic=topic, partition=0),
        log_pb2.PartitionProduce(topic=topic, batches=bytes(batch([b"x"]))),
    ]
    results = client.log.Produce(log_pb2.ProduceRequest(partitions=parts)).partitions
    assert sorted(result.error.name for result in results) == [
        "", "CORRUPT_MESSAGE", "INVALID_PARTITIONS", "INVALID_RECORD", "UNKNOWN_TOPIC_OR_PARTITION",
    ]  # fmt: skip
    assert client.end_offset(topic) == 1


@pytest.mark.parametrize(
    "fields", [{"max_wait_ms": -1}, {"min_bytes": -1}, {"max_bytes": -1}], ids=lambda fields: next(iter(fields))
)
def test_a_negative_limit_of_a_fetch_makes_no_sense(fields: dict, client, topic: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        client.fetch(topic, 0, **fields)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert next(iter(fields)) in refused.value.details()


def test_a_negative_limit_of_a_partition_is_its_own_error(client, topic: str) -> None:
    assert client.fetch(topic, 0, limit=-1).error.name == "INVALID_REQUEST"


@pytest.mark.parametrize("offset", [-1, 1, 2**63 - 1, -(2**63)])
def test_an_offset_outside_the_log_is_out_of_range(offset: int, client, topic: str) -> None:
    result = client.fetch(topic, offset)
    assert (result.error.name, result.error.retriable) == ("OFFSET_OUT_OF_RANGE", False)


def test_a_partition_named_twice_in_a_fetch_makes_no_sense(client, topic: str) -> None:
    part = log_pb2.PartitionFetch(topic=topic, partition=0)
    with pytest.raises(grpc.RpcError) as refused:
        client.log.Fetch(log_pb2.FetchRequest(partitions=[part, part]))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_an_unknown_acks_makes_no_sense(client, topic: str, batch) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        client.produce(topic, batch([b"x"]), acks=9)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert client.end_offset(topic) == 0


def test_an_unknown_format_is_told_in_the_result(client, topic: str, batch) -> None:
    client.produce(topic, batch([b"x"]))
    assert client.fetch(topic, 0, format=9).error.name == "INVALID_REQUEST"


def test_a_query_without_position_or_with_a_negative_time_makes_no_sense(client, topic: str) -> None:
    for query in (
        log_pb2.PartitionOffsetQuery(topic=topic, partition=0),
        log_pb2.PartitionOffsetQuery(topic=topic, partition=0, timestamp_ms=-5),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            client.log.ListOffsets(log_pb2.ListOffsetsRequest(partitions=[query]))
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_wrong_leader_epoch_is_fenced(client, topic: str, batch) -> None:
    epoch = client.describe(topic).partitions[0].leader_epoch
    part = log_pb2.PartitionProduce(
        topic=topic, partition=0, batches=bytes(batch([b"x"])), current_leader_epoch=epoch - 1
    )
    produced = client.log.Produce(log_pb2.ProduceRequest(partitions=[part])).partitions[0]
    assert produced.error.name == "FENCED_LEADER_EPOCH"
    wanted = log_pb2.PartitionFetch(topic=topic, partition=0, current_leader_epoch=epoch + 1)
    fetched = client.log.Fetch(log_pb2.FetchRequest(partitions=[wanted])).partitions[0]
    assert fetched.error.name == "UNKNOWN_LEADER_EPOCH"


def test_a_batch_that_no_decoder_accepts_is_that_partitions_error_where_records_are_wanted(
    client, topic: str, batch
) -> None:
    nonsense = batch([b"x" * 50])
    nonsense[61:] = b"\xff" * (len(nonsense) - 61)
    from_clients = bytes(reseal(nonsense))
    assert not client.produce(topic, from_clients).HasField("error")
    for form in (log_pb2.RECORDS, log_pb2.ARROW):
        assert client.fetch(topic, 0, format=form).error.name in ("CORRUPT_MESSAGE", "INVALID_RECORD")
    assert client.fetch(topic, 0).batches[61:] == from_clients[61:]


def reseal(batch: bytearray) -> bytearray:
    seal(batch)
    return batch


@pytest.mark.slow
def test_a_request_over_the_limit_is_refused_by_its_size(client, topic: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        client.produce(topic, bytes(21 * MEBIBYTE))
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.end_offset(topic) == 0


@pytest.mark.slow
def test_grpc_takes_no_request_that_would_hold_up_others_for_long(connect, batch) -> None:
    with start_broker(message_max_bytes=64 * MEBIBYTE) as broker:
        client = connect(broker)
        assert not client.produce("t", batch([bytes(31 * MEBIBYTE)])).HasField("error")
        with pytest.raises(grpc.RpcError) as refused:
            client.produce("t", batch([bytes(33 * MEBIBYTE)]))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert client.end_offset("t") == 1


def test_bytes_that_are_no_protobuf_are_refused(client) -> None:
    call = client.channel.unary_unary("/sparklog.v1.Log/Produce")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"\x0a\xff\xff\xff\xff\x0f")
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.slow
def test_a_storm_of_claims_costs_no_memory_and_others_go_on(client, connect, broker, topic: str, batch) -> None:
    other, stop = connect(broker), threading.Event()
    failures: list[str] = []

    def produce_well() -> None:
        while not stop.is_set():
            result = other.produce(topic, batch([b"good"]))
            if result.HasField("error"):
                failures.append(result.error.message)

    beside = threading.Thread(target=produce_well)
    beside.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        assert client.produce(topic, with_length(batch([b"x"]), 100 * MEBIBYTE)).error.name == "CORRUPT_MESSAGE"
    stop.set()
    beside.join()
    assert not failures
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024  # kilobytes


BAD_TOPICS = {
    "an illegal name": (admin_pb2.NewTopic(name="no spaces"), "INVALID_TOPIC_EXCEPTION"),
    "an empty name": (admin_pb2.NewTopic(name=""), "INVALID_TOPIC_EXCEPTION"),
    "a name with a path": (admin_pb2.NewTopic(name="../up"), "INVALID_TOPIC_EXCEPTION"),
    "no partitions": (admin_pb2.NewTopic(name="t", partitions=0), "INVALID_PARTITIONS"),
    "negative partitions": (admin_pb2.NewTopic(name="t", partitions=-1), "INVALID_PARTITIONS"),
    "two billion partitions": (admin_pb2.NewTopic(name="t", partitions=2**31 - 1), "POLICY_VIOLATION"),
    "two replicas on one broker": (admin_pb2.NewTopic(name="t", replication_factor=2), "INVALID_REPLICATION_FACTOR"),
    "no replicas": (admin_pb2.NewTopic(name="t", replication_factor=0), "INVALID_REPLICATION_FACTOR"),
    "an unknown key": (admin_pb2.NewTopic(name="t", configs={"retention": "1"}), "INVALID_CONFIG"),
    "a value out of bounds": (admin_pb2.NewTopic(name="t", configs={"segment.bytes": "1"}), "INVALID_CONFIG"),
}


KAFKAS_WORDS = {
    "no partitions": "Number of partitions was set to an invalid non-positive value.",
    "no replicas": "Replication factor must be larger than 0, or -1 to use the default value.",
    "an unknown key": "Unknown topic config name: retention",
}


@pytest.mark.parametrize("case", BAD_TOPICS)
def test_a_bad_topic_is_not_created(case: str, client) -> None:
    topic, error = BAD_TOPICS[case]
    before = client.admin.ListTopics(admin_pb2.ListTopicsRequest())
    result = client.admin.CreateTopics(admin_pb2.CreateTopicsRequest(topics=[topic])).topics[0]
    assert result.error.name == error, result.error.message
    assert result.error.message.startswith(KAFKAS_WORDS.get(case, ""))
    assert client.admin.ListTopics(admin_pb2.ListTopicsRequest()) == before
