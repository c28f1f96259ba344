"""Walking the batches of a `.log` file of any message format by their headers, without reading records.

Batches of message format v2 and messages of v0 and v1 (`records/legacy.py`) begin alike:

    position  size  v2                    v0, v1
    0         8     base offset           offset (of the last message inside, if it wraps a compressed set)
    8         4     batch length          message size
    12        4     leader epoch          CRC-32 of what follows
    16        1     magic: 2              magic: 0 or 1
    17              CRC-32C (4)           attributes (1), in v1 then the timestamp (8)
    21, 23          attributes, last offset delta
    27, 35, 43      base timestamp, max timestamp, producer id

A walk ends at the end of the file, or where the next batch is incomplete. An impossible length or magic raises
CorruptRecord: that is not a batch, and nothing after it can be found.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import Buffer, ReadFile
from sparklog.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, NO_PRODUCER_ID, NO_TIMESTAMP

CHUNK_BYTES = 4096
"""Bytes per read on a short walk: about the distance between two index entries."""

_COMMON = struct.Struct(">qiib")  # offset, length, leader epoch or CRC, magic
_V2 = struct.Struct(">ihiqqq")  # from 17: CRC, attributes, last offset delta, base and max timestamp, producer id
_V2_START = struct.Struct(">qi4xb6xi")  # from 0: offset, length, magic, last offset delta
_LEAST_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_V1_TIMESTAMP = struct.Struct(">q")
_V1_TIMESTAMP_AT = 18
_MIN_SIZE = {0: LOG_OVERHEAD + 14, 1: LOG_OVERHEAD + 22, MAGIC: HEADER_SIZE}
_PREFIX = 17  # bytes up to and with magic
PIECE_BYTES = 1 << 20
"""Bytes per read when every byte is checked."""
_CRC_V2 = struct.Struct(">I")
_CRC_V2_AT, _CRC_V2_FROM = 17, 21
_CRC_LEGACY_AT, _CRC_LEGACY_FROM = 12, 16


class BatchPlace(NamedTuple):
    """A batch's position in its file, and the header fields that a log needs. For v0 and v1: one message or wrapper."""

    position: int
    size: int
    base_offset: int
    """The offset of the first record; for v0 and v1 the same as `last_offset`."""
    last_offset: int
    max_timestamp_ms: int
    leader_epoch: int
    """-1 for v0 and v1, and if it is not known."""
    magic: int
    producer_id: int
    """-1: none."""
    attributes: int = 0
    """As in `records/batch.py`; 0 for v0 and v1."""

    @property
    def end(self) -> int:
        """The position after the batch."""
        return self.position + self.size


def place_at(data: Buffer, at: int, position: int) -> BatchPlace | None:
    """Return the batch whose header is at `at` in `data` and at `position` in its file; None: the header is cut off.

    Raises CorruptRecord if no batch can have these bytes.
    """
    left = len(data) - at
    if left < _PREFIX:
        return None
    offset, length, epoch, magic = _COMMON.unpack_from(data, at)
    size = LOG_OVERHEAD + length
    least = _MIN_SIZE.get(magic)
    if least is None or size < least or offset < 0:
        raise CorruptRecord(f"no batch at position {position}: magic {magic}, length {length}, offset {offset}")
    if left < min(least, HEADER_SIZE):
        return None
    if magic == MAGIC:
        _, attributes, delta, _, timestamp, producer_id = _V2.unpack_from(data, at + _PREFIX)
        if delta < 0:
            raise CorruptRecord(f"no batch at position {position}: last offset delta {delta}")
        return BatchPlace(position, size, offset, offset + delta, timestamp, epoch, magic, producer_id, attributes)
    timestamp = _V1_TIMESTAMP.unpack_from(data, at + _V1_TIMESTAMP_AT)[0] if magic == 1 else NO_TIMESTAMP
    return BatchPlace(position, size, offset, offset, timestamp, -1, magic, NO_PRODUCER_ID, 0)


def walk(file: ReadFile, position: int, end: int, chunk_bytes: int = CHUNK_BYTES) -> Iterator[BatchPlace]:
    """Yield the whole batches between `position`, where one begins, and `end`.

    Memory: `chunk_bytes`. Raises CorruptRecord at bytes that are no batch.
    """
    chunk, start = b"", position
    while end - position >= _PREFIX:
        place = place_at(chunk, position - start, position) if start <= position < start + len(chunk) else None
        if place is None:
            chunk, start = file.read_at(position, min(chunk_bytes, end - position)), position
            place = place_at(chunk, 0, position)
            if place is None:
                return
        position += place.size
        if position > end:
            return
        yield place


