"""Record batches of Kafka's message format v2 (KIP-98), by their 61-byte header.

    position  size  field                    remark
    0         8     base offset              set by the broker; outside the CRC
    8         4     batch length             bytes after this field: the batch takes 12 + length bytes
    12        4     partition leader epoch   set by the broker; outside the CRC
    16        1     magic                    2
    17        4     CRC-32C                  of everything from attributes to the end
    21        2     attributes               bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                             6 delete horizon
    23        4     last offset delta        offset of the last record, less the base offset
    27        8     base timestamp           ms; with bit 6 set it is the delete horizon (KIP-534)
    35        8     max timestamp            ms; the append time where bit 3 is set
    43        8     producer id              -1: none
    51        2     producer epoch
    53        4     base sequence
    57        4     record count
    61              records, compressed together if a codec is set

All integers are big-endian. A broker needs only this header: it checks the CRC, sets base offset, leader epoch and (for
LogAppendTime) the timestamp, and writes the bytes. `base offset`, `batch length` and `magic` have the same positions in
message formats v0 and v1 (`records/legacy.py`), so a log can be walked whatever its format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from sparklog.base.errors import CorruptRecord, InvalidRecord, UnsupportedForMessageFormat
from sparklog.base.fs import Buffer

HEADER_SIZE = 61
LOG_OVERHEAD = 12  # base offset and batch length, which batch length does not count
MAGIC = 2
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
LENGTH_AT = 8
"""The position of a batch's length."""
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
ATTRIBUTES_LOW_BYTE_AT = 22
"""The position of a batch's codec (`CODEC_MASK`) and of the bits below."""
_MAX_TIMESTAMP_AT = 35

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40


