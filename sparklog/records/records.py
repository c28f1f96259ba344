"""Records as Python values, one at a time: for tools, tests, and topics with few records. Use `arrow` for many.

This module is independent of the compiled kernels, so that each can be tested against the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from sparklog.base.errors import CorruptRecord, InvalidRecord
from sparklog.base.fs import Buffer
from sparklog.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    TimestampType,
    build_header,
    check_batch,
    seal,
)
from sparklog.records.compression import LIMIT_BYTES, compress, decompress

_MAX_INT = 2**31 - 1
_MASK_64 = 2**64 - 1

Headers = tuple[tuple[str, bytes | None], ...]


class Record(Struct, frozen=True, kw_only=True):
    """One record of a batch. Timestamps are in ms, -1: none; sequence -1: none."""

    offset: int
    timestamp_ms: int = NO_TIMESTAMP
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    sequence: int = -1


def read_records(data: Buffer, position: int = 0, *, limit_bytes: int = LIMIT_BYTES) -> list[Record]:
    """Return all records of the batch of format v2 at `position`, also those of a control batch.

    Raises CorruptRecord if they do not match the header or take more than `limit_bytes`, and as `batch.check_batch`
    does.
    """
    return list(iterate_records(data, position, limit_bytes=limit_bytes))


def iterate_records(data: Buffer, position: int = 0, *, limit_bytes: int = LIMIT_BYTES) -> Iterator[Record]:
    """Yield the records as `read_records` does, one at a time.

    Takes little more memory than `limit_bytes`, whatever the batch holds.
    """
    header = check_batch(data, position)
    if header.record_count == 0:
        return  # a cleaner has left only the header, for its sequence numbers
    body = memoryview(data)[position + HEADER_SIZE : position + header.size]
    reader = _Reader(bytes(decompress(header.codec, body, limit_bytes)), f"batch at offset {header.base_offset}")
    previous_delta = -1
    for _ in range(header.record_count):
        record, offset_delta = _read_record(reader, header)
        if not previous_delta < offset_delta <= header.last_offset_delta:
            raise reader.error(f"offset delta {offset_delta} after {previous_delta}")
        previous_delta = offset_delta
        yield record
    if reader.position != len(reader.data):
        raise reader.error(f"{len(reader.data) - reader.position} bytes are left over")


def _read_record(reader: _Reader, header: BatchHeader) -> tuple[Record, int]:
    length = reader.varint()
    end = reader.position + length
    if length < 1 or end > len(reader.data):
        raise reader.error(f"a record claims {length} bytes")
    reader.position += 1  # attributes, all unused
    timestamp_delta = reader.varint(bits=64)
    offset_delta = reader.varint()
    key, value = reader.value(end), reader.value(end)
    headers = tuple(_read_header(reader, end) for _ in range(reader.count(end)))
    if reader.position != end:
        raise reader.error("a record's length is not what its fields take")
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    record = Record(
        offset=header.base_offset + offset_delta,
        timestamp_ms=header.max_timestamp if append_time else _signed_64(header.base_timestamp + timestamp_delta),
        timestamp_type=header.timestamp_type,
        key=key,
        value=value,
        headers=headers,
        sequence=-1 if header.base_sequence < 0 else (header.base_sequence + offset_delta) & _MAX_INT,
    )
    return record, offset_delta


def _read_header(reader: _Reader, end: int) -> tuple[str, bytes | None]:
    key = reader.value(end)
    if key is None:
        raise reader.error("a header has no key")
    return key.decode("utf-8", "replace"), reader.value(end)


def _signed_64(number: int) -> int:
    """Wrap around like a Java long."""
    return ((number + 2**63) & _MASK_64) - 2**63


class _Reader:
    """Reads numbers and byte strings, one after the other."""

    __slots__ = ("data", "name", "position")

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        self.position = 0

    def error(self, text: str) -> CorruptRecord:
        return CorruptRecord(f"{self.name}, byte {self.position} of its records: {text}")

    def varint(self, bits: int = 32) -> int:
        """Read a zigzag varint of 32 or 64 bits."""
        value = shift = 0
        while True:
            if self.position >= len(self.data) or shift >= bits:
                raise self.error("a number is cut off or too long")
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if value >> bits:
            raise self.error(f"a number does not fit in {bits} bits")
        return (value >> 1) ^ -(value & 1)

    def value(self, end: int) -> bytes | None:
        """Read a length and as many bytes; null if the length is negative, as in Kafka's own reader."""
        size = self.varint()
        if size < 0:
            return None
        start = self.position
        if size > end - start:
            raise self.error(f"a key or value claims {size} bytes, {end - start} are left")
        self.position += size
        return self.data[start : self.position]

    def count(self, end: int) -> int:
        """Read the number of headers."""
        count = self.varint()
        if not 0 <= count <= (end - self.position) // 2:
            raise self.error(f"{count} headers in {end - self.position} bytes")
        return count


