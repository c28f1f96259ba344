"""The codecs of Kafka's record batches, with a limit on the size of the content.

    codec    written as                                   read as
    gzip     one member                                   any number of members
    snappy   xerial blocks of 32 KiB, as Java writes      xerial blocks or one raw block, as librdkafka writes
    lz4      one frame, independent 64 KiB blocks         any number of frames; `mend_lz4_header` for message format v0
    zstd     one frame, level 3                           any number of frames

A compressed batch does not give the size of its content, and a few bytes can claim gigabytes. So the structure of the
compressed bytes (block headers, length fields) first gives an upper bound. The decoder then writes into a buffer of
that bound or of `limit`, whichever is smaller. (gzip has no such bound: it stops at `limit`.)
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import cramjam

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import Buffer
from sparklog.records.batch import Codec

DEFAULT_LEVELS = {Codec.GZIP: -1, Codec.ZSTD: 3}
"""The default levels of Kafka's clients; zlib's -1 is 6."""
LIMIT_BYTES = 512 * 1024 * 1024  # default limit for readers: content of one batch, or of several read together

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest version that can read it
_XERIAL_BLOCK_SIZE = 32 * 1024
_XERIAL_LENGTH = struct.Struct(">i")
_SNAPPY_MAX_RATIO = 64  # a 2-byte copy element yields at most 64 bytes; rounded up

_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_SIZE = 64 * 1024
_LZ4_HEADER = struct.pack("<I", _LZ4_MAGIC) + b"\x60\x40\x82"  # version 1, independent blocks; 64 KiB; checksum
_LZ4_UNCOMPRESSED_BIT = 0x80000000
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_MAX = 128 * 1024

_GZIP_WINDOW = 31  # zlib: a window of 2^15 bytes and a gzip header
_U32 = struct.Struct("<I")


class ExceedsLimit(CorruptRecord):
    """A batch holds more than the reader's limit allows; a reader with a larger limit can read it."""


class _TooLarge(Exception):
    """The content exceeds the limit."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Return `data` compressed in the form that Kafka's clients write.

    level: of gzip or zstd, the only codecs with levels here; None: `DEFAULT_LEVELS`
    """
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            compressor = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
            return compressor.compress(data) + compressor.flush()
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))


def decompress(codec: Codec, data: Buffer, limit: int) -> Buffer:
    """Return the content of `data`, at most `limit` bytes, using about that much memory at most.

    Raises CorruptRecord if `data` is not valid for `codec`, and ExceedsLimit if it holds more than `limit` bytes.
    """
    view = memoryview(data).cast("B")  # signed bytes would turn block sizes negative
    try:
        match codec:
            case Codec.NONE:
                return _limited(view, limit)
            case Codec.GZIP:
                return _decompress_gzip(view, limit)
            case Codec.SNAPPY:
                return _decompress_snappy(view, limit)
            case Codec.LZ4:
                return _decompress_into(cramjam.lz4, view, _lz4_bound(view), limit)
            case Codec.ZSTD:
                return _decompress_into(cramjam.zstd, view, _zstd_bound(view), limit)
    except _TooLarge:
        raise ExceedsLimit(f"{len(view)} bytes of {codec.name.lower()} hold more than {limit} bytes") from None
    except (cramjam.DecompressionError, zlib.error, struct.error, IndexError) as error:
        raise CorruptRecord(f"{len(view)} bytes are not {codec.name.lower()}: {error}") from None


def _limited(view: memoryview, limit: int) -> memoryview:
    if len(view) > limit:
        raise _TooLarge
    return view


def _decompress_into(module: Any, view: memoryview, bound: int, limit: int) -> memoryview:
    """Let `module` write into a buffer of `bound` bytes, or of `limit` if that is smaller."""
    output = _uninitialized(min(bound, limit))
    try:
        size = module.decompress_into(view, output)
    except cramjam.DecompressionError:
        if bound > limit:
            raise _TooLarge from None
        raise
    used = output[:size]
    return used if 2 * size >= len(output) else memoryview(bytes(used))  # keep at most twice what is used


def _uninitialized(size: int) -> memoryview:
    """Return uninitialized memory, which costs little until it is written to."""
    import numpy as np  # imported here: it takes 0.1 s, and many brokers decompress nothing

    return np.empty(size, np.uint8).data


