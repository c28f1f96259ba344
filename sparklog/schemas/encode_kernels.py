"""Encodes Arrow columns to Avro, Protobuf or JSON, a row at a time, in one compiled loop for all schemas.

The counterpart of `avro_kernels`: a schema is compiled to a *program*, rows of numbers that are an operation and its
operands, and the loop interprets it for each row. All buffers of the columns lie side by side in one block of memory.
Columns between two lists share an index, that of their *domain*: 0 is the row, each list has one for its items.

The loop runs twice, so that the bodies get one buffer of the exact size:

    measure     walks the rows, checks them, and notes where each body will end; stops at the first row that cannot be
                written, and notes the fault
    fill        walks the rows again and writes

Protobuf writes the size of a message before it. The first pass notes sizes in the order in which messages begin; the
second pass writes them.

A null row has neither a body nor the bytes that the program would write before one.

Columns come from this process, so their offsets are trusted, unlike the bytes that decoders read. Texts are checked
nevertheless: Spark makes a string of any bytes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparklog.records.kernels import byte_at, copy_bytes, float_at, helper, item_at, kernel, store_at, word_at
from sparklog.schemas.column_kernels import is_utf8

# The operations, with their operands after `column` and `domain`. First those that write one value.
LITERAL = 0  # bytes among the constants: start, end
VARINT = 1  # bytes of the number in its column; the divisor
SYMBOL = 2  # as VARINT, of 4 bytes: the number of an enum's symbol, or a negative one for a text that is none
COPY = 3  # bytes of the value
AS_DOUBLE = 4  # 1: from a float, 0: from an int
BOOLEAN = 5
TEXT = 6  # 1: must be UTF-8; 1: without a length before it; 1: the length is no zigzag number
FIXED = 7  # size
DECIMAL = 8  # size, or BY_LENGTH or ALL
ESCAPED = 9  # a text as JSON writes it, with quotes
FINITE = 10  # the text of a number that must not be infinite, nor NaN
MOMENT = 11  # the text of a date or a time, of four digits for the year; the space in it becomes a T
UNSIGNED = 12  # bytes of the number in its column; bytes of the varint's number: 4 or 8
ENUM = 13  # as UNSIGNED, of 8 bytes, or the smallest number for a text that is no symbol
WITHIN = 14  # bytes of an unsigned number, 4 or 8, in a column of twice as many; 1: as a varint, 0: as it is
TIME = 15  # a Timestamp (0) or Duration (1) with its size, of microseconds
FIRST_CONTROL = 16
SKIP_NULL = 16  # if it is null: a literal instead (start, end), and where to continue
NOT_NULL = 17
ITEMS = 18  # level, where to continue behind the last item, domain of the items; 1: write how many there are
NEXT = 19  # level, where the items begin, domain of the items
JUMP = 20  # target
FAIL = 21  # the fault
END = 22
SKIP_EMPTY = 23  # where to continue if a list is empty
BEGIN_SIZED = 24  # depth: what follows has its size before it
END_SIZED = 25  # depth
NO_MEMBER_YET = 26  # the MEMBERs that follow are of one oneof
MEMBER = 27  # at most one of them is not null
OPEN = 28  # a literal that opens an object or a list: start, end. No FIELD has come since
FIELD = 29  # a literal before a field or an item, behind a comma unless it is the first: start, end
CLOSE = 30  # a literal that closes an object or a list: start, end

# Sizes of decimals that the program does not know.
BY_LENGTH, ALL = -1, -2

# Columns of a program.
OP, COLUMN, DOMAIN, A, B, C, D = range(7)
WIDTH = 8

# Faults of a row; 0: none.
IS_NULL, NOT_UTF8, NO_SYMBOL, OTHER_SIZE, TOO_MANY_DIGITS, NOT_FINITE, NO_YEAR, NO_MEMBER = range(1, 9)
OUT_OF_RANGE, SECOND_MEMBER, TOO_LARGE = range(9, 12)
FAULTS = {
    IS_NULL: "it is null, and the schema has no null here",
    NOT_UTF8: "the text is not UTF-8",
    NO_SYMBOL: "the text is no symbol of the enum",
    OTHER_SIZE: "the schema has another number of bytes",
    TOO_MANY_DIGITS: "the decimal has more digits than the schema has bytes for",
    NOT_FINITE: "JSON has no number that is infinite or NaN",
    NO_YEAR: "the year is not one of 0000 to 9999",
    NO_MEMBER: "no member of the union has a value",
    OUT_OF_RANGE: "the number is out of the range of the schema's type",
    SECOND_MEMBER: "another member of the oneof has a value, too",
    TOO_LARGE: "a message has more than 2 GiB",
}


class EncodeCode(NamedTuple):
    """A program. Read-only."""

    program: Any  # int64[operations * WIDTH]
    constants: Any  # uint8: literals


class ColumnMemory(NamedTuple):
    """The buffers of all columns in one block. Read-only."""

    data: Any  # uint8, with 8 bytes more at the end
    validity: Any  # int64[columns]: the first validity bit; -1: no value is null
    values: Any  # int64[columns]: the first byte of numbers or offsets, the first bit of booleans
    texts: Any  # int64[columns]: the first byte of texts, where offset 0 points to


class EncodeState(NamedTuple):
    """The state of the loop."""

    places: Any  # int64[domains]: the index of the current row or item
    ends: Any  # int64[levels]: the index behind the last item of each list
    fault: Any  # int64[2]: the fault of the row at which the loop stopped, and the column
    sizes: Any  # int64[messages]: their sizes, in the order in which they begin
    cursor: Any  # int64[1]: how many messages have begun
    sized: Any  # int64[depths]: the numbers of the messages around the current place
    begins: Any  # int64[depths]: where they begin


@helper
def _is_null(memory, column, index):
    first = item_at(memory.validity, column)
    place = first + index
    return first >= 0 and (byte_at(memory.data, place >> 3) >> (place & 7)) & 1 == 0


@helper
def _whole_number(data, position, size):
    """Return the signed little-endian number of 1, 2, 4 or 8 bytes."""
    unused = 64 - 8 * size
    return (np.int64(word_at(data, position)) << unused) >> unused


@helper
def _range_of(memory, column, index):
    """Return the entries of the offsets that a text or list lies between."""
    position = item_at(memory.values, column) + 4 * index
    return _whole_number(memory.data, position, 4), _whole_number(memory.data, position + 4, 4)


@helper
def _put_byte(target, position, byte, fill):
    if fill:
        store_at(target, position, np.uint8(byte))
    return position + 1


@helper
def _put_long(target, position, number, fill):
    """Write a zigzag varint; return the position after it."""
    left = np.uint64((number << 1) ^ (number >> 63))
    while left > np.uint64(127):
        position = _put_byte(target, position, left & np.uint64(127) | np.uint64(128), fill)
        left >>= np.uint64(7)
    return _put_byte(target, position, left, fill)


@helper
def _put_unsigned(target, position, number, fill):
    """Write a varint that is no zigzag number; return the position after it."""
    left = np.uint64(number)
    while left > np.uint64(127):
        position = _put_byte(target, position, left & np.uint64(127) | np.uint64(128), fill)
        left >>= np.uint64(7)
    return _put_byte(target, position, left, fill)


@helper
def _put(target, position, data, start, end, fill):
    """Copy bytes; return the position after them."""
    if fill:
        copy_bytes(target, position, data, start, end - start)
    return position + end - start


@helper
def _put_literal(code, at, target, position, fill):
    start = item_at(code.program, at + A)
    return _put(target, position, code.constants, start, item_at(code.program, at + B), fill)


@helper
def _put_number(op, program, at, memory, column, index, target, position, fill):
    size = item_at(program, at + A) if op == VARINT else 4
    number = _whole_number(memory.data, item_at(memory.values, column) + size * index, size)
    if op == SYMBOL and number < 0:
        return position, NO_SYMBOL
    if op == VARINT and item_at(program, at + B) != 1:
        number //= item_at(program, at + B)
    return _put_long(target, position, number, fill), 0


@helper
def _put_double(program, at, memory, column, index, target, position, fill):
    if fill:
        place = item_at(memory.values, column) + 4 * index
        if item_at(program, at + A):
            store_at(target, position, np.float64(float_at(memory.data, place)))
        else:
            store_at(target, position, np.float64(_whole_number(memory.data, place, 4)))
    return position + 8, 0


@helper
def _put_text(program, at, memory, column, index, target, position, fill):
    start, end = _range_of(memory, column, index)
    first = item_at(memory.texts, column)
    if not fill and item_at(program, at + A) and not is_utf8(memory.data, first + start, first + end):
        return position, NOT_UTF8
    if item_at(program, at + C):
        position = _put_unsigned(target, position, end - start, fill)
    elif not item_at(program, at + B):
        position = _put_long(target, position, end - start, fill)
    return _put(target, position, memory.data, first + start, first + end, fill), 0


@helper
def _put_fixed(program, at, memory, column, index, target, position, fill):
    start, end = _range_of(memory, column, index)
    if end - start != item_at(program, at + A):
        return position, OTHER_SIZE
    first = item_at(memory.texts, column)
    return _put(target, position, memory.data, first + start, first + end, fill), 0


@helper
def _put_decimal(program, at, memory, column, index, target, position, fill):
    """Write the big-endian two's complement of 128 bits, in as few bytes as it has or as many as are demanded."""
    place = item_at(memory.values, column) + 16 * index
    needed = 16
    sign = 255 if byte_at(memory.data, place + 15) > 127 else 0
    while needed > 1 and byte_at(memory.data, place + needed - 1) == sign:
        if (byte_at(memory.data, place + needed - 2) ^ sign) > 127:
            break
        needed -= 1
    size = item_at(program, at + A)
    if size == BY_LENGTH:
        position = _put_long(target, position, needed, fill)
    if size < 0:
        size = needed
    if size < needed:
        return position, TOO_MANY_DIGITS
    if fill:
        for i in range(size):
            byte = byte_at(memory.data, place + size - 1 - i) if size - i <= needed else sign
            store_at(target, position + i, np.uint8(byte))
    return position + size, 0


