"""Conversion without kernels gives the same bytes and columns as with kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.errors import CorruptRecord, InvalidRecord
from sparklog.records import arrow, plain
from sparklog.records.aborted import AbortedRanges
from sparklog.records.batch import Codec
from sparklog.records.compression import ExceedsLimit
from sparklog.records.records import Record, write_records
from support.record_values import LOGS, records, to_rows


def joined(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, arrow.schema())


@pytest.mark.slow
@given(records(max_size=20), st.sampled_from(Codec), st.integers(0, 2000))
def test_batches_are_byte_for_byte_those_of_the_kernels(values: list[Record], codec: Codec, most: int) -> None:
    rows = pa.Table.from_batches([to_rows(values)])
    given_ = {"codec": codec, "default_timestamp_ms": 7, "max_batch_bytes": most}
    assert plain.encode_all(rows, **given_) == arrow.encode_all(rows, **given_)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit_or_none_and_texts(unit: str) -> None:
    rows = pa.table(
        {
            "timestamp": pa.array([1, None, -1_500_001], pa.timestamp(unit)),
            "value": pa.array(["é", None, ""], pa.large_string()),
            "key": pa.array([b"k", None, b""], pa.large_binary()),
        }
    )
    given_ = {"codec": Codec.NONE, "default_timestamp_ms": 7, "max_batch_bytes": 1000}
    assert plain.encode_all(rows, **given_) == arrow.encode_all(rows, **given_)


def test_a_header_without_a_key_is_refused() -> None:
    rows = pa.table({"headers": pa.array([[{"key": None, "value": b"v"}]], arrow.HEADERS_TYPE)})
    with pytest.raises(InvalidRecord, match="row 0: a header has no key"):
        plain.encode_all(rows, codec=Codec.NONE, default_timestamp_ms=0, max_batch_bytes=1000)


@pytest.mark.slow
@given(st.lists(st.tuples(records(), st.sampled_from(Codec)), max_size=3), st.integers(0, 2**50), st.integers(0, 50))
def test_columns_are_those_of_the_kernels(
    batches: list[tuple[list[Record], Codec]], offset_from: int, cut: int
) -> None:
    data = b"".join(bytes(write_records(values, codec=codec)) for values, codec in batches)
    data = data[: len(data) - cut]
    expected = joined(arrow.decode_batches(data, offset_from=offset_from))
    assert joined(plain.decode_batches(data, offset_from=offset_from)) == expected


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_logs_of_apache_kafka_have_the_same_records(path: Path) -> None:
    data = path.read_bytes()
    assert joined(plain.decode_batches(data)) == joined(arrow.decode_batches(data))


def test_aborted_batches_are_skipped() -> None:
    def batch(offset: int) -> bytes:
        return bytes(write_records([Record(offset=offset, value=b"v")], producer_id=5, transactional=True))

    data, aborted = batch(0) + batch(1) + batch(9), AbortedRanges([(5, 1, 4)])
    expected = joined(arrow.decode_batches(data, aborted=aborted))
    assert joined(plain.decode_batches(data, aborted=aborted)) == expected
    assert expected["offset"].to_pylist() == [0, 9]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_before_a_batch_that_is_too_large_or_damaged_come_first(codec: Codec) -> None:
    small = bytes(write_records([Record(offset=0, value=b"v")]))
    large = bytes(write_records([Record(offset=1, value=b"v" * 5000)], codec=codec))
    for data, error in ((small + large, ExceedsLimit), (small + large[:-1] + b"x", CorruptRecord)):
        batches = plain.decode_batches(data, limit_bytes=1000)
        assert joined(iter([next(batches)])) == joined(arrow.decode_batches(small))
        with pytest.raises(error):
            next(batches)
