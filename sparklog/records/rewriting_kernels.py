"""Rewrites record batches with fewer records, in compiled loops; `decode_kernels` shows the bytes of a record.

    survey           walks the records of batches, checks them, and collects what `rewriting` decides on
    write_batches    writes the batches that change: header, and the records that stay

Kept records are copied unchanged, in runs as long as possible: their offsets are relative to the base offset, which
does not change. Length and timestamp delta of a record are rewritten only if the timestamp delta changes.

The rules of `kernels` apply: no number from the data is trusted, even when write_batches reads it again.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from sparklog.records.decode_kernels import (
    ACTION,
    ATTRIBUTES,
    BAD_COUNT,
    BAD_OFFSET,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    NO_ROOM,
    READ,
    READ_DECOMPRESSED,
    RECORD_COUNT,
    RECORDS_END,
    RECORDS_START,
    START,
    WANT_HEADERS,
    read_fields,
    read_head,
    read_varint,
    read_varlong,
)
from sparklog.records.encode_kernels import varint_size, write_varint
from sparklog.records.kernels import copy_bytes, helper, kernel

# The table of findings and decisions: one row for each batch, columns of int64.
FROM = 0  # its first place in the kept offsets
KEPT = 1  # records that stay
FIRST_TIMESTAMP = 2  # of the first record that stays, or -1
GREATEST_TIMESTAMP = 3  # of the records that stay, or -1
TOMBSTONES = 4  # among the records that stay
NEW_ATTRIBUTES = 5
NEW_BASE_TIMESTAMP = 6
NEW_MAX_TIMESTAMP = 7
NEW_START = 8  # range of the written batch in the output
NEW_END = 9
END = 10  # where the batch ends in the data
FOUND_COLUMNS = 11

GROWTH = 14  # bytes by which a record may grow: a timestamp delta of 10 bytes for one of 1, a length of 5 for one of 1

_HEADER_SIZE = 61
_LOG_APPEND_TIME_BIT = 8
_DELETE_HORIZON_BIT = 64
ROOM_FOR_NUMBERS = 16  # length, attributes and timestamp delta


@helper
def _is_kept(kept, at, offset):
    """Return whether `offset` is in `kept` from place `at` on, and the place of the first one not below it."""
    while at < kept.shape[0] and kept[at] < offset:
        at += 1
    return at < kept.shape[0] and kept[at] == offset, at


@helper
def _timestamp(batch, delta):
    return batch[MAX_TIMESTAMP] if batch[ATTRIBUTES] & _LOG_APPEND_TIME_BIT else batch[BASE_TIMESTAMP] + delta


@helper
def _survey_batch(source, batch, kept, expired_ms, found):
    """Walk the records of one batch and record in `found` what stays; return 0 or -(fault)."""
    position = batch[RECORDS_START]
    batch_end = batch[RECORDS_END]
    expired = batch[ATTRIBUTES] & _DELETE_HORIZON_BIT != 0 and batch[BASE_TIMESTAMP] <= expired_ms
    at = found[FROM]
    previous_delta = -1
    for _ in range(batch[RECORD_COUNT]):
        end, position, timestamp_delta, offset_delta = read_head(source, position, batch_end)
        if position < 0:
            return position
        if offset_delta <= previous_delta or offset_delta > batch[LAST_OFFSET_DELTA]:
            return -BAD_OFFSET
        previous_delta = offset_delta
        fault, _1, _2, _3, value_size, _4, _5, _6, _7 = read_fields(source, position, end, WANT_HEADERS)
        if fault < 0:
            return fault
        position = end
        stays, at = _is_kept(kept, at, batch[BASE_OFFSET] + offset_delta)
        if not stays or (expired and value_size < 0):
            continue
        timestamp = _timestamp(batch, timestamp_delta)
        if found[KEPT] == 0:
            found[FIRST_TIMESTAMP] = timestamp
        found[KEPT] += 1
        found[GREATEST_TIMESTAMP] = max(found[GREATEST_TIMESTAMP], timestamp)
        found[TOMBSTONES] += 1 if value_size < 0 else 0
    return 0 if position == batch_end else -BAD_COUNT


@kernel
def survey(data, decompressed, table, kept, expired_ms, found):
    """Fill KEPT to TOMBSTONES for batches that must be read; return (0, 0), or (-(fault), row)."""
    for row in range(table.shape[0]):
        found[row, KEPT] = 0
        found[row, FIRST_TIMESTAMP] = -1
        found[row, GREATEST_TIMESTAMP] = -1
        found[row, TOMBSTONES] = 0
        action = table[row, ACTION]
        if action in (READ, READ_DECOMPRESSED):
            source = decompressed if action == READ_DECOMPRESSED else data
            fault = _survey_batch(source, table[row], kept, expired_ms, found[row])
            if fault < 0:
                return fault, row
    return 0, 0


@helper
def _put_big_endian(output, position, value, size):
    for i in range(size):
        output[position + i] = (value >> (8 * (size - 1 - i))) & 0xFF


@helper
def _write_header(data, batch, found, size, output, position):
    """Write the batch's header with the changed fields, and a CRC of 0."""
    copy_bytes(output, position, data, batch[START], _HEADER_SIZE)
    _put_big_endian(output, position + 8, size - 12, 4)
    _put_big_endian(output, position + 17, 0, 4)
    _put_big_endian(output, position + 21, found[NEW_ATTRIBUTES], 2)
    _put_big_endian(output, position + 27, found[NEW_BASE_TIMESTAMP], 8)
    _put_big_endian(output, position + 35, found[NEW_MAX_TIMESTAMP], 8)
    _put_big_endian(output, position + 57, found[KEPT], 4)