@helper
def _short_escape(byte):  # noqa: PLR0911 - a case for each
    """Return the letter behind the backslash of an escape; 0: none is needed, 117 (u): there is no short one."""
    if byte in (0x22, 0x5C):
        return byte
    if byte >= 0x20:
        return 0
    if byte == 0x0A:
        return 0x6E
    if byte == 0x0D:
        return 0x72
    if byte == 0x09:
        return 0x74
    if byte == 0x08:
        return 0x62
    return 0x66 if byte == 0x0C else 0x75


@helper
def _hex_digit(number):
    return number + (0x30 if number < 10 else 0x57)


@helper
def _put_escaped(memory, column, index, target, position, fill):
    start, end = _range_of(memory, column, index)
    first = item_at(memory.texts, column)
    if not fill and not is_utf8(memory.data, first + start, first + end):
        return position, NOT_UTF8
    position = _put_byte(target, position, 0x22, fill)
    for i in range(first + start, first + end):
        byte = byte_at(memory.data, i)
        letter = _short_escape(byte)
        if letter == 0:
            position = _put_byte(target, position, byte, fill)
            continue
        position = _put_byte(target, position, 0x5C, fill)
        position = _put_byte(target, position, letter, fill)
        if letter == 0x75:
            position = _put_byte(target, position, 0x30, fill)
            position = _put_byte(target, position, 0x30, fill)
            position = _put_byte(target, position, _hex_digit(byte >> 4), fill)
            position = _put_byte(target, position, _hex_digit(byte & 15), fill)
    return _put_byte(target, position, 0x22, fill), 0