def write_records(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
) -> bytearray:
    """Return one batch of format v2 with these records, whose offsets must increase.

    Sequence numbers are written if the first record has one. `last_offset` is the batch's last offset if a cleaner has
    removed its last records; `delete_horizon_ms` is when tombstones in it may be removed (KIP-534).

    Raises InvalidRecord if there are no records, or they do not fit in one batch.
    """
    if not records:
        raise InvalidRecord("a batch needs at least one record")
    first = records[0]
    base_timestamp = first.timestamp_ms if delete_horizon_ms is None else delete_horizon_ms
    deltas = [record.offset - first.offset for record in records]
    last_delta = deltas[-1] if last_offset is None else last_offset - first.offset
    if last_delta > _MAX_INT or last_delta < deltas[-1] or any(a >= b for a, b in pairwise(deltas)):
        raise InvalidRecord(f"offsets {first.offset} to {records[-1].offset} do not increase within one batch")
    if len({record.timestamp_type for record in records}) > 1:
        raise InvalidRecord("the records of a batch have one timestamp type")
    body = bytearray()
    for record, delta in zip(records, deltas, strict=True):
        content = _write_record(record, delta, record.timestamp_ms - base_timestamp)
        _write_varint(body, len(content))
        body += content
    records_bytes = compress(codec, body, level)
    attributes = (
        codec
        | (LOG_APPEND_TIME_BIT if first.timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
    )
    batch = build_header(
        base_offset=first.offset,
        records_size=len(records_bytes),
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=first.sequence,
        record_count=len(records),
    )
    batch += records_bytes
    seal(batch)
    return batch


def write_batches(
    records: Iterable[Record], *, max_batch_bytes: int, codec: Codec = Codec.NONE, level: int | None = None
) -> Iterator[bytearray]:
    """Yield the records as batches of at most `max_batch_bytes` before compression; a larger record gets its own.

    level: of the codec, as in `compress`. Raises InvalidRecord as `write_records` does.
    """
    group: list[Record] = []
    left = 0
    for record in records:
        size = _size(record, group[0] if group else record)
        if group and size > left:
            yield write_records(group, codec=codec, level=level)
            group, size = [], _size(record, record)
        if not group:
            left = max_batch_bytes - HEADER_SIZE
        group.append(record)
        left -= size
    if group:
        yield write_records(group, codec=codec, level=level)


def _size(record: Record, first: Record) -> int:
    """Return the size in bytes of a record in a batch that begins with `first`."""
    length = bytearray()
    content = _write_record(record, record.offset - first.offset, record.timestamp_ms - first.timestamp_ms)
    _write_varint(length, len(content))
    return len(length) + len(content)


def _write_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytearray:
    out = bytearray(1)  # attributes
    _write_varint(out, _signed_64(timestamp_delta))
    _write_varint(out, offset_delta)
    _write_value(out, record.key)
    _write_value(out, record.value)
    _write_varint(out, len(record.headers))
    for key, value in record.headers:
        _write_value(out, key.encode())
        _write_value(out, value)
    return out


def _write_value(out: bytearray, value: bytes | None) -> None:
    _write_varint(out, -1 if value is None else len(value))
    if value is not None:
        out += value


def _write_varint(out: bytearray, number: int) -> None:
    rest = ((number << 1) ^ (number >> 63)) & _MASK_64
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
