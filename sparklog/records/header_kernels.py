"""Reads the headers of many batches of any format into a table, for scans of a whole segment.

    position  size  v2                    v0, v1
    0         8     base offset           offset
    8         4     batch length          message size
    12        4     leader epoch          CRC-32 of what follows
    16        1     magic: 2              magic: 0 or 1
    17              CRC-32C, attributes, last offset delta, base and max timestamp, producer id … (records/batch.py)

The header is checked: a known magic, a length of at least the header's, no negative offset or count, and no more
records than offsets. The rules of `kernels` apply: no number from the data is trusted.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from sparklog.records.decode_kernels import WANT_KEY, read_fields, read_head
from sparklog.records.kernels import byte_at, helper, kernel

# The table: one row for each batch, columns of int64.
POSITION = 0  # its start in the data
SIZE = 1
BASE_OFFSET = 2  # for v0 and v1 the same as the last offset
LAST_OFFSET = 3
MAX_TIMESTAMP = 4  # -1 for v0
LEADER_EPOCH = 5  # -1 for v0 and v1
MAGIC = 6
CRC = 7
ATTRIBUTES = 8
PRODUCER_ID = 9
RECORD_COUNT = 10  # -1 for v0 and v1
COLUMNS = 11

# Why a scan stopped.
CUT_OFF, TABLE_FULL, NO_BATCH = range(3)

# Types of a control batch's record (records/markers.py).
NO_MARKER, ABORT, COMMIT = -1, 0, 1

_MAGIC_AT = 16
_SIZE_V2, _SIZE_V1, _SIZE_V0 = 61, 34, 26


@helper
def _big_endian(data, position, size):
    """Return the signed integer in `size` bytes."""
    value = 0
    for i in range(size):
        value = (value << 8) | byte_at(data, position + i)
    shift = 64 - 8 * size
    return (value << shift) >> shift


@kernel
def scan_headers(data, position, table):
    """Fill the table with the whole batches from `position` on; return (rows, where the scan stopped, why).

    The row after the last describes a batch that is cut off by the end of the data: complete if its header is whole,
    with SIZE alone if at least 17 bytes of it are there.
    """
    rows = 0
    while rows < table.shape[0]:
        left = data.shape[0] - position
        if left < _MAGIC_AT + 1:
            return rows, position, CUT_OFF
        magic = byte_at(data, position + _MAGIC_AT)
        offset = _big_endian(data, position, 8)
        size = 12 + _big_endian(data, position + 8, 4)
        least = _SIZE_V2 if magic == 2 else _SIZE_V1 if magic == 1 else _SIZE_V0
        if magic > 2 or size < least or offset < 0:
            return rows, position, NO_BATCH
        row = table[rows]
        row[SIZE] = size
        if left < least:
            return rows, position, CUT_OFF
        row[POSITION] = position
        row[BASE_OFFSET] = offset
        row[MAGIC] = magic
        if magic == 2:
            delta = _big_endian(data, position + 23, 4)
            count = _big_endian(data, position + 57, 4)
            if delta < 0 or count < 0 or count > delta + 1:
                return rows, position, NO_BATCH
            row[LAST_OFFSET] = offset + delta
            row[MAX_TIMESTAMP] = _big_endian(data, position + 35, 8)
            row[LEADER_EPOCH] = _big_endian(data, position + 12, 4)
            row[CRC] = _big_endian(data, position + 17, 4) & 0xFFFFFFFF
            row[ATTRIBUTES] = _big_endian(data, position + 21, 2)
            row[PRODUCER_ID] = _big_endian(data, position + 43, 8)
            row[RECORD_COUNT] = count
        else:
            row[LAST_OFFSET] = offset
            row[MAX_TIMESTAMP] = _big_endian(data, position + 18, 8) if magic == 1 else -1
            row[LEADER_EPOCH] = -1
            row[CRC] = _big_endian(data, position + 12, 4) & 0xFFFFFFFF
            row[ATTRIBUTES] = byte_at(data, position + 17)
            row[PRODUCER_ID] = -1
            row[RECORD_COUNT] = -1
        if size > left:
            return rows, position, CUT_OFF
        rows += 1
        position += size
    return rows, position, TABLE_FULL


@kernel
def read_marker_types(data, table, types):
    """Set the type of each control batch of format v2: ABORT or COMMIT, or NO_MARKER where it has no such record."""
    for row in range(table.shape[0]):
        types[row] = NO_MARKER
        if table[row, RECORD_COUNT] != 1 or table[row, LAST_OFFSET] != table[row, BASE_OFFSET]:
            continue
        start = table[row, POSITION] + _SIZE_V2
        end, at, _timestamp_delta, _offset_delta = read_head(data, start, table[row, POSITION] + table[row, SIZE])
        if at < 0:
            continue
        fault, key, key_size, _2, _3, _4, _5, _6, _7 = read_fields(data, at, end, WANT_KEY)
        if fault == 0 and key_size >= 4:
            kind = _big_endian(data, key + 2, 2)
            if kind in (ABORT, COMMIT):
                types[row] = kind
