"""Decodes Avro bodies to the buffers of Arrow columns, in one compiled loop for all schemas.

Avro has no lengths of fields, so a body can only be read by its schema. A schema is compiled to a *program*
(`resolution`): rows of eight numbers, an operation and its operands. The loop interprets the program of each row's
schema. All programs of a decoder write to the same columns, so rows of different schemas may stand side by side.

The loop runs twice, so that every buffer has its exact size before it is filled:

    measure     walks the bodies, checks them, and adds up items and bytes of each column; marks the malformed rows
    fill        walks the good bodies again and writes; a malformed row becomes null

Both passes are the same loop, the first with `fill` = 0. The rules of `records.kernels` apply: neither pass trusts
anything that it reads from the data. The bytes of a body bound its cost: texts and items take at least one byte each,
except items of no bytes (nulls, empty records), of which a row may have ZERO_ITEMS. All columns of a pass together stay
within `left_bytes`; the pass stops before the row that exceeds them.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparklog.records.decode_kernels import read_varlong
from sparklog.records.kernels import MAX_LONG, byte_at, double_at, float_at, helper, item_at, kernel, store_at
from sparklog.schemas.column_kernels import (
    BAD_BOOLEAN,
    BAD_BRANCH,
    BAD_DECIMAL,
    BAD_SIZE,
    BAD_SYMBOL,
    BAD_VARINT,
    CUT_OFF,
    NOT_UTF8,
    OUT_OF_RANGE,
    TOO_LARGE,
    TOO_LONG,
    TOO_MANY_ITEMS,
    append,
    is_utf8,
    set_bit,
)

ZERO_ITEMS = 1024
"""Items of a row that need not have bytes."""

# The operations, with their operands after `column` and `domain`. Skipped items have the column -1.
# First those that read one value.
VARINT = 0  # limits: 32 or 64 bits; how to store it; factor; the largest number that it may multiply
BYTES = 1  # 1: must be UTF-8; 1: all bytes that are left, without a length before them
DOUBLE = 2
FLOAT = 3  # unused; how to store it
BOOLEAN = 4
FIXED = 5  # size
ENUM = 6  # first entry and number of entries in the table: places in the constants (start, size), start -1: none
DECIMAL = 7  # size, or BY_LENGTH or ALL_LEFT; entry in the table: the first number that is too large (high, low)
SKIP_VARINT = 8
SKIP_BYTES = 9
SKIP_FIXED = 10  # size
FIRST_CONTROL = 11
UNION = 11  # first entry and number of entries in the table: where each branch continues
OPTIONAL = 12  # the branch of null; where null continues. Another value sets the column valid and continues
SET_VALID = 13  # the column is not null
SET_NULL = 14  # the column has offsets, and is null here: domain of its items, or -1
ITEMS = 15  # domain of the items, nesting level, where to continue at the end, bytes of an item in fixed-width columns
NEXT = 16  # domain of the items, nesting level, the ITEMS operation
ENTER = 17  # read on in the constants: start, end
LEAVE = 18
JUMP = 19  # target
END = 20  # the row is complete
FAIL = 21  # the fault

# Sizes of decimals that the program does not know.
BY_LENGTH, ALL_LEFT = -1, -2

# Columns of a program.
OP, COLUMN, DOMAIN, A, B, C, D = range(7)
WIDTH = 8

# How to store a number.
AS_INT32, AS_INT64, AS_FLOAT32, AS_FLOAT64 = range(4)


class AvroRows(NamedTuple):
    """The bodies: the begin and end of each in the data, and where its program begins. The null program begins at 0."""

    starts: Any  # int64[rows]
    ends: Any  # int64[rows]
    entries: Any  # int64[rows]


class AvroCode(NamedTuple):
    """The programs of a decoder. All read-only."""

    program: Any  # int64[operations * WIDTH]
    table: Any  # int64: targets of unions, places of symbols, limits of decimals
    constants: Any  # uint8: default values, as Avro, and symbols


@helper
def _read_long(data, position, end):
    """Return a zigzag varint of 64 bits, the position after it, and the fault or 0."""
    if position < end and byte_at(data, position) < 128:  # most are
        byte = byte_at(data, position)
        return (byte >> 1) ^ -(byte & 1), position + 1, 0
    number, after = read_varlong(data, position, end)
    if after < 0:
        return 0, position, CUT_OFF if end - position < 10 else BAD_VARINT
    return number, after, 0


@helper
def _store_number(target, start, index, number, how):
    if how == AS_INT64:
        store_at(target, start + 8 * index, number)
    elif how == AS_INT32:
        store_at(target, start + 4 * index, np.int32(number))
    elif how == AS_FLOAT64:
        store_at(target, start + 8 * index, np.float64(number))
    else:
        store_at(target, start + 4 * index, np.float32(number))


@helper
def _wide_number(data, position, size):
    """Return a big-endian number of any size as high and low 64 bits, and whether it fits 128 bits."""
    sign = -1 if size > 0 and byte_at(data, position) > 127 else 0
    high = np.int64(sign)
    low = np.uint64(sign)
    for i in range(size):
        byte = byte_at(data, position + i)
        if i < size - 16:
            if byte != sign & 255:
                return 0, np.uint64(0), False
            continue
        high = (high << 8) | np.int64(low >> np.uint64(56))
        low = (low << np.uint64(8)) | np.uint64(byte)
    fits = size <= 16 or (high < 0) == (sign < 0)
    return high, low, fits


@helper
def _is_below(high, low, limit_high, limit_low):
    """Return whether the magnitude of a 128-bit number is below the limit."""
    if high < 0:
        low = ~low + np.uint64(1)
        high = ~high + (1 if low == 0 and high > -MAX_LONG else 0)  # of the smallest number: still above all limits
    return high < limit_high or (high == limit_high and low < np.uint64(limit_low))


@helper
def _read_size(data, position, end):
    """As _read_long, for a length. There is a fault if the counted bytes do not lie before the end."""
    size, position, fault = _read_long(data, position, end)
    if fault == 0 and (size < 0 or size > end - position):
        fault = BAD_SIZE
    return size, position, fault


@helper
def _read_number(program, at, data, position, end, start, index, target, fill):
    """VARINT. Return the position after it and the fault; so do the helpers that follow."""
    number, position, fault = _read_long(data, position, end)
    if fault:
        return position, fault
    if item_at(program, at + A) == 32 and (number < -(2**31) or number >= 2**31):
        return position, OUT_OF_RANGE
    factor = item_at(program, at + C)
    if factor != 1:
        if number > item_at(program, at + D) or number < -item_at(program, at + D):
            return position, OUT_OF_RANGE
        number *= factor
    if fill:
        _store_number(target, start, index, number, item_at(program, at + B))
    return position, 0


@helper
def _read_float(program, at, data, position, end, start, index, target, fill):
    if end - position < 4:
        return position, CUT_OFF
    if fill and item_at(program, at + B) == AS_FLOAT64:
        store_at(target, start + 8 * index, np.float64(float_at(data, position)))
    elif fill:
        store_at(target, start + 4 * index, float_at(data, position))
    return position + 4, 0


@helper
def _read_double(data, position, end, start, index, target, fill):
    if end - position < 8:
        return position, CUT_OFF
    if fill:
        store_at(target, start + 8 * index, double_at(data, position))
    return position + 8, 0


@helper
def _read_boolean(data, position, end, start, index, target, fill):
    if position >= end:
        return position, CUT_OFF
    byte = byte_at(data, position)
    if byte > 1:
        return position, BAD_BOOLEAN
    if fill and byte:
        set_bit(target, start, index)
    return position + 1, 0


@helper
def _read_decimal(program, at, table, data, position, end, start, index, target, fill):
    size = item_at(program, at + A)
    if size == ALL_LEFT:
        size = end - position
    elif size == BY_LENGTH:
        size, position, fault = _read_size(data, position, end)
        if fault:
            return position, fault
    elif size > end - position:
        return position, CUT_OFF
    high, low, fits = _wide_number(data, position, size)
    limit = item_at(program, at + B)
    if not fits or not _is_below(high, low, item_at(table, limit), item_at(table, limit + 1)):
        return position, BAD_DECIMAL
    if fill:
        store_at(target, start + 16 * index, low)
        store_at(target, start + 16 * index + 8, high)
    return position + size, 0


@helper
def _read_bytes(program, at, data, position, end, column, index, buffers, target, fill):
    size, fault = end - position, 0
    if not item_at(program, at + B):
        size, position, fault = _read_size(data, position, end)
    if fault == 0:
        fault = append(data, position, size, column, index, buffers, target, fill)
    if fault == 0 and not fill and item_at(program, at + A) and not is_utf8(data, position, position + size):
        fault = NOT_UTF8
    return position + size, fault


@helper
def _read_fixed(program, at, data, position, end, column, index, buffers, target, fill):
    size = item_at(program, at + A)
    if size > end - position:
        return position, CUT_OFF
    return position + size, append(data, position, size, column, index, buffers, target, fill)


@helper
def _read_symbol(program, at, code, data, position, end, column, index, buffers, target, fill):
    symbol, position, fault = _read_long(data, position, end)
    if fault:
        return position, fault
    if symbol < 0 or symbol >= item_at(program, at + B):
        return position, BAD_SYMBOL
    entry = item_at(program, at + A) + 2 * symbol
    place = item_at(code.table, entry)
    if place < 0:
        return position, BAD_SYMBOL
    size = item_at(code.table, entry + 1)
    return position, append(code.constants, place, size, column, index, buffers, target, fill)


@helper
def _skip(op, program, at, data, position, end):
    if op == SKIP_VARINT:
        _number, position, fault = _read_long(data, position, end)
        return position, fault
    if op == SKIP_BYTES:
        size, position, fault = _read_size(data, position, end)
        return position + size, fault
    size = item_at(program, at + A)
    return position + size, CUT_OFF if size > end - position else 0


@helper
def _read_value(op, at, code, data, position, end, index, buffers, target, fill):  # noqa: PLR0911 - the dispatch
    """Do an operation that reads one value without parts."""
    program = code.program
    column = item_at(program, at + COLUMN)
    if op >= SKIP_VARINT:
        return _skip(op, program, at, data, position, end)
    start = item_at(buffers.values, column)
    if op == VARINT:
        return _read_number(program, at, data, position, end, start, index, target, fill)
    if op == BYTES:
        return _read_bytes(program, at, data, position, end, column, index, buffers, target, fill)
    if op == DOUBLE:
        return _read_double(data, position, end, start, index, target, fill)
    if op == FLOAT:
        return _read_float(program, at, data, position, end, start, index, target, fill)
    if op == BOOLEAN:
        return _read_boolean(data, position, end, start, index, target, fill)
    if op == FIXED:
        return _read_fixed(program, at, data, position, end, column, index, buffers, target, fill)
    if op == ENUM:
        return _read_symbol(program, at, code, data, position, end, column, index, buffers, target, fill)
    return _read_decimal(program, at, code.table, data, position, end, start, index, target, fill)


@helper
def _read_branch(op, at, program, table, data, position, end, index, buffers, target, fill):
    """UNION and OPTIONAL. Return the position after the branch, the fault, and the operation to continue with."""
    branch, position, fault = _read_long(data, position, end)
    following = at // WIDTH + 1
    if fault:
        return position, fault, following
    if op == UNION:
        if branch < 0 or branch >= item_at(program, at + B):
            return position, BAD_BRANCH, following
        return position, 0, item_at(table, item_at(program, at + A) + branch)
    if branch == item_at(program, at + A):
        return position, 0, item_at(program, at + B)
    if branch != 1 - item_at(program, at + A):
        return position, BAD_BRANCH, following
    if fill:
        set_bit(target, item_at(buffers.validity, item_at(program, at + COLUMN)), index)
    return position, 0, following


@helper
def _read_block(data, position, end):
    """Return the number of items in a block of a list, the position after it, and the fault."""
    count, position, fault = _read_long(data, position, end)
    if fault or count >= 0:
        return count, position, fault
    _size, position, fault = _read_size(data, position, end)
    if fault == 0 and count < -MAX_LONG:
        fault = TOO_MANY_ITEMS
    return -count, position, fault


@helper
def _begin_block(program, at, count, index, buffers, target, fill):
    """Note the items of a block, or the end of the list; return the fault and the operation to continue with."""
    column = item_at(program, at + COLUMN)
    items = item_at(program, at + A)
    if count == 0:
        if fill and column >= 0:
            filled = item_at(buffers.counts, items)
            store_at(target, item_at(buffers.values, column) + 4 * index + 4, np.int32(filled))
        return 0, item_at(program, at + C)
    if column >= 0:
        needed = count * item_at(program, at + D)
        room = item_at(buffers.most_counts, items) - item_at(buffers.counts, items)
        if count > room or needed > buffers.left_bytes[0]:
            return TOO_LARGE, 0
        if not fill:
            buffers.left_bytes[0] -= needed
    buffers.left_items[item_at(program, at + B)] = count
    return 0, at // WIDTH + 1


@helper
def _end_item(program, at, buffers):
    """NEXT. Return the operation to continue with: the next item, or the next block."""
    level = item_at(program, at + B)
    if item_at(program, at + COLUMN) >= 0:
        buffers.counts[item_at(program, at + A)] += 1
    left = item_at(buffers.left_items, level) - 1
    buffers.left_items[level] = left
    return item_at(program, at + C) + (1 if left else 0)


@helper
def _set_null(program, at, index, buffers, target):
    column = item_at(program, at + COLUMN)
    items = item_at(program, at + A)
    size = item_at(buffers.counts, items) if items >= 0 else item_at(buffers.sizes, column)
    store_at(target, item_at(buffers.values, column) + 4 * index + 4, np.int32(size))


@helper
def _read_body(code, data, position, end, entry, buffers, target, fill):  # noqa: PLR0912 - the interpreter's loop
    """Walk one body; return its fault."""
    program = code.program
    pc = entry
    source = data
    in_constants = False
    end_of_body = end
    after_constants = position
    budget = end - position + ZERO_ITEMS
    fault = 0
    while fault == 0:
        at = pc * WIDTH
        op = item_at(program, at)
        index = item_at(buffers.counts, item_at(program, at + DOMAIN))
        pc += 1
        if op < FIRST_CONTROL:
            position, fault = _read_value(op, at, code, source, position, end, index, buffers, target, fill)
        elif op <= OPTIONAL:
            position, fault, pc = _read_branch(
                op, at, program, code.table, source, position, end, index, buffers, target, fill
            )
        elif op == SET_VALID:
            if fill:
                set_bit(target, item_at(buffers.validity, item_at(program, at + COLUMN)), index)
        elif op == SET_NULL:
            if fill:
                _set_null(program, at, index, buffers, target)
        elif op == JUMP:
            pc = item_at(program, at + A)
        elif op == ITEMS:
            count, position, fault = _read_block(source, position, end)
            if not in_constants:
                budget -= count
                if fault == 0 and budget < 0:
                    fault = TOO_MANY_ITEMS
            if fault == 0:
                fault, pc = _begin_block(program, at, count, index, buffers, target, fill)
        elif op == NEXT:
            pc = _end_item(program, at, buffers)
        elif op == ENTER:
            source, in_constants, after_constants = code.constants, True, position
            position, end = item_at(program, at + A), item_at(program, at + B)
        elif op == LEAVE:
            source, in_constants, position, end = data, False, after_constants, end_of_body
        elif op == END:
            return TOO_LONG if position != end else 0
        else:
            fault = item_at(program, at + A)
    return fault


@kernel
def decode_avro(data, code, rows, first, faults, buffers, target, fill):
    """Walk the rows from `first` on; return the row after the last, or -1 if the second pass meets other bytes.

    faults: uint8 of each row; rows that have one before are null
    """
    starts, ends, entries = rows
    for row in range(first, starts.shape[0]):
        entry = 0 if faults[row] else entries[row]
        start = starts[row]
        end = ends[row] if entry else start
        fault = _read_body(code, data, start, end, entry, buffers, target, fill)
        if fault:
            if fill:
                return -1
            if fault == TOO_LARGE and row > first:
                return row
            faults[row] = fault
        buffers.counts[0] += 1
    return starts.shape[0]