class Codec(IntEnum):
    """Compression of a batch's records, numbered as in its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_LAST_CODEC = max(Codec).value  # a plain number is faster to compare for each batch


class TimestampType(IntEnum):
    """Origin of a record's timestamp, numbered as in Spark's and the Java client's `timestampType`."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The fields of a batch's header, in order; offsets absolute, timestamps in ms."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes, header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, even if a cleaner has removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch, where the next batch begins unless a cleaner has left a gap."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Compression codec. Raises CorruptRecord for an unknown number."""
        try:
            return Codec(self.attributes & CODEC_MASK)
        except ValueError:
            raise CorruptRecord(
                f"batch at offset {self.base_offset}: no codec {self.attributes & CODEC_MASK}"
            ) from None

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the records have timestamps of their own, or the append time `max_timestamp`."""
        return TimestampType((self.attributes & LOG_APPEND_TIME_BIT) >> 3)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction, as records or as the marker that ends it."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record, such as a transaction marker, which consumers never see."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which its tombstones may be removed (KIP-534); None if no cleaner has set it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`; only magic and length are checked.

    Raises CorruptRecord if fewer than 61 bytes are left or the length is impossible, and UnsupportedForMessageFormat if
    the batch is not of format v2.
    """
    if len(data) - position < HEADER_SIZE:
        raise CorruptRecord(f"{len(data) - position} bytes at position {position}: a batch header takes {HEADER_SIZE}")
    header = BatchHeader._make(_HEADER.unpack_from(data, position))
    if header.magic != MAGIC:
        raise UnsupportedForMessageFormat(
            f"batch at position {position} has magic {header.magic}; only {MAGIC} is accepted"
        )
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptRecord(f"batch at position {position} claims a length of {header.batch_length}")
    return header


def size_and_magic(data: Buffer, position: int = 0) -> tuple[int, int]:
    """Return the claimed size in bytes of the batch or message at `position`, and its magic, from its first 17 bytes.

    Neither is checked. Raises CorruptRecord if fewer than 17 bytes are left.
    """
    if len(data) - position <= _MAGIC_AT:
        raise CorruptRecord(
            f"{len(data) - position} bytes at position {position}: not even a batch's first {_MAGIC_AT + 1}"
        )
    return LOG_OVERHEAD + _LENGTH.unpack_from(data, position + LENGTH_AT)[0], data[position + _MAGIC_AT]


def last_leader_epoch(data: Buffer) -> int:
    """Return the leader epoch of the last whole batch; -1 if there is none, or its format has no epochs.

    An impossible length ends the walk without an error: decoding the batch reports it.
    """
    position, epoch, end = 0, -1, len(data)
    while end - position > _MAGIC_AT:
        size, magic = size_and_magic(data, position)
        if size <= LOG_OVERHEAD or position + size > end:
            break
        epoch = _LENGTH.unpack_from(data, position + _LEADER_EPOCH_AT)[0] if magic == MAGIC else -1
        position += size
    return epoch


def iterate_headers(data: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch in `data`; a batch cut off by the end of `data` ends the walk.

    Raises as `read_header` does.
    """
    end = len(data)
    while end - position >= HEADER_SIZE:
        header = read_header(data, position)
        if position + header.size > end:
            return
        yield position, header
        position += header.size


def compute_crc(data: Buffer, position: int, size: int) -> int:
    """Return the CRC-32C that the header of the batch of `size` bytes at `position` should have."""
    return crc32c(memoryview(data)[position + _ATTRIBUTES_AT : position + size])


def check_batch(data: Buffer, position: int = 0) -> BatchHeader:
    """Check length, CRC and counts of the batch at `position`; return its header.

    Raises CorruptRecord for a wrong length or CRC, InvalidRecord for negative counts, and as `read_header` does.
    """
    header = read_header(data, position)
    size = LOG_OVERHEAD + header.batch_length
    if position + size > len(data):
        raise CorruptRecord(f"batch at position {position} claims {size} bytes; {len(data) - position} are there")
    crc = compute_crc(data, position, size)
    if crc != header.crc:
        raise CorruptRecord(
            f"batch at offset {header.base_offset}: CRC is {crc:#010x}, its header says {header.crc:#010x}"
        )
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise InvalidRecord(
            f"batch at offset {header.base_offset}: {header.record_count} records, "
            f"last offset delta {header.last_offset_delta}"
        )
    return header


def check_produced(data: Buffer) -> list[tuple[int, BatchHeader]]:
    """Check the batches of one produce request without decompression; return their positions and headers.

    Raises InvalidRecord if there is no batch, or if a batch is empty, is a control batch, has an unknown codec or gaps
    in its offsets (only a cleaner may leave gaps); CorruptRecord if bytes are left over; and as `check_batch` does.
    """
    batches = []
    position, end, view = 0, len(data), memoryview(data)
    while position < end:
        if end - position < HEADER_SIZE:
            raise _refusal_of(data, position)
        fields = _HEADER.unpack_from(data, position)
        _, length, _, magic, crc, attributes, delta, _, _, _, _, _, count = fields
        after = position + LOG_OVERHEAD + length
        if (
            magic != MAGIC
            or not position + HEADER_SIZE <= after <= end
            or crc32c(view[position + _ATTRIBUTES_AT : after]) != crc
            or not 0 < count == delta + 1
            or attributes & CONTROL_BIT
            or attributes & CODEC_MASK > _LAST_CODEC
        ):
            raise _refusal_of(data, position)
        batches.append((position, tuple.__new__(BatchHeader, fields)))
        position = after
    if not batches:
        raise InvalidRecord("no record batch in the request")
    return batches


def _refusal_of(data: Buffer, position: int) -> InvalidRecord:
    """Return the error of the batch at `position`, which a producer must not send; or raise as `check_batch` does."""
    header = check_batch(data, position)
    if header.record_count == 0 or header.record_count != header.last_offset_delta + 1:
        return InvalidRecord(
            f"batch at position {position}: {header.record_count} records, "
            f"last offset delta {header.last_offset_delta}; "
            "a producer's batch holds at least one record and no gaps"
        )
    if header.attributes & CONTROL_BIT:
        return InvalidRecord(f"batch at position {position} is a control batch: clients cannot write those")
    return InvalidRecord(f"batch at position {position}: no codec {header.attributes & CODEC_MASK}")


def assign(data: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch of the batch at `position`. The CRC covers neither."""
    _BASE_OFFSET.pack_into(data, position, base_offset)
    _LEADER_EPOCH.pack_into(data, position + _LEADER_EPOCH_AT, leader_epoch)


def set_log_append_time(data: bytearray | memoryview, position: int, header: BatchHeader, timestamp_ms: int) -> None:
    """Set the broker's time as timestamp of the whole batch, and update its CRC (LogAppendTime)."""
    _ATTRIBUTES.pack_into(data, position + _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
    _MAX_TIMESTAMP.pack_into(data, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    _CRC.pack_into(data, position + _CRC_AT, compute_crc(data, position, header.size))


def build_header(
    *,
    base_offset: int,
    records_size: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """Return the header of a batch whose records take `records_size` bytes. Its CRC is 0 until `seal`."""
    header = bytearray(HEADER_SIZE)
    _HEADER.pack_into(
        header, 0, base_offset, HEADER_SIZE - LOG_OVERHEAD + records_size, leader_epoch, MAGIC, 0, attributes,
        last_offset_delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip
    return header


def seal(batch: bytearray | memoryview, position: int = 0) -> None:
    """Write the CRC of the finished batch at `position` into its header."""
    size = LOG_OVERHEAD + _LENGTH.unpack_from(batch, position + LENGTH_AT)[0]
    _CRC.pack_into(batch, position + _CRC_AT, compute_crc(batch, position, size))
