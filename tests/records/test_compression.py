"""Each codec is compatible with other implementations in both directions, and no input takes much memory."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
import zlib
from contextlib import suppress

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.errors import CorruptRecord
from sparklog.records.batch import Codec
from sparklog.records.compression import XERIAL_MAGIC, compress, decompress, mend_lz4_header

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
MIB = 1024 * 1024
CONTENTS = {
    "empty": b"",
    "one byte": b"x",
    "text": b"the quick brown fox " * 100,
    "random": os.urandom(100_000),
    "larger than any block": b"".join(b"%d," % i for i in range(100_000)),
}


@given(codec=st.sampled_from(Codec), content=st.binary(max_size=2000), repeats=st.integers(1, 50))
def test_content_comes_back(codec: Codec, content: bytes, repeats: int) -> None:
    content *= repeats
    assert bytes(decompress(codec, compress(codec, content), len(content))) == content


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("codec", Codec)
def test_content_of_any_size_and_kind_of_buffer_comes_back(codec: Codec, name: str) -> None:
    content = CONTENTS[name]
    for buffer in (content, bytearray(content), memoryview(b"ab" + content)[2:]):
        compressed = compress(codec, buffer)
        for form in (compressed, bytearray(compressed), memoryview(b"ab" + compressed)[2:]):
            assert bytes(decompress(codec, form, len(content))) == content


@pytest.mark.parametrize("name", CONTENTS)
def test_other_implementations_read_our_bytes(name: str) -> None:
    content = CONTENTS[name]
    assert gzip.decompress(compress(Codec.GZIP, content)) == content
    for codec, peer in ((Codec.LZ4, "lz4"), (Codec.ZSTD, "zstd")):
        with pa.CompressedInputStream(pa.BufferReader(compress(codec, content)), peer) as stream:
            assert stream.read(len(content) + 1) == content


@pytest.mark.parametrize("name", CONTENTS)
def test_bytes_of_other_implementations_are_read(name: str) -> None:
    content = CONTENTS[name]
    size = len(content)
    assert bytes(decompress(Codec.GZIP, gzip.compress(content), size)) == content
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(content)), size)) == content
    assert bytes(decompress(Codec.LZ4, pa.compress(content, codec="lz4", asbytes=True), size)) == content
    assert bytes(decompress(Codec.ZSTD, pa.compress(content, codec="zstd", asbytes=True), size)) == content
    streamed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(
        streamed, "zstd"
    ) as stream:  # as Java writes: without the size in the frame's header
        stream.write(content)
    assert bytes(decompress(Codec.ZSTD, streamed.getvalue(), size)) == content


def test_snappy_is_written_in_the_blocks_that_java_reads() -> None:
    content = CONTENTS["larger than any block"]
    compressed = compress(Codec.SNAPPY, content)
    assert compressed[:16] == XERIAL_MAGIC + struct.pack(">ii", 1, 1)
    (size,) = struct.unpack_from(">i", compressed, 16)
    assert bytes(cramjam.snappy.decompress_raw(compressed[20 : 20 + size])) == content[: 32 * 1024]


def test_lz4_is_written_in_independent_blocks_as_java_demands() -> None:
    compressed = compress(Codec.LZ4, CONTENTS["larger than any block"])
    flags, block_descriptor = compressed[4], compressed[5]
    assert flags >> 6 == 1
    assert flags & 0x20
    assert block_descriptor == 0x40  # blocks of 64 KiB


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_frames_one_after_the_other_are_read_as_one(codec: Codec) -> None:
    assert bytes(decompress(codec, compress(codec, b"first ") + compress(codec, b"second"), 100)) == b"first second"


def test_a_skippable_zstd_frame_is_skipped() -> None:
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    assert bytes(decompress(Codec.ZSTD, skippable + compress(Codec.ZSTD, b"content"), 100)) == b"content"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_limit_is_exact(codec: Codec) -> None:
    content = b"a" * 1000
    compressed = compress(codec, content)
    assert bytes(decompress(codec, compressed, 1000)) == content
    with pytest.raises(CorruptRecord, match="more than 999 bytes"):
        decompress(codec, compressed, 999)


def test_the_limit_holds_for_what_is_not_compressed() -> None:
    with pytest.raises(CorruptRecord):
        decompress(Codec.NONE, b"abc", 2)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_truncation_is_refused(codec: Codec) -> None:
    content = b"the quick brown fox jumps over the lazy dog " * 20
    compressed = compress(codec, content)
    ends_of_blocks = (16,) if codec is Codec.SNAPPY else ()  # the number of blocks is not stored
    for size in range(1, len(compressed)):
        if size in ends_of_blocks:
            assert bytes(decompress(codec, compressed[:size], MIB)) == b""
            continue
        with pytest.raises(CorruptRecord):
            decompress(codec, compressed[:size], MIB)


def test_signed_bytes_are_read_as_unsigned() -> None:
    content = CONTENTS["text"] * 100
    for codec in COMPRESSED:
        signed = memoryview(compress(codec, content)).cast("b")
        assert bytes(decompress(codec, signed, len(content))) == content


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.data())
def test_damaged_bytes_are_refused_or_stay_within_the_limit(codec: Codec, data: st.DataObject) -> None:
    compressed = bytearray(compress(codec, b"the quick brown fox jumps over the lazy dog " * 20))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(compressed) - 1))
        compressed[position] = data.draw(st.integers(0, 255))
    try:
        content = decompress(codec, compressed, 2000)
    except CorruptRecord:
        return
    assert len(content) <= 2000


@given(codec=st.sampled_from(COMPRESSED), data=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_stay_within_the_limit(codec: Codec, data: bytes) -> None:
    prefix = {Codec.GZIP: b"\x1f\x8b\x08\0", Codec.SNAPPY: XERIAL_MAGIC, Codec.LZ4: b"\x04\x22\x4d\x18"}
    for candidate in (data, prefix.get(codec, b"\x28\xb5\x2f\xfd") + data):
        with suppress(CorruptRecord):
            assert len(decompress(codec, candidate, 2000)) <= 2000


def zeros(codec: Codec, size: int) -> bytes:
    """`size` zeros, compressed piecewise by an encoder that can do so."""
    if codec is Codec.GZIP:
        stream = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join(stream.compress(bytes(MIB)) for _ in range(size // MIB)) + stream.flush()
    if codec is Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(bytes(size)))
    return compress(codec, bytes(size))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = zeros(codec, 64 * MIB)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord):
            decompress(codec, bomb, MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 20),  # raw, claims 4 GiB
        (Codec.SNAPPY, XERIAL_MAGIC + struct.pack(">iii", 1, 1, 5) + b"\xff\xff\xff\xff\x0f"),
        (Codec.SNAPPY, XERIAL_MAGIC + struct.pack(">iii", 1, 1, 2**31 - 1)),
        (Codec.SNAPPY, XERIAL_MAGIC + struct.pack(">iii", 1, 1, -1)),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x68\x70" + b"\xff" * 8 + b"\0" * 8),  # claims 2^64 bytes
        (Codec.LZ4, b"\x04\x22\x4d\x18\x60\x70\x73" + struct.pack("<I", 2**31 - 1)),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\x01\0\0"),  # claims 2^64 bytes
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\xff" + b"\x02\0\0" * 10_000),  # blocks without end
        (Codec.ZSTD, b"\x50\x2a\x4d\x18\xff\xff\xff\xff"),  # a skippable frame of 4 GiB
    ],
)
def test_a_claim_is_not_believed(codec: Codec, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord):
            decompress(codec, data, 64 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 65 * MIB


def test_the_wrong_header_checksum_of_old_lz4_frames_is_mended() -> None:
    frame = bytearray(compress(Codec.LZ4, b"content " * 100))
    good = frame[6]
    frame[6] ^= 0xFF
    with pytest.raises(CorruptRecord):
        decompress(Codec.LZ4, frame, 1000)
    assert mend_lz4_header(frame)[6] == good
    assert bytes(decompress(Codec.LZ4, mend_lz4_header(frame), 1000)) == b"content " * 100


def test_the_mended_checksum_covers_the_content_size_too() -> None:
    # the header that lz4's own tool writes for 6 bytes of content with --content-size
    frame = bytes.fromhex("04224d1868400600000000000000")
    mended = mend_lz4_header(frame + b"\0" + struct.pack("<I", 6 | 1 << 31) + b"sixsix" + struct.pack("<I", 0))
    assert bytes(decompress(Codec.LZ4, mended, 6)) == b"sixsix"


@pytest.mark.parametrize(
    "data", [b"", b"\x04\x22\x4d\x18\x60\x40", b"\x04\x22\x4d\x18\x68\x40\0\0", b"not an lz4 frame"]
)
def test_no_lz4_frame_cannot_be_mended(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        mend_lz4_header(data)
