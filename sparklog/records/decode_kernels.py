"""Decodes record batches to Arrow's buffers, in compiled loops.

A record of message format v2 (org.apache.kafka.common.record.DefaultRecord); every number is a zigzag varint:

    length of what follows · attributes (1 byte, unused) · timestamp delta · offset delta
    key length (negative: null) · key · value length (negative: null) · value
    header count, then for each: key length · key · value length (negative: null) · value

Three steps, so that every buffer has its exact size before it is filled:

    scan_batches           walks the headers and writes one row per batch into a table
    parse_batches          walks the records of the batches, checks them, writes offsets and timestamps, and records
                           where each key, value and list of headers lies
    copy_column            copies the located keys or values
    copy_header_columns    reads the located headers again

Fields that are not selected are skipped: with keys alone, the walk jumps from a record's key to the next record.
The rules of `kernels` apply: no number from the data is trusted, even when copy_header_columns reads it again.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

from sparklog.records.kernels import MAX_LONG, byte_at, copy_bytes, helper, kernel

# The table of batches: one row each, columns of int64.
START = 0  # where the batch begins in the data
BASE_OFFSET = 1
LAST_OFFSET_DELTA = 2
BASE_TIMESTAMP = 3
MAX_TIMESTAMP = 4
ATTRIBUTES = 5
RECORD_COUNT = 6
CRC = 7
RECORDS_START = 8  # range of its records, in the data or in the decompressed bytes
RECORDS_END = 9
ACTION = 10  # how to read it, one of:
TABLE_COLUMNS = 11

READ = 0  # walk its records in the data
READ_DECOMPRESSED = 1  # walk its records in the decompressed bytes
COUNT = 2  # the header is enough: one record at each offset
SKIP = 3

# Why a scan stopped.
END_OF_DATA, TABLE_FULL, OLD_FORMAT, BAD_LENGTH, BAD_MAGIC, BAD_COUNTS = range(6)

# The fields that parse_batches reads, as bits, in the order of a record's fields.
WANT_TIMESTAMP, WANT_TIMESTAMP_TYPE, WANT_KEY, WANT_VALUE, WANT_HEADERS = 1, 2, 4, 8, 16

# Indices of the totals that parse_batches adds up.
HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, NULL_KEYS, NULL_VALUES = range(5)
TOTALS = 5

# Faults in a batch's records.
BAD_LENGTH_OF_RECORD, BAD_NUMBER, BAD_OFFSET, BAD_FIELD, BAD_HEADERS, BAD_SIZE, BAD_COUNT, NO_ROOM = range(1, 9)
FAULTS = {
    BAD_LENGTH_OF_RECORD: "a record's length is not a number or leaves the batch",
    BAD_NUMBER: "a timestamp or offset delta is cut off or out of range",
    BAD_OFFSET: "offsets do not increase, or leave the range that the batch's header gives",
    BAD_FIELD: "a key or value leaves its record",
    BAD_HEADERS: "headers leave their record",
    BAD_SIZE: "a record is longer than its fields",
    BAD_COUNT: "the header gives fewer records than there are bytes for",
    NO_ROOM: "the header gives more records than its bytes can hold",
}

_HEADER_SIZE = 61
_LOG_APPEND_TIME_BIT = 8


class Selection(NamedTuple):
    """The selected columns (WANT_ bits), the range of offsets, and the timestamp units per millisecond."""

    want: int
    offset_from: int
    offset_to: int
    units_per_ms: int


class FixedColumns(NamedTuple):
    """The columns of fixed width; those not selected are empty."""

    offsets: Any  # int64[records]
    timestamps: Any  # int64[records]
    timestamp_types: Any  # int32[records]


class VariableColumn(NamedTuple):
    """A column of byte strings or lists: positions in the source, and Arrow's offsets and validity bits."""

    starts: Any  # int64[records]
    offsets: Any  # int32[records + 1], the first set to 0
    validity: Any  # uint8[records / 8], all set to 0


