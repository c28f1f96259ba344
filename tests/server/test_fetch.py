"""Fetch, subscribe and list offsets, through a real broker."""

from __future__ import annotations

import asyncio
import threading
import time

import grpc
import pyarrow as pa
import pytest

from sparklog.records.batch import Codec, iterate_headers
from sparklog.records.records import Record, write_records
from sparklog.server.grpc.fetched import CONVERTED_AT_ONCE, ConversionPool
from sparklog.v1 import admin_pb2, log_pb2
from support.patience import PATIENCE_S, until, wait_until

LONG_MS = 600_000
"""Longer than a test: what ends before has not waited for it."""


def test_what_is_there_is_told_at_once_with_the_partitions_offsets(client, topic: str, batch) -> None:
    client.produce(topic, batch([b"a", b"b"]))
    found = client.fetch(topic, 0, max_wait_ms=LONG_MS)
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset, found.next_offset) == (2, 2, 0, 2)
    assert [header.base_offset for _, header in iterate_headers(found.batches)] == [0]


def test_at_the_end_there_is_nothing_and_no_error(client, topic: str, batch) -> None:
    client.produce(topic, batch([b"a"]))
    found = client.fetch(topic, 1)
    assert not found.HasField("error")
    assert found.WhichOneof("payload") is None
    assert found.next_offset == 1


def test_an_offset_inside_a_batch_gives_the_whole_batch_but_only_the_records_asked_for(
    client, topic: str, batch
) -> None:
    client.produce(topic, batch([b"a", b"b", b"c"]))
    assert next(iterate_headers(client.fetch(topic, 1).batches))[1].base_offset == 0
    found = client.fetch(topic, 1, format=log_pb2.RECORDS)
    assert [record.offset for record in found.records.records] == [1, 2]


def test_limits_cut_between_batches_and_never_stop_a_reader(client, topic: str, batch) -> None:
    for _ in range(10):
        client.produce(topic, batch([b"x" * 1000]))
    size = len(batch([b"x" * 1000]))
    assert len(client.fetch(topic, 0, limit=3 * size + 10).batches) == 3 * size
    assert len(client.fetch(topic, 0, max_bytes=2 * size).batches) == 2 * size
    assert len(client.fetch(topic, 0, limit=1).batches) == size


def test_max_bytes_counts_over_all_partitions(client, topic: str, batch) -> None:
    client.admin.CreatePartitions(
        admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.PartitionCount(name=topic, total=3)])
    )
    for partition in range(3):
        client.produce(topic, batch([b"x" * 1000]), partition)
    parts = [log_pb2.PartitionFetch(topic=topic, partition=partition) for partition in range(3)]
    size = len(batch([b"x" * 1000]))
    for limit, expected in ((1, [size, 0, 0]), (2 * size, [size, size, 0]), (0, [size] * 3)):
        answer = client.log.Fetch(log_pb2.FetchRequest(partitions=parts, max_bytes=limit))
        assert [len(part.batches) for part in answer.partitions] == expected


def test_a_long_poll_ends_when_a_record_comes(client, topic: str, batch) -> None:
    waiting = client.log.Fetch.future(
        log_pb2.FetchRequest(partitions=[log_pb2.PartitionFetch(topic=topic, partition=0)], max_wait_ms=LONG_MS)
    )
    client.produce(topic, batch([b"x"]))
    assert waiting.result(PATIENCE_S).partitions[0].high_watermark == 1


def test_a_long_poll_waits_for_min_bytes_over_all_partitions(client, broker, topic: str, batch) -> None:
    one = batch([b"x" * 100])
    request = log_pb2.FetchRequest(
        partitions=[log_pb2.PartitionFetch(topic=topic, partition=0)], max_wait_ms=LONG_MS, min_bytes=2 * len(one)
    )
    waiting = client.log.Fetch.future(request)
    client.produce(topic, one)
    assert not waiting.done()
    client.produce(topic, one)
    assert len(waiting.result(PATIENCE_S).partitions[0].batches) == 2 * len(one)


def test_a_long_poll_ends_after_its_time_with_what_there_is(client, topic: str, batch) -> None:
    client.produce(topic, batch([b"x"]))
    found = client.fetch(topic, 0, max_wait_ms=50, min_bytes=1_000_000)
    assert found.next_offset == 1


