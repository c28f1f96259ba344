"""Bytes to Arrow: every projection, range and mixture of batches has the same records as with the plain reader."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.errors import CorruptRecord, RecordListTooLarge
from sparklog.records import arrow, decoding
from sparklog.records.batch import Codec, TimestampType, assign, read_header, set_log_append_time
from sparklog.records.records import Record, read_records, write_records
from support.record_values import MAX_LONG, batch_of, framed, records, to_rows

pytestmark = pytest.mark.slow

SUBSETS = [
    (),
    ("offset",),
    ("timestamp",),
    ("offset", "timestamp"),
    ("key",),
    ("value",),
    ("headers",),
    ("timestampType",),
]
SUBSETS += [("offset", "key"), ("headers", "offset"), ("value", "timestampType", "key"), arrow.COLUMNS]


def sequence_of_batches(groups: list[list[Record]], codecs: list[Codec]) -> tuple[bytes, list[Record]]:
    """The groups as batches with increasing offsets, and all records with the offsets they get."""
    data = bytearray()
    placed: list[Record] = []
    next_offset = 10
    for values, codec in zip(groups, codecs, strict=False):
        batch = write_records(values, codec=codec)
        assign(batch, 0, base_offset=next_offset, leader_epoch=0)
        next_offset = read_header(batch).next_offset
        placed += read_records(batch)
        data += batch
    return bytes(data), placed


batch_sequences = st.builds(
    sequence_of_batches,
    st.lists(records(max_size=5), min_size=1, max_size=5),
    st.lists(st.sampled_from(Codec), min_size=5, max_size=5),
)


@given(batch_sequences)
def test_all_columns_are_what_the_plain_reader_says(batches: tuple[bytes, list[Record]]) -> None:
    data, placed = batches
    decoded = arrow.decode(data)
    decoded.validate(full=True)
    assert decoded.schema == arrow.schema()
    assert decoded.equals(to_rows(placed))


@given(batches=batch_sequences, columns=st.permutations(arrow.COLUMNS), count=st.integers(0, 6))
def test_any_choice_of_columns_gives_the_same_columns(
    batches: tuple[bytes, list[Record]], columns: list[str], count: int
) -> None:
    data, placed = batches
    chosen = columns[:count]
    decoded = arrow.decode(data, columns=chosen)
    decoded.validate(full=True)
    assert decoded.num_rows == len(placed)
    assert decoded.equals(to_rows(placed).select(chosen))


@given(batches=batch_sequences, columns=st.sampled_from(SUBSETS), data=st.data())
def test_offsets_outside_the_range_are_left_out(
    batches: tuple[bytes, list[Record]], columns: tuple[str, ...], data: st.DataObject
) -> None:
    content, placed = batches
    edges = [0, MAX_LONG, *(record.offset + step for record in placed for step in (-1, 0, 1))]
    offset_from, offset_to = data.draw(st.sampled_from(edges)), data.draw(st.sampled_from(edges))
    decoded = arrow.decode(content, columns=columns, offset_from=offset_from, offset_to=offset_to)
    expected = to_rows([record for record in placed if offset_from <= record.offset < offset_to])
    assert decoded.equals(expected.select(columns))


@given(batches=batch_sequences, size=st.integers(0, 3000))
def test_a_batch_that_is_cut_off_is_left_out(batches: tuple[bytes, list[Record]], size: int) -> None:
    data, placed = batches
    offsets = arrow.decode(data[:size], columns=["offset"]).column(0).to_pylist()
    assert offsets == [record.offset for record in placed][: len(offsets)]
    if size >= len(data):
        assert len(offsets) == len(placed)


@given(batches=batch_sequences, group_bytes=st.integers(0, 2000))
def test_groups_together_hold_what_one_decode_holds(batches: tuple[bytes, list[Record]], group_bytes: int) -> None:
    data, _ = batches
    groups = list(arrow.decode_batches(data, group_bytes=group_bytes))
    assert all(group.num_rows for group in groups)
    assert (
        pa.Table.from_batches(groups, arrow.schema())
        .combine_chunks()
        .equals(pa.Table.from_batches([arrow.decode(data)]))
    )


def test_nothing_decodes_to_no_rows_with_the_schema() -> None:
    for data in (b"", b"\0" * 16, bytearray(), memoryview(b"")):
        assert arrow.decode(data).num_rows == 0
        assert arrow.decode(data).schema == arrow.schema()
        assert list(arrow.decode_batches(data)) == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, pa.py_buffer])
def test_any_buffer_will_do_and_stays_as_it_was(kind: Any) -> None:
    data = bytes(write_records([Record(offset=3, key=b"k", headers=(("h", b"v"),))]))
    buffer = kind(data)
    assert arrow.decode(buffer).column("key").to_pylist() == [b"k"]
    assert bytes(buffer) == data
    if kind is bytearray:
        buffer += b"x"  # raises BufferError while a view of it is left


def test_columns_own_their_bytes() -> None:
    data = bytearray(write_records([Record(offset=3, key=b"key", value=b"value")]))
    decoded = arrow.decode(data)
    data[:] = bytes(len(data))
    assert decoded.to_pylist()[0]["value"] == b"value"


def test_units_of_timestamps() -> None:
    data = write_records([Record(offset=0, timestamp_ms=1_700_000_000_123), Record(offset=1, timestamp_ms=-1)])
    moment = dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=dt.UTC)
    for unit in ("ms", "us", "ns"):
        column = arrow.decode(data, columns=["timestamp"], timestamp_unit=unit).column(0)
        assert column.type == pa.timestamp(unit, "UTC")
        assert column.cast(pa.timestamp("ms", "UTC")).to_pylist()[0] == moment
    with pytest.raises(ValueError, match="timestamp unit 's'"):
        arrow.decode(data, timestamp_unit="s")


def test_a_time_beyond_the_unit_becomes_the_farthest_it_has() -> None:
    data = write_records([Record(offset=0, timestamp_ms=MAX_LONG - 5), Record(offset=1, timestamp_ms=-MAX_LONG)])
    column = arrow.decode(data, columns=["timestamp"], timestamp_unit="us").column(0).view(pa.int64())
    assert column.to_pylist() == [MAX_LONG // 1000 * 1000, -(MAX_LONG // 1000) * 1000]


@pytest.mark.parametrize("columns", SUBSETS)
def test_append_time_is_that_of_the_batch(columns: tuple[str, ...]) -> None:
    batch = write_records([Record(offset=offset, timestamp_ms=offset) for offset in (0, 1, 2)])
    set_log_append_time(batch, 0, read_header(batch), 5_000)
    stamped = [
        Record(offset=offset, timestamp_ms=5_000, timestamp_type=TimestampType.LOG_APPEND_TIME) for offset in (0, 1, 2)
    ]
    assert arrow.decode(batch, columns=columns).equals(to_rows(stamped).select(columns))


def test_timestamps_of_a_cleaned_batch_are_relative_to_its_delete_horizon() -> None:
    values = [Record(offset=offset, timestamp_ms=1_000 + offset) for offset in (4, 9)]
    data = write_records(values, delete_horizon_ms=10**12, last_offset=12)
    assert arrow.decode(data).equals(to_rows(values))


@pytest.mark.parametrize("columns", SUBSETS)
def test_control_batches_and_empty_ones_are_left_out(columns: tuple[str, ...]) -> None:
    marker = bytes(
        write_records([Record(offset=1, key=b"\0\0\0\1", value=b"\0" * 6)], control=True, transactional=True)
    )
    cleaned = batch_of(b"", count=0, last_delta=3, base_offset=2)
    kept = bytes(write_records([Record(offset=6, key=b"k")], transactional=True))
    decoded = arrow.decode(marker + cleaned + kept, columns=columns)
    assert decoded.equals(to_rows([Record(offset=6, key=b"k")]).select(columns))


def test_more_batches_than_fit_in_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_TABLE_ROWS", 3)
    data = b"".join(bytes(write_records([Record(offset=offset, value=b"v")])) for offset in range(10))
    assert arrow.decode(data).column("offset").to_pylist() == list(range(10))


def test_header_keys_that_are_not_text_are_mended() -> None:
    head = b"\0\0\0\1\1"
    bodies = [head + b"\4" + b"\4\xc3\xa9\2x" + b"\2\xff\1", b"\0\0\2\1\1\2\4\xe2\x82\0"]
    data = batch_of(b"".join(map(framed, bodies)), count=2)
    decoded = arrow.decode(data)
    decoded.validate(full=True)
    assert decoded.column("headers").to_pylist() == [
        [{"key": "é", "value": b"x"}, {"key": "\ufffd", "value": None}],
        [{"key": "\ufffd", "value": b""}],
    ]
    assert [record.headers for record in read_records(data)] == [
        (("é", b"x"), ("\ufffd", None)),
        (("\ufffd", b""),),
    ]


def test_a_wrong_crc_is_refused_unless_the_check_is_off() -> None:
    batch = write_records([Record(offset=7, value=b"value")])
    batch[-2] ^= 1
    with pytest.raises(CorruptRecord, match="batch at offset 7, position 0: CRC"):
        arrow.decode(batch)
    assert arrow.decode(batch, check_crc=False).num_rows == 1


def test_a_column_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="no column 'topic'"):
        arrow.decode(b"", columns=["offset", "topic"])


def test_too_large_data_is_refused_or_comes_in_groups() -> None:
    batch = bytes(write_records([Record(offset=0, value=bytes(5000))], codec=Codec.ZSTD))
    assert [group.num_rows for group in arrow.decode_batches(batch * 3, limit_bytes=6_000)] == [1, 1, 1]
    with pytest.raises(RecordListTooLarge):
        arrow.decode(batch * 3, limit_bytes=6_000)
    with pytest.raises(CorruptRecord, match="more than 4000 bytes"):
        list(arrow.decode_batches(batch, limit_bytes=4_000))


def test_too_many_rows_for_one_part_come_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_ROW_BYTES", 2 * arrow.LIMIT_BYTES // 4)
    data = b"".join(bytes(write_records([Record(offset=2 * i), Record(offset=2 * i + 1)])) for i in range(5))
    for columns in (("offset",), arrow.COLUMNS):
        groups = list(arrow.decode_batches(data, columns=columns))
        assert max(group.num_rows for group in groups) <= 4
        assert [offset for group in groups for offset in group.column(0).to_pylist()] == list(range(10))
    with pytest.raises(CorruptRecord, match="claims 5 records"):
        arrow.decode(write_records([Record(offset=offset) for offset in range(5)]))


def test_threads_decode_at_once() -> None:
    data = b"".join(bytes(write_records([Record(offset=i, key=b"k%d" % i)], codec=Codec(i % 5))) for i in range(50))
    expected = arrow.decode(data)
    with ThreadPoolExecutor(8) as pool:
        assert all(result.equals(expected) for result in pool.map(lambda _: arrow.decode(data), range(100)))
