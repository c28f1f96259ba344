"""Recompressed batches: their changed and unchanged fields, and refused batches."""

from __future__ import annotations

import gzip
import tracemalloc
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparklog.base.errors import CorruptRecord, InvalidRecord, MessageTooLarge
from sparklog.base.topic_config import TopicConfig
from sparklog.records.batch import HEADER_SIZE, Codec, build_header, check_produced, iterate_headers, seal
from sparklog.records.compression import ExceedsLimit, compress
from sparklog.records.recompression import Compression, compression_of, has_codec, recompress
from sparklog.records.records import Record, read_records, write_records

MOST = 1 << 20
TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
MIB = 1 << 20
UNCHANGED = (
    "base_offset", "leader_epoch", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id",
    "producer_epoch", "base_sequence", "record_count",
)  # fmt: skip


def target(name: str, **levels: int) -> Compression:
    found = compression_of(TopicConfig(compression_type=name, **levels))
    assert found
    return found


def records_of(data: bytes | bytearray | memoryview) -> list[Record]:
    return [record for at, _ in iterate_headers(data) for record in read_records(data, at)]


records = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(0, 2**40),
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=2_000),
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.slow
@given(
    before=st.sampled_from(Codec),
    after=st.sampled_from(TYPES),
    some=records,
    producer=st.sampled_from([(-1, -1, -1), (7, 3, 2**31 - 2)]),
    transactional=st.booleans(),
)
def test_records_and_header_stay_the_same(
    before: Codec, after: str, some: list[Record], producer: tuple[int, int, int], transactional: bool
) -> None:
    producer_id, epoch, sequence = producer
    numbered = [replace(record, offset=40 + at, sequence=sequence) for at, record in enumerate(some)]
    sent = write_records(
        numbered, codec=before, producer_id=producer_id, producer_epoch=epoch, transactional=transactional
    )
    stored = recompress(sent, target(after), max_batch_bytes=MOST)
    [(_, was)], [(_, now)] = check_produced(sent), check_produced(stored)
    assert now.codec is target(after).codec
    assert {name: getattr(now, name) for name in UNCHANGED} == {name: getattr(was, name) for name in UNCHANGED}
    assert now.is_transactional == was.is_transactional
    assert records_of(stored) == records_of(sent)


@pytest.mark.parametrize(("before", "after"), list(product(Codec, TYPES)))
def test_each_codec_becomes_each_other(before: Codec, after: str) -> None:
    some = [Record(offset=at, timestamp_ms=at, key=b"k", value=b"v" * 50_000) for at in range(3)]
    stored = recompress(write_records(some, codec=before), target(after), max_batch_bytes=MOST)
    assert has_codec(stored, target(after).codec)
    assert records_of(stored) == some


def batch(value: bytes = b"v" * 1_000, codec: Codec = Codec.NONE, offset: int = 0) -> bytearray:
    return write_records([Record(offset=offset, timestamp_ms=1, value=value)], codec=codec)


def test_batches_with_the_codec_stay_the_same_bytes_whatever_their_level() -> None:
    sent = batch(codec=Codec.ZSTD)
    assert recompress(sent, target("zstd", compression_zstd_level=19), max_batch_bytes=MOST) is sent
    assert has_codec(sent, Codec.ZSTD)
    mixed = sent + batch(codec=Codec.GZIP) + sent
    assert not has_codec(mixed, Codec.ZSTD)
    stored = recompress(mixed, target("zstd"), max_batch_bytes=MOST)
    assert [header.codec for _, header in iterate_headers(stored)] == [Codec.ZSTD] * 3
    assert stored[: len(sent)] == sent


def test_the_topics_own_choice_is_none_by_default() -> None:
    assert compression_of(TopicConfig()) is None


@pytest.mark.parametrize(("name", "low", "high"), [("gzip", 1, 9), ("zstd", -50, 19)])
def test_levels(name: str, low: int, high: int) -> None:
    words = b" ".join(b"%d" % (number * number % 10_007) for number in range(20_000))

    def size(level: int) -> int:
        return len(recompress(batch(words), target(name, **{f"compression_{name}_level": level}), max_batch_bytes=MOST))

    assert size(high) < 0.95 * size(low)


def bomb(codec: Codec, size: int) -> bytearray:
    content = gzip.compress(bytes(size)) if codec is Codec.GZIP else compress(codec, bytes(size))
    header = build_header(
        base_offset=0, records_size=len(content), leader_epoch=-1, attributes=codec, last_offset_delta=0,
        base_timestamp=1, max_timestamp=1, producer_id=-1, producer_epoch=-1, base_sequence=-1, record_count=1,
    )  # fmt: skip
    sent = header + content
    seal(sent)
    return sent


@pytest.mark.slow
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
@pytest.mark.parametrize("after", TYPES)
def test_a_bomb_takes_no_more_than_the_limit(codec: Codec, after: str) -> None:
    sent = bomb(codec, 64 * MIB)
    recompress(bomb(codec, 10), target(after), max_batch_bytes=MOST)  # what is imported takes memory, too
    tracemalloc.start()
    try:
        if codec is target(after).codec:
            assert recompress(sent, target(after), max_batch_bytes=16 * MIB, limit_bytes=MIB) is sent
        else:
            with pytest.raises(ExceedsLimit):
                recompress(sent, target(after), max_batch_bytes=16 * MIB, limit_bytes=MIB)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


def test_a_batch_certain_to_be_too_large_is_not_decompressed_to_its_end() -> None:
    with pytest.raises(MessageTooLarge, match=r"max\.message\.bytes is 1048576"):
        recompress(bomb(Codec.ZSTD, 64 * MIB), target("uncompressed"), max_batch_bytes=MOST)


def test_a_batch_that_is_too_large_already_is_left_to_the_append() -> None:
    sent = batch()
    assert recompress(sent, target("gzip"), max_batch_bytes=100) is sent


def test_bytes_that_do_not_match_their_codec_are_corrupt() -> None:
    sent = batch()
    sent[22] |= Codec.LZ4
    seal(sent)
    with pytest.raises(CorruptRecord, match="not lz4"):
        recompress(sent, target("gzip"), max_batch_bytes=MOST)


def test_a_wrong_crc_is_not_mended() -> None:
    sent = batch()
    sent[HEADER_SIZE] ^= 1
    with pytest.raises(CorruptRecord, match="CRC"):
        recompress(sent, target("gzip"), max_batch_bytes=MOST)


def test_control_batches_of_clients_are_refused() -> None:
    sent = batch()
    sent[22] |= 0x20
    seal(sent)
    with pytest.raises(InvalidRecord, match="control"):
        recompress(sent, target("gzip"), max_batch_bytes=MOST)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_looked_at_without_an_error(data: bytes) -> None:
    has_codec(data, Codec.GZIP)
    has_codec(bytes(batch()[:30]) + data, Codec.GZIP)