class VariableColumns(NamedTuple):
    """The columns of variable width; those not selected are empty."""

    key: Any  # VariableColumn
    value: Any  # VariableColumn
    headers: Any  # VariableColumn


@helper
def read_varint(data, position, end):
    """Return a zigzag varint of 32 bits and the position after it; position -1 if it leaves `end` or its range."""
    if position >= end:
        return 0, -1
    byte = byte_at(data, position)
    position += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 127
    shift = 7
    while shift < 35 and position < end:
        byte = byte_at(data, position)
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position if value <= 0xFFFFFFFF else -1
        shift += 7
    return 0, -1


@helper
def read_varlong(data, position, end):
    """As read_varint, for 64 bits."""
    value = 0
    shift = 0
    while shift < 70 and position < end:
        byte = byte_at(data, position)
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return ((value >> 1) & MAX_LONG) ^ -(value & 1), position if shift < 63 or byte <= 1 else -1
        shift += 7
    return 0, -1


@helper
def big_endian(data, position, size):
    """Return the signed integer in `size` bytes."""
    value = byte_at(data, position)
    if value > 127:
        value -= 256
    for i in range(1, size):
        value = (value << 8) | byte_at(data, position + i)
    return value


@kernel
def scan_batches(data, position, max_bytes, table):
    """Write a row per whole batch from `position` on, up to `max_bytes` of batches, but at least one batch.

    Returns (rows, position after the last, why it stopped).
    """
    end = data.shape[0]
    start = position
    rows = 0
    while end - position > 16:
        magic = byte_at(data, position + 16)
        if magic != 2:
            return rows, position, OLD_FORMAT if magic < 2 else BAD_MAGIC
        size = 12 + big_endian(data, position + 8, 4)
        if size < _HEADER_SIZE:
            return rows, position, BAD_LENGTH
        if size > end - position:
            break
        if rows >= table.shape[0] or (rows > 0 and position + size - start > max_bytes):
            return rows, position, TABLE_FULL
        last_offset_delta = big_endian(data, position + 23, 4)
        record_count = big_endian(data, position + 57, 4)
        if last_offset_delta < 0 or record_count < 0:
            return rows, position, BAD_COUNTS
        table[rows, START] = position
        table[rows, BASE_OFFSET] = big_endian(data, position, 8)
        table[rows, LAST_OFFSET_DELTA] = last_offset_delta
        table[rows, BASE_TIMESTAMP] = big_endian(data, position + 27, 8)
        table[rows, MAX_TIMESTAMP] = big_endian(data, position + 35, 8)
        table[rows, ATTRIBUTES] = big_endian(data, position + 21, 2)
        table[rows, RECORD_COUNT] = record_count
        table[rows, CRC] = big_endian(data, position + 17, 4) & 0xFFFFFFFF
        table[rows, RECORDS_START] = position + _HEADER_SIZE
        table[rows, RECORDS_END] = position + size
        table[rows, ACTION] = READ
        rows += 1
        position += size
    return rows, position, END_OF_DATA


@helper
def _set_value(column, record, position, size):
    """Record where one value lies; return 1 if it is null, else 0."""
    column.starts[record] = position
    column.offsets[record + 1] = column.offsets[record] + max(size, 0)
    if size < 0:
        return 1
    column.validity[record >> 3] |= 1 << (record & 7)
    return 0


@helper
def read_size(data, position, end):
    """Return the length of a key or value (negative: null) and where it starts; position -1 if it leaves `end`."""
    size, position = read_varint(data, position, end)
    return size, position if size <= end - position else -1


@helper
def _walk_headers(data, position, end):
    """Walk one record's headers; return (position after them or -1, headers, bytes of keys, bytes of values)."""
    count, position = read_varint(data, position, end)
    if position < 0 or count < 0 or count > (end - position) // 2:
        return -1, 0, 0, 0
    key_bytes = 0
    value_bytes = 0
    for _ in range(count):
        size, position = read_size(data, position, end)
        if position < 0 or size < 0:
            return -1, 0, 0, 0
        key_bytes += size
        size, position = read_size(data, position + size, end)
        if position < 0:
            return -1, 0, 0, 0
        position += max(size, 0)
        value_bytes += max(size, 0)
    return position, count, key_bytes, value_bytes


