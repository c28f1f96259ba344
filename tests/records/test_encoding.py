"""Arrow to bytes: columns of all types and slices become batches with their rows; invalid columns are refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.errors import InvalidRecord
from sparklog.records import arrow
from sparklog.records.batch import Codec, TimestampType, check_batch, check_produced
from sparklog.records.records import Record, read_records, write_records
from support.record_values import MAX_INT, records, to_rows

pytestmark = pytest.mark.slow

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


@given(values=records(), codec=st.sampled_from(Codec))
def test_batch_is_byte_for_byte_that_of_the_plain_writer(values: list[Record], codec: Codec) -> None:
    kind = values[0].timestamp_type
    batch = arrow.encode(to_rows(values), default_timestamp_ms=0, codec=codec, timestamp_type=kind, keep_offsets=True)
    assert batch == write_records(values, codec=codec)


@given(records())
def test_offsets_are_given_one_after_the_other(values: list[Record]) -> None:
    batch = arrow.encode(to_rows(values), default_timestamp_ms=0, base_offset=7, leader_epoch=3)
    assert [record.offset for record in read_records(batch)] == list(range(7, 7 + len(values)))
    assert check_produced(batch)[0][1].leader_epoch == 3


@given(values=records(max_size=20), start=st.integers(0, 10), length=st.integers(1, 10))
def test_a_slice_is_what_it_shows(values: list[Record], start: int, length: int) -> None:
    rows = to_rows(values).slice(start, length)
    if not rows.num_rows:
        assert arrow.encode_all(rows, default_timestamp_ms=0, max_batch_bytes=1000) == []
        return
    table = pa.Table.from_batches([rows.slice(0, 1), rows.slice(1)])
    for form in (rows, table):
        batch = arrow.encode(form, default_timestamp_ms=0)
        columns = ["timestamp", "key", "value", "headers"]
        assert arrow.decode(batch, columns=columns).equals(rows.select(columns))


@given(values=records(max_size=20), max_batch_bytes=st.integers(0, 2000))
def test_batches_keep_below_the_limit_unless_one_record_does_not(values: list[Record], max_batch_bytes: int) -> None:
    rows = to_rows(values)
    batches = arrow.encode_all(rows, default_timestamp_ms=0, max_batch_bytes=max_batch_bytes, base_sequence=MAX_INT - 3)
    offset = 0
    for batch in batches:
        header = check_produced(batch)[0][1]
        assert header.base_offset == offset
        assert header.base_sequence == (MAX_INT - 3 + offset) % 2**31
        assert len(batch) <= max_batch_bytes or header.record_count == 1
        offset = header.next_offset
    assert offset == len(values)
    columns = ["timestamp", "key", "value", "headers"]
    assert arrow.decode(b"".join(batches), columns=columns).equals(rows.select(columns))


def test_batches_are_as_full_as_they_can_be() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"x" * 93] * 1000})  # 100 bytes each, or 101
    batches = arrow.encode_all(rows, default_timestamp_ms=0, max_batch_bytes=10_061)
    assert all(10_061 - 101 < len(batch) <= 10_061 for batch in batches[:-1])


TEXTS = ["a", None, "", "é" * 100]
BYTES = [text if text is None else text.encode() for text in TEXTS]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(BYTES, pa.binary()),
        pa.array(TEXTS, pa.string()),
        pa.array(BYTES, pa.large_binary()),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string()).dictionary_encode(),
        pa.array(BYTES, pa.binary_view()),
        pa.array(TEXTS, pa.string_view()),
        pa.concat_arrays([pa.array([b"before"]), pa.array(BYTES, pa.binary())])[1:],
    ],
    ids=lambda column: str(column.type),
)
def test_keys_and_values_may_be_of_any_type_of_strings(column: pa.Array) -> None:
    rows = pa.RecordBatch.from_arrays([column, column], names=["key", "value"])
    decoded = arrow.decode(arrow.encode(rows, default_timestamp_ms=0))
    assert decoded.column("key").to_pylist() == BYTES
    assert decoded.column("value").to_pylist() == BYTES


def test_fixed_size_binary_and_a_column_of_nulls() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"abc", None], pa.binary(3)), pa.nulls(2)], names=["key", "value"])
    assert arrow.decode(arrow.encode(rows, default_timestamp_ms=0), columns=["key", "value"]).to_pylist() == [
        {"key": b"abc", "value": None},
        {"key": None, "value": None},
    ]


PAIRS = [[("a", b"1"), ("a", None)], [], None, [("é", b"")]]


@pytest.mark.parametrize(
    "kind",
    [
        arrow.HEADERS_TYPE,
        pa.large_list(HEADER),
        pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.map_(pa.string(), pa.binary()),
    ],
    ids=str,
)
def test_headers_may_be_lists_or_maps(kind: pa.DataType) -> None:
    values: list[Any] = PAIRS
    if not pa.types.is_map(kind):
        values = [pairs and [{"key": key, "value": value} for key, value in pairs] for pairs in PAIRS]
    for extra in (0, 2):
        column = pa.array([values[0]] * extra + values, kind)[extra:]
        rows = pa.RecordBatch.from_arrays([column], names=["headers"])
        decoded = arrow.decode(arrow.encode(rows, default_timestamp_ms=0), columns=["headers"]).column(0).to_pylist()
        assert decoded == [[{"key": key, "value": value} for key, value in pairs or []] for pairs in PAIRS]


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        (pa.timestamp("ms", "UTC"), 1_234, 1_234),
        (pa.timestamp("us", "UTC"), 1_234_999, 1_234),
        (pa.timestamp("ns"), 1_234_999_999, 1_234),
        (pa.timestamp("us", "UTC"), -1, -1),
        (pa.timestamp("s", "Europe/Paris"), 12, 12_000),
        (pa.int64(), 1_234, 1_234),
        (pa.int32(), 1_234, 1_234),
    ],
)
def test_timestamps_may_be_of_any_unit(kind: pa.DataType, stored: int, expected: int) -> None:
    column = pa.array([0, stored, None], pa.int64()).cast(pa.int32() if kind == pa.int32() else pa.int64())
    rows = pa.RecordBatch.from_arrays([column if pa.types.is_integer(kind) else column.view(kind)], names=["timestamp"])
    batch = arrow.encode(rows.slice(1), default_timestamp_ms=77)
    assert [record.timestamp_ms for record in read_records(batch)] == [expected, 77]
    assert check_batch(batch).max_timestamp == max(expected, 77)


def test_missing_columns_are_null_and_others_are_ignored() -> None:
    rows = pa.RecordBatch.from_pydict({"topic": ["t"], "value": [b"v"]})
    batch = arrow.encode(rows, default_timestamp_ms=5, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert read_records(batch) == [
        Record(offset=0, timestamp_ms=5, timestamp_type=TimestampType.LOG_APPEND_TIME, value=b"v")
    ]


def test_producer_fields_are_written() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"v"]})
    header = check_batch(arrow.encode(rows, default_timestamp_ms=5, producer_id=9, producer_epoch=2, base_sequence=4))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 4)


def test_offsets_that_are_kept_must_increase() -> None:
    rows = pa.RecordBatch.from_pydict({"offset": [5, 9, 9]})
    with pytest.raises(InvalidRecord, match="row 2: its offset"):
        arrow.encode(rows, default_timestamp_ms=0, keep_offsets=True)
    assert arrow.decode(arrow.encode(rows.slice(0, 2), default_timestamp_ms=0, keep_offsets=True)).column(
        "offset"
    ).to_pylist() == [5, 9]
    for wrong in ({"offset": [None]}, {"value": [b"v"]}, {"offset": ["x"]}):
        with pytest.raises(InvalidRecord):
            arrow.encode(pa.RecordBatch.from_pydict(wrong), default_timestamp_ms=0, keep_offsets=True)


def test_offsets_too_far_apart_make_two_batches() -> None:
    rows = pa.RecordBatch.from_pydict({"offset": [0, MAX_INT, MAX_INT + 1]})
    batches = arrow.encode_all(rows, default_timestamp_ms=0, keep_offsets=True, max_batch_bytes=10_000)
    assert [check_batch(batch).last_offset_delta for batch in batches] == [MAX_INT, 0]
    with pytest.raises(InvalidRecord, match="not make one batch, but 2"):
        arrow.encode(rows, default_timestamp_ms=0, keep_offsets=True)


def test_a_header_without_a_key_is_refused() -> None:
    key = pa.array([[{"key": None, "value": b"v"}]], arrow.HEADERS_TYPE)
    entry = pa.array([[None]], arrow.HEADERS_TYPE)
    for column in (key, entry):
        with pytest.raises(InvalidRecord, match="row 0: a header has no key"):
            arrow.encode(pa.RecordBatch.from_arrays([column], names=["headers"]), default_timestamp_ms=0)


@pytest.mark.parametrize(
    "columns",
    [
        {"key": pa.array([1])},
        {"value": pa.array([1.5])},
        {"headers": pa.array(["h"])},
        {"headers": pa.array([[1]])},
        {"timestamp": pa.array(["noon"])},
    ],
    ids=["int64 key", "float value", "text as headers", "list of int64 as headers", "text as timestamp"],
)
def test_columns_of_the_wrong_type_are_refused(columns: dict[str, pa.Array]) -> None:
    with pytest.raises(InvalidRecord):
        arrow.encode(pa.RecordBatch.from_pydict(columns), default_timestamp_ms=0)


def test_two_columns_of_one_name_are_refused() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["key", "key"])
    with pytest.raises(InvalidRecord, match="2 columns are named key"):
        arrow.encode(rows, default_timestamp_ms=0)


def test_rows_without_end_are_refused() -> None:
    endless = pa.Array.from_buffers(pa.null(), 10**12, [None])  # as a message has it: pa.nulls would make room for it
    rows = pa.RecordBatch.from_arrays([endless], names=["value"])
    with pytest.raises(InvalidRecord, match="1000000000000 rows in 0 bytes"):
        arrow.encode_all(rows, default_timestamp_ms=0, max_batch_bytes=1000)


def test_no_rows_make_no_batch() -> None:
    rows = arrow.schema().empty_table()
    assert arrow.encode_all(rows, default_timestamp_ms=0, max_batch_bytes=1000) == []
    with pytest.raises(InvalidRecord):
        arrow.encode(rows, default_timestamp_ms=0)


def rows_with(name: str, offsets: list[int]) -> pa.RecordBatch:
    """A column with wrong offsets, as in a message from the network: changed after pyarrow has read them."""
    memory = np.zeros(len(offsets), np.int32)
    data = pa.py_buffer(b"0123456789")
    buffers = [None, pa.py_buffer(memory)]
    if name == "headers":
        ten = [None, pa.py_buffer(np.arange(11, dtype=np.int32)), data]
        children = [pa.Array.from_buffers(kind, 10, ten) for kind in (pa.string(), pa.binary())]
        entries = pa.StructArray.from_arrays(children, ["key", "value"])
        column = pa.Array.from_buffers(arrow.HEADERS_TYPE, len(offsets) - 1, buffers, children=[entries])
    else:
        column = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [*buffers, data])
    rows = pa.RecordBatch.from_arrays([column], names=[name])
    memory[:] = offsets
    return rows


@pytest.mark.parametrize("name", ["key", "value", "headers"])
@pytest.mark.parametrize("offsets", [[0, 5, 11], [-1, 5], [5, 3, 10], [0, -5], [0, 2**31 - 1], [2**31 - 5, 2**31 - 1]])
def test_offsets_that_leave_the_data_are_refused(name: str, offsets: list[int]) -> None:
    with pytest.raises(InvalidRecord):
        arrow.encode(rows_with(name, offsets), default_timestamp_ms=0)


@given(st.data())
def test_a_damaged_message_is_refused_or_encoded(data: st.DataObject) -> None:
    rows = to_rows([Record(offset=i, key=b"key", value=None, headers=(("h", b"v"),)) for i in range(5)])
    with pa.BufferOutputStream() as stream:
        with pa.ipc.new_stream(stream, rows.schema) as writer:
            writer.write_batch(rows)
        message = bytearray(stream.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    with suppress(pa.ArrowException, OSError, InvalidRecord):
        for batch in pa.ipc.open_stream(message):
            for encoded in arrow.encode_all(batch, default_timestamp_ms=0, max_batch_bytes=1000):
                check_batch(encoded)