def _decompress_gzip(view: memoryview, limit: int) -> bytes:
    parts: list[bytes] = []
    room = limit
    rest: Buffer = view
    while rest:
        member = zlib.decompressobj(_GZIP_WINDOW)
        part = member.decompress(rest, room + 1)
        room -= len(part)
        if room < 0:
            raise _TooLarge
        if not member.eof:
            raise zlib.error("the stream ends too early")
        parts.append(part)
        rest = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_lz4(data: Buffer) -> bytes:
    """Compress into independent blocks: Kafka reads no others."""
    view = memoryview(data)
    parts: list[Buffer] = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_SIZE):
        block = view[start : start + _LZ4_BLOCK_SIZE]
        smaller = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(smaller) < len(block):
            parts += (_U32.pack(len(smaller)), smaller)
        else:
            parts += (_U32.pack(len(block) | _LZ4_UNCOMPRESSED_BIT), block)
    parts.append(_U32.pack(0))
    return b"".join(parts)


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(view: memoryview, limit: int) -> memoryview:
    blocks = _xerial_blocks(view) if view[: len(XERIAL_MAGIC)] == XERIAL_MAGIC else [view]
    sizes = [_snappy_size(block) for block in blocks]
    if sum(sizes) > limit:
        raise _TooLarge
    output = _uninitialized(sum(sizes))
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        cramjam.snappy.decompress_raw_into(block, output[position : position + size])
        position += size
    return output


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    blocks = []
    position, end = len(_XERIAL_HEADER), len(view)
    if end < position:
        raise cramjam.DecompressionError("the header is cut off")
    while position < end:
        (size,) = _XERIAL_LENGTH.unpack_from(view, position)
        position += _XERIAL_LENGTH.size
        if not 0 < size <= end - position:
            raise cramjam.DecompressionError(f"a block claims {size} bytes, {end - position} are there")
        blocks.append(view[position : position + size])
        position += size
    return blocks


def _snappy_size(block: memoryview) -> int:
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > _SNAPPY_MAX_RATIO * len(block):
        raise cramjam.DecompressionError(f"{len(block)} bytes cannot hold the {size} they claim")
    return size


def _lz4_bound(view: memoryview) -> int:
    """Return an upper bound of the content of a sequence of lz4 frames: each block may fill its frame's block size.

    https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md
    """
    bound, position, end = 0, 0, len(view)
    while position < end:
        if _U32.unpack_from(view, position)[0] != _LZ4_MAGIC:
            raise cramjam.DecompressionError("no lz4 frame")
        flags, block_descriptor = view[position + 4], view[position + 5]
        block_max = 1 << (8 + 2 * (block_descriptor >> 4 & 7))
        checksum = 4 if flags & 0x10 else 0
        position += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        while (size := _U32.unpack_from(view, position)[0]) != 0:
            size, stored = size & ~_LZ4_UNCOMPRESSED_BIT, size & _LZ4_UNCOMPRESSED_BIT
            bound += size if stored else min(block_max, 255 * size)  # a byte of lz4 yields at most 255
            position += 4 + size + checksum
        position += 4 + (4 if flags & 0x04 else 0)
    return bound


def mend_lz4_header(data: Buffer) -> bytes:
    """Return the lz4 frame `data` with a correct header checksum, whatever checksum it had.

    Raises CorruptRecord if `data` is not an lz4 frame.
    """
    frame = bytearray(data)
    if len(frame) < 7 or _U32.unpack_from(frame)[0] != _LZ4_MAGIC:
        raise CorruptRecord(f"{len(frame)} bytes are not lz4: no frame")
    end = 6 + (8 if frame[4] & 0x08 else 0) + (4 if frame[4] & 0x01 else 0)
    if end >= len(frame):
        raise CorruptRecord(f"{len(frame)} bytes are not lz4: the header is cut off")
    frame[end] = _xxh32_short(bytes(frame[4:end])) >> 8 & 0xFF
    return bytes(frame)


def _xxh32_short(data: bytes) -> int:
    """Return the XXH32 with seed 0 of fewer than 16 bytes."""
    accumulator = 374761393 + len(data)
    lanes = len(data) // 4
    for (lane,) in struct.iter_unpack("<I", data[: 4 * lanes]):
        accumulator = _rotate(accumulator + lane * 3266489917, 17) * 668265263
    for byte in data[4 * lanes :]:
        accumulator = _rotate(accumulator + byte * 374761393, 11) * 2654435761
    accumulator &= 0xFFFFFFFF
    accumulator = (accumulator ^ accumulator >> 15) * 2246822519 & 0xFFFFFFFF
    accumulator = (accumulator ^ accumulator >> 13) * 3266489917 & 0xFFFFFFFF
    return accumulator ^ accumulator >> 16


def _rotate(number: int, bits: int) -> int:
    number &= 0xFFFFFFFF
    return (number << bits | number >> (32 - bits)) & 0xFFFFFFFF


def _zstd_bound(view: memoryview) -> int:
    """Return an upper bound of the content of a sequence of zstd frames: a block regenerates at most 128 KiB.

    RFC 8878, sections 3.1.1 and 3.1.2.
    """
    bound, position, end = 0, 0, len(view)
    while position < end:
        magic = _U32.unpack_from(view, position)[0]
        if magic & 0xFFFFFFF0 == 0x184D2A50:  # a skippable frame
            position += 8 + _U32.unpack_from(view, position + 4)[0]
            continue
        if magic != _ZSTD_MAGIC:
            raise cramjam.DecompressionError("no zstd frame")
        descriptor = view[position + 4]
        single_segment = descriptor >> 5 & 1
        content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
        position += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size_bytes
        last = 0
        while not last:
            block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
            last, kind, size = block & 1, block >> 1 & 3, block >> 3
            bound += _ZSTD_BLOCK_MAX if kind == 2 else size
            position += 3 + (1 if kind == 1 else size)
        position += 4 if descriptor & 4 else 0
    return bound
