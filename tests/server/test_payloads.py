"""Conversion of plain records and Arrow to batches and back, without a broker."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import InvalidRecord
from sparklog.base.murmur2 import partition_for_key
from sparklog.records.aborted import NONE_ABORTED
from sparklog.records.batch import iterate_headers
from sparklog.server.grpc.payloads import (
    decode_to_arrow,
    decode_to_records,
    encode,
    split_by_key,
    table_of_arrow,
    table_of_records,
)
from sparklog.v1 import records_pb2

MAX = 1 << 20


def ipc(table: pa.Table, **options) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


HEADERS = st.lists(
    st.builds(records_pb2.Header, key=st.text(max_size=5), value=st.none() | st.binary(max_size=5)), max_size=3
)
RECORDS = st.lists(
    st.builds(
        records_pb2.Record,
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=50),
        headers=HEADERS,
        timestamp_ms=st.integers(0, 2**40),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.slow
@given(RECORDS, st.sampled_from([0, 1, 2, 3, 4]))
@settings(max_examples=50, deadline=None)
def test_records_come_back_as_they_went(records: list[records_pb2.Record], codec: int) -> None:
    data = encode(table_of_records(records), codec=codec, now_ms=5, max_batch_bytes=MAX)
    expected = [records_pb2.Record.FromString(record.SerializeToString()) for record in records]
    for offset, record in enumerate(expected):
        record.offset = offset
    (found,) = decode_to_records(data, 0, 1 << 30, NONE_ABORTED)
    assert list(records_pb2.RecordList.FromString(found.payload).records) == expected
    assert found.next_offset == len(records)


def test_only_records_from_the_offset_on_are_decoded() -> None:
    data = encode(pa.table({"value": [b"a", b"b", b"c"]}), codec=0, now_ms=5, max_batch_bytes=MAX)
    (found,) = decode_to_records(data, 2, 1 << 30, NONE_ABORTED)
    assert [record.offset for record in records_pb2.RecordList.FromString(found.payload).records] == [2]
    (found,) = decode_to_arrow(data, 1, 1 << 30, NONE_ABORTED)
    with pa.ipc.open_stream(found.payload) as reader:
        assert reader.read_all()["offset"].to_pylist() == [1, 2]


@pytest.mark.slow
@given(st.lists(st.none() | st.binary(max_size=12), min_size=1, max_size=60), st.integers(1, 7), st.booleans())
@settings(max_examples=50, deadline=None)
def test_rows_are_split_by_key_in_their_order(keys: list[bytes | None], partitions: int, chunked: bool) -> None:
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": [str(row) for row in range(len(keys))]})
    if chunked:
        table = pa.concat_tables([table.slice(0, 3), table.slice(3)])
    found = dict(split_by_key(table, partitions, partitions - 1))
    for partition, rows in found.items():
        assert rows["value"].to_pylist() == [
            str(row)
            for row, key in enumerate(keys)
            if partition == (partitions - 1 if key is None else partition_for_key(key, partitions))
        ]
    assert sum(rows.num_rows for rows in found.values()) == len(keys)


def test_a_table_is_cut_into_batches_that_the_topic_takes() -> None:
    data = encode(pa.table({"value": [b"x" * 100] * 100}), codec=0, now_ms=5, max_batch_bytes=2000)
    sizes = []
    position = 0
    while position < len(data):
        sizes.append(12 + struct.unpack_from(">i", data, position + 8)[0])
        position += sizes[-1]
    assert len(sizes) >= 6
    assert max(sizes) <= 2000


EXPANDING = {
    "compressed with zstd": ipc(pa.table({"value": ["x" * 1000] * 1000}), compression="zstd"),
    "compressed with lz4": ipc(pa.table({"value": ["x" * 1000] * 1000}), compression="lz4"),
    "a dictionary": ipc(pa.table({"value": pa.array(["a" * 1000, "a" * 1000]).dictionary_encode()})),
    "a compressed dictionary": ipc(
        pa.table({"value": pa.array(["a" * 1000, "a" * 1000]).dictionary_encode()}), compression="zstd"
    ),
    "views": ipc(pa.table({"value": pa.array(["a" * 1000, "b"], pa.string_view())})),
    "run ends": ipc(pa.table({"value": pa.RunEndEncodedArray.from_arrays([1000], ["a" * 1000])})),
}


@pytest.mark.parametrize("case", EXPANDING)
def test_what_could_grow_beyond_its_own_size_is_refused(case: str) -> None:
    with pytest.raises(InvalidRecord, match=r"compressed inside|cannot have"):
        table_of_arrow(EXPANDING[case])


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_stream_is_read_or_refused_and_nothing_else(seed: int) -> None:
    whole = ipc(pa.table({"key": ["k", None], "value": ["x" * 100, "y"], "timestamp": [1, 2]}))
    chance = random.Random(seed)
    read = refused = 0
    for _ in range(50):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            table = table_of_arrow(bytes(damaged))
            batches = encode(table, codec=0, now_ms=5, max_batch_bytes=MAX)
        except InvalidRecord:
            refused += 1
        else:
            read += 1
            assert sum(header.record_count for _, header in iterate_headers(batches)) == table.num_rows
    assert read
    assert refused