@helper
def _scaled(timestamp, units_per_ms):
    """Convert milliseconds to a finer unit, clamped to the range of 64 bits."""
    if units_per_ms == 1:
        return timestamp
    farthest = MAX_LONG // units_per_ms
    return min(max(timestamp, -farthest), farthest) * units_per_ms


@helper
def read_head(data, position, batch_end):
    """Read the fields before a record's key.

    Returns (end of the record, position after the fields or -(fault), timestamp delta, offset delta).
    """
    length, position = read_varint(data, position, batch_end)
    if position < 0 or length < 1 or length > batch_end - position:
        return 0, -BAD_LENGTH_OF_RECORD, 0, 0
    end = position + length
    timestamp_delta, position = read_varlong(data, position + 1, end)
    if position < 0:
        return 0, -BAD_NUMBER, 0, 0
    offset_delta, position = read_varint(data, position, end)
    if position < 0:
        return 0, -BAD_NUMBER, 0, 0
    return end, position, timestamp_delta, offset_delta


@helper
def read_fields(data, position, end, want):
    """Read the selected fields from a record's key on; fields after the last selected one are not read.

    Returns (0 or -(fault), key start, key size, value start, value size, headers start, headers, bytes of their keys,
    bytes of their values).
    """
    key_size, key_start = read_size(data, position, end)
    if key_start < 0:
        return -BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    if want < WANT_VALUE:
        return 0, key_start, key_size, 0, 0, 0, 0, 0, 0
    value_size, value_start = read_size(data, key_start + max(key_size, 0), end)
    if value_start < 0:
        return -BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    if want < WANT_HEADERS:
        return 0, key_start, key_size, value_start, value_size, 0, 0, 0, 0
    start = value_start + max(value_size, 0)
    position, count, key_bytes, value_bytes = _walk_headers(data, start, end)
    if position != end:
        return -BAD_HEADERS if position < 0 else -BAD_SIZE, 0, 0, 0, 0, 0, 0, 0, 0
    return 0, key_start, key_size, value_start, value_size, start, count, key_bytes, value_bytes


@helper
def _parse_batch(source, batch, selection, record, fixed, key, value, headers, totals):
    """Walk the records of one batch, beginning with number `record`; return the number after the last, or -(fault)."""
    position = batch[RECORDS_START]
    batch_end = batch[RECORDS_END]
    base_offset = batch[BASE_OFFSET]
    last_delta = batch[LAST_OFFSET_DELTA]
    append_time = batch[ATTRIBUTES] & _LOG_APPEND_TIME_BIT != 0
    want = selection.want
    previous_delta = -1
    for _ in range(batch[RECORD_COUNT]):
        end, position, timestamp_delta, offset_delta = read_head(source, position, batch_end)
        if position < 0:
            return position
        if offset_delta <= previous_delta or offset_delta > last_delta:
            return -BAD_OFFSET
        previous_delta = offset_delta
        fault, key_start, key_size, value_start, value_size, start, count, key_bytes, value_bytes = (
            read_fields(source, position, end, want) if want >= WANT_KEY else (0, 0, 0, 0, 0, 0, 0, 0, 0)
        )
        if fault < 0:
            return fault
        position = end
        offset = base_offset + offset_delta
        if offset < selection.offset_from or offset >= selection.offset_to:
            continue
        if record >= fixed.offsets.shape[0]:
            return -NO_ROOM
        fixed.offsets[record] = offset
        if want & WANT_TIMESTAMP:
            timestamp = batch[MAX_TIMESTAMP] if append_time else batch[BASE_TIMESTAMP] + timestamp_delta
            fixed.timestamps[record] = _scaled(timestamp, selection.units_per_ms)
        if want & WANT_KEY:
            totals[NULL_KEYS] += _set_value(key, record, key_start, key_size)
        if want & WANT_VALUE:
            totals[NULL_VALUES] += _set_value(value, record, value_start, value_size)
        if want & WANT_HEADERS:
            headers.starts[record] = start
            headers.offsets[record + 1] = headers.offsets[record] + count
            totals[HEADERS] += count
            totals[HEADER_KEY_BYTES] += key_bytes
            totals[HEADER_VALUE_BYTES] += value_bytes
        record += 1
    return record if position == batch_end else -BAD_COUNT


