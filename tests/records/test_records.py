"""Plain records: written records are read back, and other implementations agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from sparklog.base.errors import CorruptRecord, InvalidRecord
from sparklog.records.batch import Codec, TimestampType, check_batch
from sparklog.records.records import Record, read_records, write_records
from support.record_values import MAX_INT, batch_of, framed, records

pytestmark = pytest.mark.slow


@given(values=records(), codec=st.sampled_from(Codec))
def test_records_come_back(values: list[Record], codec: Codec) -> None:
    assert read_records(write_records(values, codec=codec)) == values


@given(values=records(), horizon=st.integers(0, 2**45))
def test_timestamps_are_relative_to_the_delete_horizon_where_there_is_one(values: list[Record], horizon: int) -> None:
    batch = write_records(values, delete_horizon_ms=horizon)
    assert check_batch(batch).delete_horizon_ms == horizon
    assert read_records(batch) == values


def test_records_follow_each_other_in_one_buffer() -> None:
    first, second = write_records([Record(offset=1, key=b"a")]), write_records([Record(offset=2, key=b"b")])
    assert [record.key for record in read_records(first + second, len(first))] == [b"b"]


def test_sequence_numbers_run_on_and_start_again_after_the_largest() -> None:
    values = [Record(offset=i, sequence=MAX_INT - 1 if i == 0 else -1) for i in range(4)]
    assert [record.sequence for record in read_records(write_records(values))] == [MAX_INT - 1, MAX_INT, 0, 1]


def test_a_cleaned_batch_keeps_the_last_offset_it_had() -> None:
    header = check_batch(write_records([Record(offset=7)], last_offset=9))
    assert (header.base_offset, header.last_offset, header.record_count) == (7, 9, 1)


def test_a_batch_of_which_only_the_header_is_left_has_no_records() -> None:
    assert read_records(batch_of(b"", count=0, last_delta=5)) == []


@given(values=records(), codec=st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_kafka_python_reads_what_we_write(values: list[Record], codec: Codec) -> None:
    peer = DefaultRecordBatch(bytes(write_records(values, codec=codec)))
    assert peer.validate_crc()
    assert [
        Record(
            offset=record.offset,
            timestamp_ms=record.timestamp,
            timestamp_type=TimestampType(record.timestamp_type),
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
        )
        for record in peer
    ] == values


@given(values=records(), codec=st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_batches_of_kafka_python_are_read(values: list[Record], codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=int(codec), is_transactional=True, producer_id=9, producer_epoch=1, base_sequence=5,
        batch_size=1 << 30,
    )  # fmt: skip
    for i, record in enumerate(values):
        builder.append(i, abs(record.timestamp_ms), record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    assert check_batch(batch).is_transactional
    assert read_records(batch) == [
        Record(
            offset=i,
            timestamp_ms=abs(record.timestamp_ms),
            key=record.key,
            value=record.value,
            headers=record.headers,
            sequence=5 + i,
        )
        for i, record in enumerate(values)
    ]


def test_records_that_do_not_make_a_batch_are_refused() -> None:
    append_time = Record(offset=1, timestamp_type=TimestampType.LOG_APPEND_TIME)
    for values in (
        [],
        [Record(offset=1)] * 2,
        [Record(offset=0), Record(offset=2**31)],
        [Record(offset=0), append_time],
    ):
        with pytest.raises(InvalidRecord):
            write_records(values)
    with pytest.raises(InvalidRecord):
        write_records([Record(offset=5)], last_offset=4)


def test_a_header_key_that_is_not_text_is_read_as_java_reads_it() -> None:
    body = framed(b"\0\0\0\1\1\2\2\xff\1")
    assert read_records(batch_of(body, count=1))[0].headers == (("\ufffd", None),)


def test_content_above_the_limit_is_refused() -> None:
    batch = write_records([Record(offset=0, value=bytes(10_000))], codec=Codec.ZSTD)
    with pytest.raises(CorruptRecord, match="more than 5000 bytes"):
        read_records(batch, limit_bytes=5000)
