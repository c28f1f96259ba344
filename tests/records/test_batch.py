"""The 61-byte header: reading, checking, assigning offsets and timestamps."""

from __future__ import annotations

import pytest
from hypothesis import given

from sparklog.base.errors import CorruptRecord, InvalidRecord, UnsupportedForMessageFormat
from sparklog.records.batch import (
    HEADER_SIZE,
    Codec,
    TimestampType,
    assign,
    check_batch,
    check_produced,
    iterate_headers,
    read_header,
    set_log_append_time,
    size_and_magic,
)
from sparklog.records.records import Record, read_records, write_records
from support.record_values import batch_of, records

THREE = [Record(offset=offset, timestamp_ms=1000 + offset, value=b"v%d" % offset) for offset in range(3)]


@pytest.mark.slow
@given(records())
def test_header_says_what_the_records_are(values: list[Record]) -> None:
    header = check_batch(write_records(values, codec=Codec.ZSTD, producer_id=7, producer_epoch=3, leader_epoch=5))
    assert header.base_offset == values[0].offset
    assert header.last_offset == values[-1].offset
    assert header.next_offset == values[-1].offset + 1
    assert header.record_count == len(values)
    assert header.max_timestamp == max(record.timestamp_ms for record in values)
    assert header.timestamp_type is values[0].timestamp_type
    assert header.codec is Codec.ZSTD
    assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (7, 3, 5)


def test_attributes_are_told_apart() -> None:
    header = read_header(write_records(THREE, transactional=True, control=True, delete_horizon_ms=99))
    assert header.is_transactional
    assert header.is_control
    assert header.delete_horizon_ms == 99
    plain = read_header(write_records(THREE))
    assert not plain.is_transactional
    assert not plain.is_control
    assert plain.delete_horizon_ms is None


def test_batches_are_walked_up_to_the_one_that_is_cut_off() -> None:
    batches = [bytes(write_records([Record(offset=offset, value=b"x" * 30)])) for offset in (5, 6, 9)]
    data = b"".join(batches)
    for size in range(len(data) + 1):
        whole = sum(size >= sum(map(len, batches[: i + 1])) for i in range(3))
        assert [header.base_offset for _, header in iterate_headers(data[:size])] == [5, 6, 9][:whole]


def test_place_in_the_log_is_outside_the_crc() -> None:
    batch = write_records(THREE)
    assign(batch, 0, base_offset=1_000_000, leader_epoch=42)
    header = check_batch(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (1_000_000, 1_000_002, 42)
    assert [record.offset for record in read_records(batch)] == [1_000_000, 1_000_001, 1_000_002]


def test_append_time_is_stamped_on_every_record() -> None:
    batch = write_records(THREE)
    set_log_append_time(batch, 0, read_header(batch), 123_456)
    stamped = read_records(batch)
    assert {record.timestamp_ms for record in stamped} == {123_456}
    assert {record.timestamp_type for record in stamped} == {TimestampType.LOG_APPEND_TIME}


def test_too_few_bytes_are_no_header() -> None:
    with pytest.raises(CorruptRecord):
        read_header(bytes(write_records(THREE))[: HEADER_SIZE - 1])
    with pytest.raises(CorruptRecord):
        size_and_magic(b"\0" * 16)


def test_other_formats_are_named() -> None:
    batch = write_records(THREE)
    batch[16] = 1
    with pytest.raises(UnsupportedForMessageFormat, match="magic 1"):
        read_header(batch)
    assert size_and_magic(batch) == (len(batch), 1)


@pytest.mark.parametrize("length", [48, 0, -1, -(2**31)])
def test_impossible_length_is_refused(length: int) -> None:
    batch = write_records(THREE)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecord):
        read_header(batch)


def test_codec_that_does_not_exist_is_refused() -> None:
    data = batch_of(b"", count=1, attributes=7)
    with pytest.raises(CorruptRecord, match="no codec 7"):
        _ = read_header(data).codec
    with pytest.raises(InvalidRecord, match="no codec 7"):
        check_produced(data)


def test_batches_that_producers_must_not_send_are_refused() -> None:
    good = bytes(write_records(THREE))
    assert len(check_produced(good + good)) == 2
    gaps = bytes(write_records([THREE[0], THREE[2]]))
    control = bytes(write_records(THREE, control=True))
    empty = batch_of(b"", count=0, last_delta=0)
    negative = batch_of(b"", count=-1, last_delta=-2)
    for data in (b"", gaps, control, empty, negative, good + control):
        with pytest.raises(InvalidRecord):
            check_produced(data)
    for data in (good[:-1], good + b"\0", good[:-1] + b"\1"):
        with pytest.raises(CorruptRecord):
            check_produced(data)
