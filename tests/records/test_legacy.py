"""Message sets of formats v0 and v1, as old clients and brokers wrote them."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

from sparklog.base.errors import CorruptRecord
from sparklog.records import arrow, legacy
from sparklog.records.batch import Codec, TimestampType, iterate_headers
from sparklog.records.compression import compress
from sparklog.records.legacy import convert_messages, iterate_messages, records_of, to_v2
from sparklog.records.records import Record, read_records, write_records
from support.record_values import MAX_INT, to_rows

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
LOG_APPEND_TIME = 8


def message(
    offset: int, value: bytes | None, key: bytes | None = None, *, magic: int, timestamp: int = -1, attributes: int = 0
) -> bytes:
    """One message, written from Kafka's description of the format."""

    def sized(content: bytes | None) -> bytes:
        return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content

    body = struct.pack(">BB", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += sized(key) + sized(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(offset: int, inner: bytes, *, codec: Codec, magic: int, timestamp: int = -1, attributes: int = 0) -> bytes:
    content = compress(codec, inner)
    if codec is Codec.LZ4 and magic == 0:
        content = with_the_checksum_of_old_clients(content)
    return message(offset, content, magic=magic, timestamp=timestamp, attributes=attributes | codec)


def with_the_checksum_of_old_clients(frame: bytes) -> bytes:
    """They hashed from the frame's magic on instead of from the descriptor on: for this header, 0x82 became
    something else.
    """
    return frame[:6] + bytes([frame[6] ^ 0x5A]) + frame[7:]


def read(data: bytes) -> list[Record]:
    return [record for item in iterate_messages(data) for record in records_of(item)]


def expect(values: list[tuple[int, bytes | None, bytes | None]], timestamps: list[int], kind: int = 0) -> list[Record]:
    return [
        Record(offset=offset, key=key, value=value, timestamp_ms=timestamp, timestamp_type=TimestampType(kind))
        for (offset, key, value), timestamp in zip(values, timestamps, strict=True)
    ]


VALUES = [(5, b"k", b"v"), (6, None, b""), (7, b"", None), (9, b"k" * 50, b"v" * 500)]
TIMES = [1_000, 900, -1, 2_000]


@pytest.mark.parametrize("codec", CODECS)
def test_v0_offsets_are_absolute_and_there_are_no_timestamps(codec: Codec) -> None:
    data = b"".join(message(offset, value, key, magic=0) for offset, key, value in VALUES)
    if codec is not Codec.NONE:
        data = wrapper(9, data, codec=codec, magic=0)
    assert read(data) == expect(VALUES, [-1] * 4)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_v1_offsets_in_a_wrapper_are_relative_to_its_last(codec: Codec) -> None:
    inner = b"".join(
        message(offset - 5, value, key, magic=1, timestamp=timestamp)
        for (offset, key, value), timestamp in zip(VALUES, TIMES, strict=True)
    )
    assert read(wrapper(9, inner, codec=codec, magic=1, timestamp=2_000)) == expect(VALUES, TIMES)


def test_v1_offsets_in_a_wrapper_with_offset_0_are_taken_as_they_are() -> None:
    inner = message(0, b"a", magic=1, timestamp=1) + message(1, b"b", magic=1, timestamp=2)
    records = read(wrapper(0, inner, codec=Codec.GZIP, magic=1, timestamp=2))
    assert [record.offset for record in records] == [0, 1]


def test_append_time_of_a_wrapper_is_that_of_its_messages() -> None:
    inner = message(0, b"a", magic=1, timestamp=1) + message(1, b"b", magic=1, timestamp=2)
    data = wrapper(9, inner, codec=Codec.GZIP, magic=1, timestamp=7_000, attributes=LOG_APPEND_TIME)
    assert read(data) == expect([(8, None, b"a"), (9, None, b"b")], [7_000, 7_000], kind=1)


def test_append_time_of_a_message_is_its_own() -> None:
    data = message(3, b"a", magic=1, timestamp=70, attributes=LOG_APPEND_TIME)
    assert read(data) == expect([(3, None, b"a")], [70], kind=1)
    assert arrow.decode(data).column("timestampType").to_pylist() == [1]


def test_snappy_as_librdkafka_wrote_it() -> None:
    inner = message(0, b"a" * 100, magic=1, timestamp=1)
    content = bytes(cramjam.snappy.compress_raw(inner))
    assert [r.value for r in read(message(4, content, magic=1, timestamp=1, attributes=Codec.SNAPPY))] == [b"a" * 100]


def test_the_wrong_checksum_of_lz4_is_forgiven_in_v0_alone() -> None:
    inner = message(0, b"a", magic=1, timestamp=1)
    content = with_the_checksum_of_old_clients(compress(Codec.LZ4, inner))
    assert len(read(message(0, content, magic=0, attributes=Codec.LZ4))) == 1
    with pytest.raises(CorruptRecord):
        read(message(0, content, magic=1, attributes=Codec.LZ4))


messages = st.lists(
    st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30)), min_size=1, max_size=8
)


