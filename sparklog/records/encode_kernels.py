"""Encodes Arrow's buffers as record batches, in compiled loops; `decode_kernels` shows the bytes of a record.

    measure_batches  finds the records that fit in each batch, their sizes, and the batch's greatest timestamp
    write_batches    writes those records

The rules of `kernels` apply. `encoding` has checked the sizes of values against their data, but a foreign array can
change meanwhile, so every copy is checked again.
"""

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: PLR0911  (in a kernel, faults are return values)
from __future__ import annotations

from typing import Any, NamedTuple

from numba import int64

from sparklog.records.kernels import MAX_INT, MAX_LONG, copy_bytes, helper, kernel

# Faults in the records to write.
OFFSETS_NOT_INCREASING, NULL_HEADER_KEY, TOO_LARGE = 1, 2, 3
FAULTS = {
    OFFSETS_NOT_INCREASING: "its offset is not greater than the one before",
    NULL_HEADER_KEY: "a header has no key",
    TOO_LARGE: "its batch would have more than 2^31 - 1 bytes",
}

_ROOM_FOR_NUMBERS = 40  # more than a record's varints and attributes take: 5 + 1 + 10 + 5 + 5 + 5 + 5
_ROOM_FOR_HEADER_NUMBERS = 10
ROOM = _ROOM_FOR_NUMBERS + _ROOM_FOR_HEADER_NUMBERS  # bytes by which the output must exceed the records


class RecordColumns(NamedTuple):
    """The columns of the records to write."""

    offsets: Any  # int64[rows]; empty: consecutive
    timestamps: Any  # int64[rows], ms
    key: Any  # StringColumn
    value: Any  # StringColumn
    header_starts: Any  # int32[rows], read-only: first of each record's headers in the two header columns
    header_counts: Any  # int32[rows]
    header_key: Any  # StringColumn
    header_value: Any  # StringColumn


@helper
def varint_size(value):
    """Return the size in bytes of the zigzag varint of `value`."""
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest & ~127 != 0:
        rest = (rest >> 7) & (MAX_LONG >> 6)
        size += 1
    return size


@helper
def write_varint(output, position, value):
    """Write a zigzag varint and return the position after it; no bounds check."""
    rest = (value << 1) ^ (value >> 63)
    while rest & ~127 != 0:
        output[position] = (rest & 127) | 128
        rest = (rest >> 7) & (MAX_LONG >> 6)
        position += 1
    output[position] = rest
    return position + 1


@helper
def _value_size(strings, row):
    """Return the size in bytes of a length and its value."""
    size = int64(strings.sizes[row])
    return varint_size(size) + max(size, 0)


@helper
def _write_value(output, position, strings, row):
    """Write a length and its value; return the position after them, or -1 if they do not fit or leave their data.

    The caller checks that the length itself fits.
    """
    size = int64(strings.sizes[row])
    position = write_varint(output, position, size)
    if size <= 0:
        return position
    start = int64(strings.starts[row])
    if start < 0 or size > strings.data.shape[0] - start or size > output.shape[0] - position:
        return -1
    copy_bytes(output, position, strings.data, start, size)
    return position + size


@helper
def _offset_delta(rows, first, row):
    return row - first if rows.offsets.shape[0] == 0 else rows.offsets[row] - rows.offsets[first]


@helper
def _body_size(rows, first, row):
    """Return the size of a record after its length field, if its batch begins at `first`; -1: a null header key."""
    count = int64(rows.header_counts[row])
    size = (
        1
        + varint_size(rows.timestamps[row] - rows.timestamps[first])
        + varint_size(_offset_delta(rows, first, row))
        + _value_size(rows.key, row)
        + _value_size(rows.value, row)
        + varint_size(count)
    )
    start = int64(rows.header_starts[row])
    for header in range(start, start + count):
        if rows.header_key.sizes[header] < 0:
            return -1
        size += _value_size(rows.header_key, header) + _value_size(rows.header_value, header)
    return size


@kernel
def measure_batches(rows, max_bytes, sizes, ends, totals, greatest):
    """Divide the rows into batches with at most `max_bytes` of records, or one larger record.

    Returns (batches, 0), or (-(fault), row). `sizes` gets the size of each record's body; for each batch, `ends` gets
    the row after its last, `totals` the bytes of its records, `greatest` its greatest timestamp. A batch also ends
    before an offset that is 2^31 or more after its first.
    """
    batch = 0
    first = 0
    total = 0
    for row in range(rows.timestamps.shape[0]):
        if row > 0 and rows.offsets.shape[0] != 0 and rows.offsets[row] <= rows.offsets[row - 1]:
            return -OFFSETS_NOT_INCREASING, row
        body = _body_size(rows, first, row)
        size = varint_size(body) + body
        if row > first and (total + size > max_bytes or _offset_delta(rows, first, row) > MAX_INT):
            batch += 1
            first = row
            total = 0
            body = _body_size(rows, first, row)
            size = varint_size(body) + body
        if body < 0:
            return -NULL_HEADER_KEY, row
        if total + size > MAX_INT - ROOM:
            return -TOO_LARGE, row
        sizes[row] = body
        total += size
        ends[batch] = row + 1
        totals[batch] = total
        greatest[batch] = rows.timestamps[row] if row == first else max(greatest[batch], rows.timestamps[row])
    return batch + 1 if rows.timestamps.shape[0] else 0, 0


@helper
def _write_record(rows, first, row, size, output, position):
    """Write one record, whose body takes `size` bytes; return the position after it, or -1 if there is no room."""
    if output.shape[0] - position < _ROOM_FOR_NUMBERS:
        return -1
    position = write_varint(output, position, size)
    output[position] = 0
    position = write_varint(output, position + 1, rows.timestamps[row] - rows.timestamps[first])
    position = write_varint(output, position, _offset_delta(rows, first, row))
    position = _write_value(output, position, rows.key, row)
    if position < 0 or output.shape[0] - position < _ROOM_FOR_NUMBERS:
        return -1
    position = _write_value(output, position, rows.value, row)
    if position < 0 or output.shape[0] - position < _ROOM_FOR_NUMBERS:
        return -1
    count = int64(rows.header_counts[row])
    position = write_varint(output, position, count)
    start = int64(rows.header_starts[row])
    for header in range(start, start + count):
        if output.shape[0] - position < _ROOM_FOR_HEADER_NUMBERS:
            return -1
        position = _write_value(output, position, rows.header_key, header)
        if position < 0 or output.shape[0] - position < _ROOM_FOR_HEADER_NUMBERS:
            return -1
        position = _write_value(output, position, rows.header_value, header)
        if position < 0:
            return -1
    return position


@kernel
def write_batches(rows, batches, sizes, ends, totals, output):
    """Write the records of the batches that measure_batches found, one after the other.

    `output` must have ROOM bytes more than they take. Returns False if the records differ from the measured sizes.
    """
    position = 0
    first = 0
    for batch in range(batches):
        batch_end = position + totals[batch]
        for row in range(first, ends[batch]):
            position = _write_record(rows, first, row, int64(sizes[row]), output, position)
            if position < 0 or position > batch_end:
                return False
        if position != batch_end:
            return False
        first = ends[batch]
    return True