@helper
def _write_record(source, start, end, delta, output, position):
    """Write the record in [start, end) with a new timestamp delta; return the position after it, or -1."""
    _, at = read_varint(source, start, end)
    _, rest = read_varlong(source, at + 1, end)
    if at < 0 or rest < 0 or end - rest > output.shape[0] - position - ROOM_FOR_NUMBERS:
        return -1
    position = write_varint(output, position, 1 + varint_size(delta) + end - rest)
    output[position] = source[at]
    position = write_varint(output, position + 1, delta)
    copy_bytes(output, position, source, rest, end - rest)
    return position + end - rest


@helper
def _copy_run(source, start, end, output, position):
    """Copy [start, end); return the position after it, or -1 if there is no room."""
    if end - start > output.shape[0] - position:
        return -1
    copy_bytes(output, position, source, start, end - start)
    return position + end - start


@helper
def _write_records(source, batch, kept, expired_ms, found, output, position):
    """Write the records that stay; return the position after them, or -(fault)."""
    at = found[FROM]
    expired = batch[ATTRIBUTES] & _DELETE_HORIZON_BIT != 0 and batch[BASE_TIMESTAMP] <= expired_ms
    start = batch[RECORDS_START]
    run = start  # records from here to `start` stay unchanged, and are not copied yet
    for _ in range(batch[RECORD_COUNT]):
        end, fields, timestamp_delta, offset_delta = read_head(source, start, batch[RECORDS_END])
        if fields < 0:
            return -NO_ROOM
        stays, at = _is_kept(kept, at, batch[BASE_OFFSET] + offset_delta)
        if stays and expired:
            fault, _1, _2, _3, value_size, _4, _5, _6, _7 = read_fields(source, fields, end, WANT_HEADERS)
            stays = fault == 0 and value_size >= 0
        delta = _timestamp(batch, timestamp_delta) - found[NEW_BASE_TIMESTAMP]
        if not stays or delta != timestamp_delta:
            position = _copy_run(source, run, start, output, position)
            if position >= 0 and stays:
                position = _write_record(source, start, end, delta, output, position)
            if position < 0:
                return -NO_ROOM
            run = end
        start = end
    position = _copy_run(source, run, start, output, position)
    return position if position >= 0 else -NO_ROOM


@kernel
def write_batches(data, decompressed, table, rows, kept, expired_ms, found, output):
    """Write the batches of the table's `rows`, one after the other; a batch without a kept record is a header alone.

    NEW_START and NEW_END are set to each one's range. Returns whether there was room; it lacks only if the data has
    changed since the survey.
    """
    position = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        start = position
        if output.shape[0] - start < _HEADER_SIZE:
            return False
        position += _HEADER_SIZE
        if found[row, KEPT]:
            source = decompressed if table[row, ACTION] == READ_DECOMPRESSED else data
            position = _write_records(source, table[row], kept, expired_ms, found[row], output, position)
            if position < 0:
                return False
        _write_header(data, table[row], found[row], position - start, output, start)
        found[row, NEW_START] = start
        found[row, NEW_END] = position
    return True
