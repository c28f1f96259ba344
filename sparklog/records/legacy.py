"""Reads message sets of formats v0 (before Kafka 0.10) and v1 (0.10), and converts them to batches of format v2.

    position  size  field             remark
    0         8     offset
    8         4     message size      bytes after this field
    12        4     CRC-32            of everything from magic to the end
    16        1     magic             0 or 1
    17        1     attributes        bits 0-2 codec (never zstd); bit 3, in v1, timestamp type
    18        8     timestamp         ms; in v1 only
    ..        4     key length        negative: null
              ..    key
              4     value length      negative: null
              ..    value

A message with a codec is a wrapper: its value is a compressed message set, its offset that of the last message inside.
Inside a v0 wrapper, offsets are absolute. Inside a v1 wrapper they are relative: the last one corresponds to the
wrapper's offset (but they are absolute if the wrapper's offset is 0, as some old producers wrote). If the wrapper has
the append time, it holds for all messages inside; otherwise each has its own timestamp. A v0 message has none (-1).

Messages of v0 with lz4 have a wrong checksum in the frame's header: clients of that time computed it over the wrong
bytes. Kafka does not check it for v0, and neither does this module.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import Buffer
from sparklog.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    Codec,
    TimestampType,
    size_and_magic,
)
from sparklog.records.compression import LIMIT_BYTES, decompress, mend_lz4_header
from sparklog.records.records import Record, write_records

BATCH_BYTES = 1024 * 1024  # converted messages are gathered into batches of about this size
_SMALLEST_MESSAGE = {0: 14, 1: 22}  # what follows the size field, with null key and value
_MAX_INT = 2**31 - 1

_OFFSET_SIZE = struct.Struct(">qi")
_CRC_MAGIC_ATTRIBUTES = struct.Struct(">IBB")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")


class LegacyMessage(Struct, frozen=True, kw_only=True):
    """One message as stored in a set; a wrapper's value is the compressed set."""

    position: int
    size: int  # with offset and size fields
    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: memoryview | None
    value: memoryview | None

    @property
    def codec(self) -> Codec:
        """Compression codec. Raises CorruptRecord for a codec that message sets do not have."""
        number = self.attributes & CODEC_MASK
        if number > Codec.LZ4:
            raise CorruptRecord(f"message at offset {self.offset}: no codec {number} in format v{self.magic}")
        return Codec(number)

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the timestamp is the client's or the append time; CREATE_TIME for v0, which has no timestamps."""
        return TimestampType((self.attributes & LOG_APPEND_TIME_BIT) >> 3 if self.magic else 0)


def iterate_messages(data: Buffer, position: int = 0, *, check_crc: bool = True) -> Iterator[LegacyMessage]:
    """Yield the messages from `position` on, wrappers unopened.

    Stops at the end of `data`, at a message that is cut off there, or at a v2 batch.

    Raises CorruptRecord for a wrong CRC, magic or length.
    """
    view = memoryview(data).cast("B")
    while len(view) - position > LOG_OVERHEAD + 4:
        size, magic = size_and_magic(view, position)
        if magic == MAGIC:
            return
        if magic not in _SMALLEST_MESSAGE or size < LOG_OVERHEAD + _SMALLEST_MESSAGE[magic]:
            raise CorruptRecord(f"message at position {position}: magic {magic}, {size} bytes")
        if size > len(view) - position:
            return
        yield _read_message(view, position, size, check_crc)
        position += size


def _read_message(view: memoryview, position: int, size: int, check_crc: bool) -> LegacyMessage:
    offset, _ = _OFFSET_SIZE.unpack_from(view, position)
    crc, magic, attributes = _CRC_MAGIC_ATTRIBUTES.unpack_from(view, position + LOG_OVERHEAD)
    end = position + size
    if check_crc and (computed := zlib.crc32(view[position + LOG_OVERHEAD + 4 : end])) != crc:
        raise CorruptRecord(f"message at offset {offset}: CRC is {computed:#010x}, it says {crc:#010x}")
    at = position + LOG_OVERHEAD + _CRC_MAGIC_ATTRIBUTES.size
    timestamp = NO_TIMESTAMP
    if magic:
        (timestamp,) = _TIMESTAMP.unpack_from(view, at)
        at += _TIMESTAMP.size
    key, at = _read_bytes(view, at, end - _LENGTH.size, offset)
    value, at = _read_bytes(view, at, end, offset)
    if at != end:
        raise CorruptRecord(f"message at offset {offset}: {end - at} bytes are left over")
    return LegacyMessage(
        position=position,
        size=size,
        offset=offset,
        crc=crc,
        magic=magic,
        attributes=attributes,
        timestamp_ms=timestamp,
        key=key,
        value=value,
    )


def _read_bytes(view: memoryview, at: int, end: int, offset: int) -> tuple[memoryview | None, int]:
    (size,) = _LENGTH.unpack_from(view, at)
    at += _LENGTH.size
    if size < 0:
        return None, at
    if size > end - at:
        raise CorruptRecord(f"message at offset {offset}: a key or value claims {size} bytes, {end - at} are left")
    return view[at : at + size], at + size