def test_a_long_poll_ends_when_its_topic_is_deleted(client, topic: str) -> None:
    request = log_pb2.FetchRequest(partitions=[log_pb2.PartitionFetch(topic=topic, partition=0)], max_wait_ms=LONG_MS)
    waiting = client.log.Fetch.future(request)
    client.admin.DeleteTopics(admin_pb2.DeleteTopicsRequest(names=[topic]))
    assert waiting.result(PATIENCE_S).partitions[0].error.name == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_subscription_tells_what_is_there_and_what_comes(client, topic: str, batch) -> None:
    client.produce(topic, batch([b"0", b"1"]))
    request = log_pb2.SubscribeRequest(
        partitions=[log_pb2.PartitionFetch(topic=topic, partition=0, fetch_offset=1)], format="RECORDS"
    )
    call = client.log.Subscribe(request)
    values = [record.value for record in next(call).partitions[0].records.records]
    for number in range(2, 5):
        client.produce(topic, batch([str(number).encode()]))
        values += [record.value for record in next(call).partitions[0].records.records]
    assert values == [b"1", b"2", b"3", b"4"]
    call.cancel()


@pytest.mark.slow
def test_what_decompresses_to_too_much_is_told_in_parts(client, topic: str) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"value": [bytes(1 << 20)] * 18})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    part = log_pb2.PartitionProduce(topic=topic, partition=0, arrow=sink.getvalue().to_pybytes(), codec="ZSTD")
    for last_offset in (17, 35):
        answer = client.log.Produce(log_pb2.ProduceRequest(partitions=[part]))
        assert answer.partitions[0].last_offset == last_offset
    first = client.fetch(topic, 0, format=log_pb2.ARROW)
    assert len(first.arrow) < 36 << 20
    assert 0 < first.next_offset < 36
    wanted = log_pb2.SubscribeRequest(
        partitions=[log_pb2.PartitionFetch(topic=topic, partition=0)], format=log_pb2.ARROW
    )
    call = client.log.Subscribe(wanted)
    parts = [next(call).partitions[0].next_offset]
    while parts[-1] < 36:
        parts.append(next(call).partitions[0].next_offset)
    assert parts[0] == first.next_offset
    assert len(parts) >= 2
    call.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["RECORDS", "ARROW"])
def test_a_batch_that_decodes_to_too_much_is_refused_and_those_before_it_are_not(
    client, topic: str, batch, form
) -> None:
    bomb = write_records([Record(offset=0, timestamp_ms=1, value=bytes(20 << 20))], codec=Codec.ZSTD)
    client.produce(topic, batch([b"before"]))
    client.produce(topic, bytearray(bomb))
    assert client.fetch(topic, 0, format=form).next_offset == 1
    refused = client.fetch(topic, 1, format=form)
    assert refused.error.name == "RECORD_LIST_TOO_LARGE"
    assert "decodes to more than 16777216 bytes; fetch batches as bytes" in refused.error.message
    assert refused.next_offset == 1
    assert len(client.fetch(topic, 1).batches) == len(bomb)
    part = log_pb2.PartitionFetch(topic=topic, partition=0)
    told = client.log.Subscribe(log_pb2.SubscribeRequest(partitions=[part], format=form))
    assert [(each.partitions[0].next_offset, each.partitions[0].error.name) for each in told] == [
        (1, ""), (1, "RECORD_LIST_TOO_LARGE"),
    ]  # fmt: skip


async def test_few_payloads_are_converted_at_once_even_if_nobody_waits_for_them_any_more() -> None:
    converting, may_end, running, most = ConversionPool(), threading.Event(), 0, 0

    def convert() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        may_end.wait(PATIENCE_S)
        running -= 1

    calls = [asyncio.create_task(converting.run(convert)) for _ in range(2 * CONVERTED_AT_ONCE)]
    await until(lambda: running == CONVERTED_AT_ONCE, "some are converted")
    for call in calls:
        call.cancel()
    last = asyncio.create_task(converting.run(convert))
    await asyncio.sleep(0.01)
    assert running == CONVERTED_AT_ONCE
    may_end.set()
    await last
    assert most == CONVERTED_AT_ONCE


def test_a_cancelled_subscription_leaves_nothing_waiting(client, broker, topic: str) -> None:
    call = client.log.Subscribe(log_pb2.SubscribeRequest(partitions=[log_pb2.PartitionFetch(topic=topic, partition=0)]))
    wait_until(lambda: broker.node.broker.waiting_requests == 1, "it waits")
    call.cancel()
    wait_until(lambda: broker.node.broker.waiting_requests == 0, "nothing waits")


def test_a_subscription_ends_with_the_error_of_a_partition(client, topic: str) -> None:
    call = client.log.Subscribe(
        log_pb2.SubscribeRequest(partitions=[log_pb2.PartitionFetch(topic=topic, partition=0, fetch_offset=7)])
    )
    answers = list(call)
    assert [answer.partitions[0].error.name for answer in answers] == ["OFFSET_OUT_OF_RANGE"]