@helper
def _count_batch(batch, selection, record, fixed):
    """As _parse_batch, for a batch with one record at each offset, all with its append time."""
    first = max(batch[BASE_OFFSET], selection.offset_from)
    end = min(batch[BASE_OFFSET] + batch[RECORD_COUNT], selection.offset_to)
    if end - first > fixed.offsets.shape[0] - record:
        return -NO_ROOM
    timestamp = _scaled(batch[MAX_TIMESTAMP], selection.units_per_ms)
    for offset in range(first, end):
        fixed.offsets[record] = offset
        if selection.want & WANT_TIMESTAMP:
            fixed.timestamps[record] = timestamp
        record += 1
    return record


@kernel
def parse_batches(data, decompressed, table, selection, fixed, variable, row_ends, totals):
    """Walk the records of the table's batches; fill the selected columns of `fixed` and `variable`.

    Returns (records, row): a negative number is -(fault) of the batch in that row. Records outside the selection's
    offsets are checked and left out. `row_ends[i]` becomes the number of records up to and including row i.
    """
    key, value, headers = variable
    record = 0
    for row in range(table.shape[0]):
        before = record
        action = table[row, ACTION]
        if action == COUNT:
            record = _count_batch(table[row], selection, record, fixed)
        elif action != SKIP:
            source = decompressed if action == READ_DECOMPRESSED else data
            record = _parse_batch(source, table[row], selection, record, fixed, key, value, headers, totals)
        if record < 0:
            return record, row
        row_ends[row] = record
        if selection.want & WANT_TIMESTAMP_TYPE:
            fixed.timestamp_types[before:record] = 1 if table[row, ATTRIBUTES] & _LOG_APPEND_TIME_BIT else 0
    return record, table.shape[0]


@kernel
def copy_column(data, decompressed, table, row_ends, column, output):
    """Copy the values of a column that parse_batches has located to `output`; return whether they fit."""
    record = 0
    for row in range(table.shape[0]):
        source = decompressed if table[row, ACTION] == READ_DECOMPRESSED else data
        for i in range(record, row_ends[row]):
            start = column.offsets[i]
            size = column.offsets[i + 1] - start
            if size > source.shape[0] - column.starts[i] or size > output.shape[0] - start:
                return False
            copy_bytes(output, start, source, column.starts[i], size)
        record = row_ends[row]
    return True


@kernel
def copy_header_columns(data, decompressed, table, row_ends, column, key, keys, value, values):
    """Write the header columns whose sizes parse_batches added up.

    Offsets and validity go to the columns `key` and `value`, bytes to `keys` and `values`. Returns the number of null
    values, or -1 if the headers do not match the totals.
    """
    record = 0
    header = 0
    nulls = 0
    for row in range(table.shape[0]):
        source = decompressed if table[row, ACTION] == READ_DECOMPRESSED else data
        end = source.shape[0]
        for i in range(record, row_ends[row]):
            count, position = read_varint(source, column.starts[i], end)
            if position < 0 or header + count != column.offsets[i + 1] or header + count >= key.offsets.shape[0]:
                return -1
            for _ in range(count):
                size, position = read_size(source, position, end)
                start = key.offsets[header]
                if position < 0 or size < 0 or size > keys.shape[0] - start:
                    return -1
                copy_bytes(keys, start, source, position, size)
                key.offsets[header + 1] = start + size
                size, position = read_size(source, position + size, end)
                start = value.offsets[header]
                if position < 0 or size > values.shape[0] - start:
                    return -1
                nulls += _set_value(value, header, position, size)
                copy_bytes(values, start, source, position, max(size, 0))
                position += max(size, 0)
                header += 1
        record = row_ends[row]
    return nulls