def records_of(message: LegacyMessage, *, limit_bytes: int = LIMIT_BYTES) -> Iterator[Record]:
    """Yield the message itself, or the messages that it wraps, as records. Raises as `messages_of` does."""
    return (record for _, record in messages_of(message, limit_bytes=limit_bytes))


def messages_of(message: LegacyMessage, *, limit_bytes: int = LIMIT_BYTES) -> Iterator[tuple[LegacyMessage, Record]]:
    """Yield the message itself, or the messages that it wraps: each as stored, and as a record.

    The record has the absolute offset and the effective timestamp. Raises CorruptRecord if the content of a wrapper is
    invalid, or larger than `limit_bytes`.
    """
    codec = message.codec
    if codec is Codec.NONE:
        yield message, _record(message, message.offset)
        return
    if message.value is None:
        raise CorruptRecord(f"message at offset {message.offset}: a wrapper without a value")
    wrapped: Buffer = message.value
    if codec is Codec.LZ4 and message.magic == 0:
        wrapped = mend_lz4_header(wrapped)
    content = decompress(codec, wrapped, limit_bytes)
    base_offset = _base_offset(message, content)
    for inner in iterate_messages(content):
        if inner.attributes & CODEC_MASK:
            raise CorruptRecord(f"message at offset {message.offset}: a wrapper inside a wrapper")
        record = _record(inner, base_offset + inner.offset)
        if inner.magic:
            append_time = message.timestamp_type is TimestampType.LOG_APPEND_TIME
            timestamp = message.timestamp_ms if append_time else inner.timestamp_ms
            record = replace(record, timestamp_ms=timestamp, timestamp_type=message.timestamp_type)
        yield inner, record


def _base_offset(message: LegacyMessage, content: Buffer) -> int:
    """Return the number to add to the offsets of the messages in a wrapper."""
    last = None
    for inner in iterate_messages(content, check_crc=False):
        last = inner.offset
    if last is None:
        raise CorruptRecord(f"message at offset {message.offset}: nothing in the wrapper")
    if message.magic == 0 or message.offset == 0:
        return 0
    if message.offset < last:
        raise CorruptRecord(f"message at offset {message.offset}: relative offset {last} in the wrapper")
    return message.offset - last


def _record(message: LegacyMessage, offset: int) -> Record:
    return Record(
        offset=offset,
        timestamp_ms=message.timestamp_ms,
        timestamp_type=message.timestamp_type,
        key=None if message.key is None else bytes(message.key),
        value=None if message.value is None else bytes(message.value),
    )


def to_v2(data: Buffer, *, codec: Codec = Codec.NONE, limit_bytes: int = LIMIT_BYTES) -> bytes:
    """Return `data` with its messages converted to batches of format v2; its v2 batches are copied unchanged.

    Offsets are kept; a batch or message that is cut off at the end is dropped. Raises CorruptRecord as
    `iterate_messages` and `records_of` do, and for a batch with an impossible length.
    """
    view = memoryview(data).cast("B")
    out = bytearray()
    position = 0
    while len(view) - position > LOG_OVERHEAD + 4:
        size, magic = size_and_magic(view, position)
        if magic != MAGIC:
            batches, after = convert_messages(view, position, codec=codec, limit_bytes=limit_bytes)
            out += batches
            if after == position:
                break
            position = after
            continue
        if size <= LOG_OVERHEAD:
            raise CorruptRecord(f"the batch at position {position} claims a length that no batch has")
        if size > len(view) - position:
            break
        out += view[position : position + size]
        position += size
    return bytes(out)


def convert_messages(
    data: Buffer,
    position: int = 0,
    *,
    codec: Codec = Codec.NONE,
    max_bytes: int = _MAX_INT,
    limit_bytes: int = LIMIT_BYTES,
) -> tuple[bytearray, int]:
    """Return the messages from `position` on as batches of format v2, and the position after the last one converted.

    Stops where `iterate_messages` does, or after `max_bytes` of batches; one message may hold `limit_bytes`.
    """
    out = bytearray()
    group: list[Record] = []
    group_bytes = 0
    after = position
    for message in iterate_messages(data, position):
        for record in records_of(message, limit_bytes=limit_bytes):
            if group and (group_bytes > BATCH_BYTES or not _fits(group, record)):
                out += write_records(group, codec=codec)
                group, group_bytes = [], 0
            group.append(record)
            group_bytes += len(record.key or b"") + len(record.value or b"") + 16
        after = message.position + message.size
        if len(out) + group_bytes >= max_bytes:
            break
    if group:
        out += write_records(group, codec=codec)
    return out, after


def _fits(group: list[Record], record: Record) -> bool:
    """Return whether `record` fits in a batch with `group`: offsets must increase, append times be the same."""
    first, last = group[0], group[-1]
    return (
        last.offset < record.offset <= first.offset + _MAX_INT
        and record.timestamp_type is first.timestamp_type
        and (record.timestamp_type is TimestampType.CREATE_TIME or record.timestamp_ms == first.timestamp_ms)
    )