@helper
def _put_finite(memory, column, index, target, position, fill):
    start, end = _range_of(memory, column, index)
    first = item_at(memory.texts, column)
    last = byte_at(memory.data, first + end - 1)
    if last in (0x66, 0x6E):  # inf, nan
        return position, NOT_FINITE
    return _put(target, position, memory.data, first + start, first + end, fill), 0


@helper
def _put_moment(memory, column, index, target, position, fill):
    start, end = _range_of(memory, column, index)
    first = item_at(memory.texts, column) + start
    if end - start < 5 or byte_at(memory.data, first + 4) != 0x2D or not 0x30 <= byte_at(memory.data, first) <= 0x39:
        return position, NO_YEAR
    for i in range(end - start):
        byte = byte_at(memory.data, first + i)
        position = _put_byte(target, position, 0x54 if byte == 0x20 else byte, fill)
    return position, 0


@helper
def _put_plain(op, program, at, memory, column, index, target, position, fill):
    size = item_at(program, at + A) if op == UNSIGNED else 8
    number = _whole_number(memory.data, item_at(memory.values, column) + size * index, size)
    if op == ENUM and number < -(2**31):
        return position, NO_SYMBOL
    if op == UNSIGNED and item_at(program, at + B) == 4:
        number &= 0xFFFFFFFF
    return _put_unsigned(target, position, number, fill), 0