def test_a_busy_partition_does_not_starve_the_others_of_a_subscription(client, topic: str, batch) -> None:
    client.admin.CreatePartitions(
        admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.PartitionCount(name=topic, total=2)])
    )
    for _ in range(20):
        client.produce(topic, batch([b"x" * 1000]), 0)
    client.produce(topic, batch([b"y"]), 1)
    parts = [log_pb2.PartitionFetch(topic=topic, partition=partition) for partition in range(2)]
    call = client.log.Subscribe(log_pb2.SubscribeRequest(partitions=parts, max_bytes=1000))
    first = [next(call).partitions[0].partition for _ in range(2)]
    assert first == [0, 1]
    call.cancel()


@pytest.mark.slow
def test_a_slow_subscriber_is_read_for_slowly(client, connect, broker, topic: str, batch) -> None:
    for _ in range(40):
        client.produce(topic, batch([b"x" * 1_000_000]))
    slow = connect(broker, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16))
    call = slow.log.Subscribe(log_pb2.SubscribeRequest(partitions=[log_pb2.PartitionFetch(topic=topic, partition=0)]))
    sent = broker.node.broker.metrics.topics[topic]
    next(call)
    settled = settle(lambda: sent.bytes_out)
    assert settled < 10_000_000  # of 40 MB: what the two ends and the network between them hold
    assert len(list(zip(range(39), call, strict=False))) == 39
    call.cancel()


def settle(read) -> int:
    """The figure once it is stable."""
    last, same = read(), 0
    while same < 10:
        time.sleep(0.02)
        now = read()
        last, same = now, same + 1 if now == last else 0
    return last


def query(client, topic: str, **position) -> log_pb2.PartitionOffset:
    asked = log_pb2.PartitionOffsetQuery(topic=topic, partition=0, **position)
    return client.log.ListOffsets(log_pb2.ListOffsetsRequest(partitions=[asked])).partitions[0]


def test_offsets_by_position_and_by_time(client, topic: str, batch) -> None:
    client.produce(topic, batch([b"a", b"b"], timestamp_ms=1000))
    client.produce(topic, batch([b"c", b"d"], timestamp_ms=5000))
    client.produce(topic, batch([b"e"], timestamp_ms=2000))
    assert (query(client, topic, earliest=True).offset, query(client, topic, latest=True).offset) == (0, 5)
    found = {time_ms: query(client, topic, timestamp_ms=time_ms) for time_ms in (0, 1001, 1002, 5001, 5002)}
    assert {time_ms: (part.offset, part.timestamp_ms) for time_ms, part in found.items()} == {
        0: (0, 1000), 1001: (1, 1001), 1002: (2, 5000), 5001: (3, 5001), 5002: (-1, -1),
    }  # fmt: skip
    highest = query(client, topic, max_timestamp=True)
    assert (highest.offset, highest.timestamp_ms) == (3, 5001)


def test_an_empty_partition_has_no_record_at_any_time(client, topic: str) -> None:
    assert query(client, topic, earliest=True).offset == 0
    assert query(client, topic, timestamp_ms=0).offset == -1
    assert query(client, topic, max_timestamp=True).offset == -1


@pytest.mark.slow
def test_many_clients_read_what_one_writes(client, connect, broker, topic: str, batch) -> None:
    def read(found: list[bytes]) -> None:
        reader, offset = connect(broker), 0
        while offset < 200:
            part = reader.fetch(topic, offset, format=log_pb2.RECORDS, max_wait_ms=LONG_MS)
            found += [record.value for record in part.records.records]
            offset = part.next_offset

    seen: list[list[bytes]] = [[], [], []]
    readers = [threading.Thread(target=read, args=(found,)) for found in seen]
    for reader in readers:
        reader.start()
    for number in range(200):
        client.produce(topic, batch([str(number).encode()]))
    for reader in readers:
        reader.join(PATIENCE_S)
    assert seen == [[str(number).encode() for number in range(200)]] * 3


def test_a_fetch_of_nothing_is_answered(client) -> None:
    assert client.log.Fetch(log_pb2.FetchRequest(max_wait_ms=10)).partitions == []
    with pytest.raises(grpc.RpcError):
        client.log.Fetch(log_pb2.FetchRequest(max_wait_ms=-10))


@pytest.mark.slow
def test_a_subscription_to_nothing_is_refused(client) -> None:
    """It would neither end nor wait, and so block the broker's event loop."""
    with pytest.raises(grpc.RpcError, match="a subscription to no partitions") as refused:
        list(client.log.Subscribe(log_pb2.SubscribeRequest(), timeout=PATIENCE_S))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