@pytest.mark.slow
@given(values=messages, magic=st.sampled_from([0, 1]), codec=st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_batches_of_kafka_python_are_read(values: Any, magic: int, codec: Codec) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=1 << 30)
    for i, (key, value) in enumerate(values):
        builder.append(i, 1_000 + i if magic else None, key, value)
    data = bytes(builder.build())
    expected = [
        Record(offset=i, key=key, value=value, timestamp_ms=1_000 + i if magic else -1)
        for i, (key, value) in enumerate(values)
    ]
    assert read(data) == expected
    assert arrow.decode(data).equals(to_rows(expected))


@given(values=messages, magic=st.sampled_from([0, 1]))
def test_our_test_messages_are_those_that_kafka_python_reads(values: Any, magic: int) -> None:
    for i, (key, value) in enumerate(values):
        data = message(i, value, key, magic=magic, timestamp=5)
        (peer,) = LegacyRecordBatch(memoryview(data), magic)
        assert (peer.offset, peer.key, peer.value) == (i, key, value)


def mixed() -> tuple[bytes, list[Record]]:
    """The content of a log that was upgraded twice."""
    first = [message(offset, b"v0", magic=0) for offset in (0, 1)]
    inner = message(0, b"x", magic=1, timestamp=10) + message(1, b"y", magic=1, timestamp=20)
    second = wrapper(3, inner, codec=Codec.LZ4, magic=1, timestamp=20)
    third = bytes(write_records([Record(offset=4, timestamp_ms=30, value=b"v2", headers=(("h", None),))]))
    fourth = message(6, b"v1", magic=1, timestamp=40, attributes=LOG_APPEND_TIME)
    records = expect([(0, None, b"v0"), (1, None, b"v0"), (2, None, b"x"), (3, None, b"y")], [-1, -1, 10, 20])
    records += read_records(third)
    records += expect([(6, None, b"v1")], [40], kind=1)
    return b"".join([*first, second, third, fourth]), records


def test_a_log_of_all_formats_decodes_in_order() -> None:
    data, records = mixed()
    assert arrow.decode(data).equals(to_rows(records))
    assert arrow.decode(data, offset_from=1, offset_to=4).equals(to_rows(records[1:4]))
    assert arrow.decode(data, columns=["value"]).equals(to_rows(records).select(["value"]))


@pytest.mark.parametrize("codec", Codec)
def test_converted_batches_hold_the_same_records(codec: Codec) -> None:
    data, records = mixed()
    converted = to_v2(data, codec=codec)
    positions = [position for position, _ in iterate_headers(converted)]
    assert [record for position in positions for record in read_records(converted, position)] == records
    assert to_v2(converted) == converted


@pytest.mark.slow
def test_a_message_that_is_cut_off_is_dropped() -> None:
    data, records = mixed()
    for size in range(len(data)):
        converted = to_v2(data[:size])
        kept = arrow.decode(converted)
        assert kept.equals(to_rows(records[: kept.num_rows]))
        assert arrow.decode(data[:size]).equals(kept)


def test_converted_messages_are_gathered_into_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "BATCH_BYTES", 1_000)
    data = b"".join(message(offset, b"x" * 84, magic=1, timestamp=1) for offset in range(100))
    headers = [header for _, header in iterate_headers(to_v2(data))]
    assert [header.record_count for header in headers] == [11] * 9 + [1]
    some, position = convert_messages(data, max_bytes=500)
    assert len(arrow.decode(some)) == 5
    assert len(arrow.decode(to_v2(data[position:]))) == 95