@helper
def _put_within(program, at, memory, column, index, target, position, fill):
    size = item_at(program, at + A)
    place = item_at(memory.values, column) + 2 * size * index
    for i in range(size, 2 * size):
        if byte_at(memory.data, place + i):
            return position, OUT_OF_RANGE
    if not item_at(program, at + B):
        return _put(target, position, memory.data, place, place + size, fill), 0
    number = np.int64(word_at(memory.data, place))
    if size == 4:
        number &= 0xFFFFFFFF
    return _put_unsigned(target, position, number, fill), 0


@helper
def _put_time_field(target, position, tag, number, fill):
    if number == 0:
        return position
    return _put_unsigned(target, _put_byte(target, position, tag, fill), number, fill)


@helper
def _put_time(program, at, memory, column, index, target, position, fill):
    micros = np.int64(word_at(memory.data, item_at(memory.values, column) + 8 * index))
    part = micros % 1_000_000
    if item_at(program, at + A) and part and micros < 0:
        part -= 1_000_000
    seconds = (micros - part) // 1_000_000
    size = _put_time_field(target, _put_time_field(target, 0, 0x08, seconds, 0), 0x10, part * 1000, 0)
    position = _put_byte(target, position, size, fill)
    position = _put_time_field(target, position, 0x08, seconds, fill)
    return _put_time_field(target, position, 0x10, part * 1000, fill)


@helper
def _put_value(op, at, code, memory, column, index, target, position, fill):  # noqa: PLR0911, PLR0912 - the dispatch
    """Do an operation that writes one value. Return the position after it and the fault."""
    program = code.program
    if op == LITERAL:
        return _put_literal(code, at, target, position, fill), 0
    if op <= SYMBOL:
        return _put_number(op, program, at, memory, column, index, target, position, fill)
    if op == TEXT:
        return _put_text(program, at, memory, column, index, target, position, fill)
    if op == COPY:
        size = item_at(program, at + A)
        start = item_at(memory.values, column) + size * index
        return _put(target, position, memory.data, start, start + size, fill), 0
    if op == BOOLEAN:
        place = item_at(memory.values, column) + index
        return _put_byte(target, position, byte_at(memory.data, place >> 3) >> (place & 7) & 1, fill), 0
    if op == ESCAPED:
        return _put_escaped(memory, column, index, target, position, fill)
    if op == FINITE:
        return _put_finite(memory, column, index, target, position, fill)
    if op == MOMENT:
        return _put_moment(memory, column, index, target, position, fill)
    if op == DECIMAL:
        return _put_decimal(program, at, memory, column, index, target, position, fill)
    if op == FIXED:
        return _put_fixed(program, at, memory, column, index, target, position, fill)
    if op in (UNSIGNED, ENUM):
        return _put_plain(op, program, at, memory, column, index, target, position, fill)
    if op == WITHIN:
        return _put_within(program, at, memory, column, index, target, position, fill)
    if op == TIME:
        return _put_time(program, at, memory, column, index, target, position, fill), 0
    return _put_double(program, at, memory, column, index, target, position, fill)