class BatchRange(NamedTuple):
    """Adjacent whole batches in a file."""

    position: int
    size: int
    """Bytes; 0 if there is nothing to read."""
    next_offset: int
    """The offset after the last record; the requested one if there is nothing to read."""
    data: bytes = b""
    """The batches' bytes, if finding them has read them."""


def locate(
    data: bytes, position: int, end: int, offset: int, max_bytes: int, max_offset: int, *, min_one_batch: bool
) -> BatchRange | None:
    """Find the batches from the one that holds `offset` on, at most `max_bytes` of them, all below `max_offset`.

    data: the file's bytes from `position` on, where a batch begins
    end: where the file's batches end
    min_one_batch: whether the first batch may be larger than `max_bytes`

    Returns None if `data` has another format, ends too early, or has no batch where one should be: then use `walk`.
    Creates no `BatchPlace`, because small reads of many partitions spend their time here.
    """
    unpack, last_start, left = _V2_START.unpack_from, len(data) - _V2_START.size, end - position
    at = next_offset = 0
    first = limit = -1
    while at <= last_start:
        base_offset, length, magic, delta = unpack(data, at)
        after = at + LOG_OVERHEAD + length
        if magic != MAGIC or length < _LEAST_LENGTH or delta < 0 or base_offset < 0 or after > left:
            return None
        last_offset = base_offset + delta
        if first >= 0:
            if after > limit or last_offset >= max_offset:
                return _batch_range(data, position, first, at, next_offset)
        elif last_offset >= offset:
            if not at and position and base_offset > offset:
                return None  # the index does not match the file
            if last_offset >= max_offset or (after - at > max_bytes and not min_one_batch):
                return BatchRange(position + at, 0, offset)
            first, limit = at, at + max(after - at, max_bytes)
        at, next_offset = after, last_offset + 1
    if first >= 0 and (at == left or at + HEADER_SIZE > limit):
        return _batch_range(data, position, first, at, next_offset)
    return None


def _batch_range(data: bytes, position: int, first: int, at: int, next_offset: int) -> BatchRange:
    return BatchRange(position + first, at - first, next_offset, data[first:at] if at <= len(data) else b"")


def file_crc32c(file: ReadFile, size: int) -> int:
    """Return the CRC-32C of the first `size` bytes, or of the whole file if it is shorter; read in pieces."""
    crc = position = 0
    while position < size and (data := file.read_at(position, min(PIECE_BYTES, size - position))):
        crc = crc32c(data, crc)
        position += len(data)
    return crc


def check_batches(file: ReadFile, position: int, end: int, offset: int) -> Iterator[BatchPlace]:
    """Yield the batches from `position` on while they are whole, their CRCs are right and their offsets increase.

    offset: the least base offset allowed. Memory: `PIECE_BYTES`, whatever a header claims. Raises OSError.
    """
    piece, start = b"", position
    while True:
        try:
            place = place_at(piece, position - start, position) if position >= start else None
            if place is None or place.end > start + len(piece):
                piece, start = file.read_at(position, min(PIECE_BYTES, end - position)), position
                place = place_at(piece, 0, position)
        except CorruptRecord:
            return
        if place is None or place.base_offset < offset or place.end > end:
            return
        if not _is_crc_right(file, place, piece, start):
            return
        yield place
        position, offset = place.end, place.last_offset + 1


def _is_crc_right(file: ReadFile, place: BatchPlace, piece: bytes, start: int) -> bool:
    at, since = (_CRC_V2_AT, _CRC_V2_FROM) if place.magic == MAGIC else (_CRC_LEGACY_AT, _CRC_LEGACY_FROM)
    compute = crc32c if place.magic == MAGIC else zlib.crc32
    header = place.position - start
    stored = _CRC_V2.unpack_from(piece, header + at)[0]
    in_piece = min(header + place.size, len(piece))
    crc = compute(memoryview(piece)[header + since : in_piece])
    position = start + in_piece
    while position < place.end:
        data = file.read_at(position, min(PIECE_BYTES, place.end - position))
        if not data:
            return False  # the file was truncated meanwhile
        crc = compute(data, crc)
        position += len(data)
    return bool(crc == stored)