def test_records_that_do_not_fit_in_one_batch_make_several() -> None:
    offsets = [0, MAX_INT, MAX_INT + 1, 5, 5]
    data = b"".join(message(offset, b"v", magic=1, timestamp=1) for offset in offsets)
    data += message(6, b"v", magic=1, timestamp=2, attributes=LOG_APPEND_TIME)
    data += message(7, b"v", magic=1, timestamp=3, attributes=LOG_APPEND_TIME)
    converted = to_v2(data)
    assert [header.record_count for _, header in iterate_headers(converted)] == [2, 1, 1, 1, 1, 1]
    assert arrow.decode(converted).column("offset").to_pylist() == [*offsets, 6, 7]


@pytest.mark.parametrize("magic", [0, 1])
def test_every_flipped_bit_is_refused_but_in_the_offset(magic: int) -> None:
    data = message(5, b"value", b"key", magic=magic, timestamp=77)
    (expected,) = read(data)
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            try:
                records = read(bytes(damaged))
            except CorruptRecord:
                assert position >= 8
                continue
            if position < 8:
                assert [record.value for record in records] == [expected.value]
            else:  # cut off, or taken for a batch of format v2, whose own check refuses it
                assert records == []
                assert position in range(8, 12) or damaged[16] == 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (message(1, compress(Codec.GZIP, b""), magic=1, attributes=Codec.GZIP), "nothing in the wrapper"),
        (message(1, None, magic=1, attributes=Codec.GZIP), "without a value"),
        (message(1, b"junk", magic=1, attributes=Codec.GZIP), "not gzip"),
        (message(1, b"junk", magic=1, attributes=Codec.ZSTD), "no codec 4"),
        (message(1, b"junk", magic=0, attributes=7), "no codec 7"),
        (
            wrapper(2, message(5, b"v", magic=1), codec=Codec.GZIP, magic=1),
            "relative offset 5",
        ),
        (
            wrapper(2, wrapper(1, message(0, b"v", magic=1), codec=Codec.GZIP, magic=1), codec=Codec.GZIP, magic=1),
            "a wrapper inside",
        ),
        (message(1, b"v", magic=1)[:8] + struct.pack(">i", 13) + message(1, b"v", magic=1)[12:], "magic 1, 25 bytes"),
        (message(1, b"v", magic=1)[:8] + struct.pack(">i", -5) + message(1, b"v", magic=1)[12:], "magic 1, 7 bytes"),
    ],
)
def test_an_invalid_message_is_refused_with_its_fault(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        read(data)
    with pytest.raises(CorruptRecord, match=reason):
        arrow.decode(data)


@pytest.mark.parametrize("lengths", [(100, -1), (2**31 - 1, -1), (-1, 100), (-1, 2**31 - 1), (-1, -1), (0, 0)])
def test_lengths_that_leave_the_message_are_refused(lengths: tuple[int, int]) -> None:
    for magic, timestamp in ((0, b""), (1, b"\0" * 8)):
        body = bytes([magic, 0]) + timestamp + struct.pack(">ii", *lengths) + b"xyz"
        data = struct.pack(">qiI", 1, len(body) + 4, zlib.crc32(body)) + body
        with pytest.raises(CorruptRecord):
            read(data)


def test_a_bomb_in_a_wrapper_is_refused() -> None:
    inner = message(0, bytes(100_000), magic=1)
    data = wrapper(1, inner, codec=Codec.GZIP, magic=1)
    with pytest.raises(CorruptRecord, match="more than 50000 bytes"):
        to_v2(data, limit_bytes=50_000)


def test_bytes_that_are_neither_message_nor_batch_are_refused() -> None:
    batch = bytes(write_records([Record(offset=0)]))
    for length in (-12, -(2**31), 0, 10):
        broken = batch[:8] + struct.pack(">i", length) + batch[12:]
        with pytest.raises(CorruptRecord):
            to_v2(message(0, b"v", magic=0) + broken)
    with pytest.raises(CorruptRecord, match="magic 3"):
        to_v2(batch[:16] + b"\3" + batch[17:])


def test_other_buffers_are_read_too() -> None:
    data, records = mixed()
    for buffer in (bytearray(data), memoryview(data).cast("b"), pa.py_buffer(data)):
        assert arrow.decode(to_v2(buffer)).equals(to_rows(records))
        assert arrow.decode(buffer).equals(to_rows(records))
