"""Arrow tables as records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import BufferExhausted, InvalidPartitions, InvalidRecord, MessageTooLarge
from sparklog.client import Admin, ConsumerRecord, Producer, TableMetadata
from sparklog.client.aio import AsyncProducer
from sparklog.client.config import ProducerConfig
from sparklog.client.producer.accumulator import TopicQueues
from sparklog.client.producer.partitioner import remembered_partition
from sparklog.client.producer.tables import batches_of, checked_table, pieces, row_sizes
from sparklog.records.arrow import HEADERS_TYPE, encode
from sparklog.testing import RunningBroker
from support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

NewProducer = Callable[..., Producer]
ReadAll = Callable[[str], list[ConsumerRecord]]

ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=4),
        st.none() | st.binary(max_size=60),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    max_size=60,
)


def table_of(rows: list[Any]) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([key for key, _, _ in rows], pa.binary()),
            "value": pa.array([value for _, value, _ in rows], pa.binary()),
            "headers": pa.array([[{"key": k, "value": v} for k, v in headers] for _, _, headers in rows], HEADERS_TYPE),
        }
    )


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, partitions=st.integers(1, 5), limit=st.integers(100, 400), memory=st.integers(300, 3_000))
def test_every_row_lands_in_its_partition_in_order_in_batches_that_are_small_enough(
    rows: list[Any], partitions: int, limit: int, memory: int
) -> None:
    topic = TopicQueues("t", [0] * partitions, limit)
    topic.sticky = 0
    config = ProducerConfig(buffer_memory=memory)
    table = checked_table(table_of(rows), 5)
    landed: dict[int, list[Any]] = {number: [] for number in range(partitions)}

    for piece in pieces(table, topic, config):
        for batch in batches_of(piece, topic, config, partition=None, random=Random(1), now_ms=0):
            assert batch.count == 1 or batch.size <= limit
            assert len(encode(batch.columns(), default_timestamp_ms=0)) <= batch.size
            number = batch.outcome.partition.partition
            landed[number] += [(row["key"], row["value"], row["headers"]) for row in batch.columns().to_pylist()]

    expected = [(key, value, [{"key": k, "value": v} for k, v in headers]) for key, value, headers in rows]
    for number, found in landed.items():
        keyed = [row for row in found if row[0] is not None]
        assert keyed == [
            row for row in expected if row[0] is not None and remembered_partition(row[0], partitions) == number
        ]
    assert sum(map(len, landed.values())) == len(rows)


def test_sizes_count_headers_and_nulls() -> None:
    piece = table_of([(b"kk", b"vvv", []), (None, None, [("h", b"1234"), ("i", None)])]).to_batches()[0]

    assert row_sizes(piece).tolist() == [21 + 5, 21 + 10 + 5 + 10 + 1]


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (pa.table({"key": [b"k"], "worth": [b"v"]}), "columns key, worth"),
        (pa.table({"timestamp": [1]}), "wanted are key, value"),
        (pa.table([pa.array([b"a"]), pa.array([b"b"])], names=["key", "key"]), "at most once"),
        (pa.table({"value": [1.5]}), "column value of type double"),
        (pa.table({"value": [b"v"], "headers": [1]}), "column headers"),
        ([b"v"], "a list: send_table takes"),
    ],
)
def test_tables_that_are_no_records_are_refused(table: Any, complaint: str) -> None:
    with pytest.raises(InvalidRecord, match=complaint):
        checked_table(table, 0)


def test_a_table_is_read_back_as_it_was(admin: Admin, new_producer: NewProducer, read_all: ReadAll) -> None:
    admin.create_topic("t", partitions=3)
    producer = new_producer(compression_type="lz4")
    rows = [(b"%d" % (number % 7), b"%d" % number, [("n", b"%d" % number)]) for number in range(5_000)]

    found = producer.send_table("t", table_of(rows)).result(PATIENCE_S)

    assert isinstance(found, TableMetadata)
    assert found.records == 5_000
    assert sum(part.last_offset - part.first_offset + 1 for part in found.ranges) == 5_000
    records = read_all("t")
    assert len(records) == 5_000
    for record in records:
        assert record.partition == remembered_partition(record.key, 3)
        assert record.headers == (("n", record.value),)
    for key in range(7):
        numbers = [int(record.value) for record in records if record.key == b"%d" % key]
        assert numbers == list(range(key, 5_000, 7))


def test_text_columns_record_batches_and_other_timestamps_are_taken_too(
    admin: Admin, new_producer: NewProducer, read_all: ReadAll
) -> None:
    admin.create_topic("t")
    batch = pa.record_batch(
        {
            "value": pa.array(["a", None, "c"], pa.large_string()),
            "timestamp": pa.array([1_500, None, 2_999], pa.timestamp("us")),
        }
    )

    new_producer().send_table("t", batch).result(PATIENCE_S)

    records = read_all("t")
    assert [record.value for record in records] == [b"a", None, b"c"]
    assert [records[0].timestamp_ms, records[2].timestamp_ms] == [1, 2]
    assert records[1].timestamp_ms > 10**12


def test_a_partition_can_be_named_and_an_empty_table_is_nothing(
    admin: Admin, new_producer: NewProducer, read_all: ReadAll
) -> None:
    admin.create_topic("t", partitions=3)
    producer = new_producer()

    producer.send_table("t", pa.table({"key": [b"a", b"b"]}), partition=2).result(PATIENCE_S)
    nothing = producer.send_table("t", pa.table({"key": pa.array([], pa.binary())}))

    assert nothing.result(0) == TableMetadata("t", 0, ())
    assert {record.partition for record in read_all("t")} == {2}
    with pytest.raises(InvalidPartitions):
        producer.send_table("t", pa.table({"key": [b"a"]}), partition=3)


def test_rows_come_behind_the_records_that_were_sent_before(
    admin: Admin, new_producer: NewProducer, read_all: ReadAll
) -> None:
    admin.create_topic("t")
    producer = new_producer(linger_ms=60_000)
    producer.send("t", b"0")
    producer.send_table("t", pa.table({"value": [b"1", b"2"]}))
    producer.send("t", b"3")
    producer.flush()

    assert [record.value for record in read_all("t")] == [b"0", b"1", b"2", b"3"]


def test_a_row_that_is_too_large_is_refused(admin: Admin, new_producer: NewProducer) -> None:
    admin.create_topic("t")
    producer = new_producer(max_request_size=1_000)

    with pytest.raises(MessageTooLarge, match="a row of 1521 bytes"):
        producer.send_table("t", pa.table({"value": [b"x", b"x" * 1_500]}))


def test_a_table_larger_than_the_buffer_goes_piece_by_piece(
    admin: Admin, new_producer: NewProducer, read_all: ReadAll
) -> None:
    admin.create_topic("t", partitions=2)
    producer = new_producer(buffer_memory=50_000, batch_size=5_000)
    table = pa.table({"value": [b"%04d" % number + b"x" * 200 for number in range(3_000)]})

    assert producer.send_table("t", table).result(PATIENCE_S).records == 3_000
    assert sorted(record.value[:4] for record in read_all("t")) == [b"%04d" % number for number in range(3_000)]


async def test_a_table_that_finds_no_room_is_an_error_after_max_block_ms(sparklog_broker: RunningBroker) -> None:
    options = {"buffer_memory": 5_000, "max_block_ms": 200}
    producer = AsyncProducer(bootstrap_servers=sparklog_broker.bootstrap, **options)
    await (await producer.send("t", b"v"))
    await asyncio.to_thread(sparklog_broker.stop)

    with pytest.raises(BufferExhausted):
        await producer.send_table("t", pa.table({"value": [b"x" * 200] * 100}))
    await producer.close(timeout_ms=0)