@helper
def _begin_items(program, at, memory, column, index, state, target, position, fill):
    """ITEMS. Return the position after what it writes, and the operation to continue with."""
    start, end = _range_of(memory, column, index)
    if start == end:
        return position, item_at(program, at + B)
    if item_at(program, at + D):
        position = _put_long(target, position, end - start, fill)
    state.places[item_at(program, at + C)] = start
    state.ends[item_at(program, at + A)] = end
    return position, at // WIDTH + 1


@helper
def _end_item(program, at, state):
    """NEXT. Return the operation to continue with: the next item, or what follows the list."""
    items = item_at(program, at + C)
    place = item_at(state.places, items) + 1
    state.places[items] = place
    return item_at(program, at + B) if place < item_at(state.ends, item_at(program, at + A)) else at // WIDTH + 1


@helper
def _begin_sized(program, at, state, target, position, fill):
    number = state.cursor[0]
    state.cursor[0] = number + 1
    if fill:
        return _put_unsigned(target, position, state.sizes[number], fill)
    state.sized[item_at(program, at + A)] = number
    state.begins[item_at(program, at + A)] = position
    return position


@helper
def _end_sized(program, at, state, target, position, fill):
    """Note the size of a message that is being measured. Return the position after it, with room for the size."""
    if fill:
        return position, 0
    size = position - state.begins[item_at(program, at + A)]
    state.sizes[state.sized[item_at(program, at + A)]] = size
    return _put_unsigned(target, position, size, 0), TOO_LARGE if size >= 2**31 else 0


@helper
def _put_row(code, memory, state, target, position, fill):  # noqa: PLR0912 - the interpreter's loop
    """Write the row at which `state` is; return the position after it. A fault is noted in `state`."""
    program = code.program
    pc = 0
    fault = 0
    members = 0  # of a oneof
    is_first = True  # of the fields or items of the JSON object or list that was opened last
    while True:
        at = pc * WIDTH
        op = item_at(program, at)
        column = item_at(program, at + COLUMN)
        index = item_at(state.places, item_at(program, at + DOMAIN))
        pc += 1
        if op < FIRST_CONTROL:
            position, fault = _put_value(op, at, code, memory, column, index, target, position, fill)
        elif op == SKIP_NULL:
            if _is_null(memory, column, index):
                position = _put_literal(code, at, target, position, fill)
                pc = item_at(program, at + C)
        elif op == NOT_NULL:
            fault = IS_NULL if _is_null(memory, column, index) else 0
        elif op == ITEMS:
            position, pc = _begin_items(program, at, memory, column, index, state, target, position, fill)
        elif op == NEXT:
            pc = _end_item(program, at, state)
        elif op == JUMP:
            pc = item_at(program, at + A)
        elif op == END:
            return position
        elif op == FAIL:
            fault = item_at(program, at + A)
        elif op == BEGIN_SIZED:
            position = _begin_sized(program, at, state, target, position, fill)
        elif op == END_SIZED:
            position, fault = _end_sized(program, at, state, target, position, fill)
        elif op == SKIP_EMPTY:
            start, end = _range_of(memory, column, index)
            if start == end:
                pc = item_at(program, at + A)
        elif op == NO_MEMBER_YET:
            members = 0
        elif op == MEMBER:
            members += 0 if _is_null(memory, column, index) else 1
            fault = SECOND_MEMBER if members > 1 else 0
        else:
            if op == FIELD and not is_first:
                position = _put_byte(target, position, 0x2C, fill)
            is_first = op == OPEN
            position = _put_literal(code, at, target, position, fill)
        if fault:
            state.fault[0] = fault
            state.fault[1] = column
            return position


@kernel
def encode_columns(code, memory, state, first, ends, target, fill):
    """Walk the rows from `first` on, of which each ends at `ends`; return the row after the last.

    ends: int64[rows], relative to the beginning of the first row; filled without `fill`
    target: uint8; empty without `fill`

    Without `fill`, stops at a row that cannot be written, and sets `state.fault`.
    """
    position = 0
    for i in range(ends.shape[0]):
        row = first + i
        if not _is_null(memory, 0, row):
            state.places[0] = row
            position = _put_row(code, memory, state, target, position, fill)
            if state.fault[0]:
                return row
        ends[i] = position
    return first + ends.shape[0]
