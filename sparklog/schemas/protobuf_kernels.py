"""Decodes Protobuf messages to the buffers of Arrow columns, in one compiled loop for all schemas.

A body is fields in any order, each behind a *tag*: its number and its wire type. A schema is compiled to tables
(`protobuf_program`):

    nodes     the messages: their fields, and their domain
    fields    of each message by number: how a value is read, and its column
    endings   of each domain: the operations at the end of a row or an item, for example to write offsets
    columns   what the loop needs to clear a column in the current row

The loop looks up each tag among the fields of its message. It tries the field after the last one first, so most tags
need no search. Fields that the schema lacks are skipped, and so are fields with another wire type, as by Google's
library. A field that comes twice has the last value. A message that comes twice is merged without further work: its
fields are in the columns of the same row. A member of a oneof clears the others.

There are two passes, as in `avro_kernels`. The first counts too much for replaced values; the second gives the true
sizes. Nothing read from the data is trusted. The bytes of a body bound its cost: an item takes at least one byte, and
its bytes in columns count against `left_bytes`.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparklog.records.kernels import MAX_LONG, byte_at, copy_bytes, helper, item_at, kernel, store_at, word_at
from sparklog.schemas.column_kernels import (
    BAD_GROUP,
    BAD_SIZE,
    BAD_TAG,
    BAD_VARINT,
    CUT_OFF,
    NOT_UTF8,
    OUT_OF_RANGE,
    TOO_LARGE,
    append,
    is_utf8,
    set_bit,
)

MOST_FRAMES = 80
"""Messages within messages that the loop has room for: more than a schema may have."""
MOST_GROUPS = 100
"""Unknown groups within groups, as by Google's library."""
ROOT = 0
"""The node of the whole body."""

# How a value is read. The first are varints.
INT32, INT64, UINT32, UINT64, SINT32, SINT64 = range(6)
BOOL = 6
ENUM = 7  # first entry and number of entries in the table (number, start and end in the constants), sorted; closed
FIXED32 = 8  # 4 bytes as they are
FIXED64 = 9
LONG32 = 10  # 4 bytes, unsigned, to 8
DECIMAL64 = 11  # 8 bytes, unsigned, to 16
BYTES = 12  # 1: must be UTF-8
TIME = 13  # a Timestamp (0) or Duration (1), to microseconds
MESSAGE = 14  # node

# Wire types.
WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_GROUP, WIRE_END_GROUP, WIRE_FIXED32 = range(6)

# Columns of the fields. LIST: the column of the list or map, -1: it is none. CHARGE: what the field counts against
# `left_bytes`: an item its bytes in all columns of fixed width, a member of a oneof the columns that it may have to
# clear. PRESENT: the column has a validity bit. ONEOF, MEMBERS: first entry and number of entries in the table: columns
# of all members.
NUMBER, WIRE, OP, COLUMN, DOMAIN, LIST, CHARGE, PRESENT, A, B, C, ONEOF, MEMBERS = range(13)
FIELD = 14

# Columns of the nodes. ITEM: the message is an item of a list or map.
FIRST, COUNT, NODE_DOMAIN, ITEM = range(4)
NODE = 4

# Columns of the domains: their endings, of which the first are DEFAULT_BYTES.
ENDINGS, ENDINGS_COUNT, DEFAULTS = range(3)
DOMAIN_WIDTH = 3

# The operations on a column at the end of a row or an item.
DEFAULT_BYTES = 0  # if nothing was written: start and end in the constants; 1: the column has validity bits
DEFAULT_NUMBER = 1  # if it is not valid: the bits of the number, its bytes; 0 bytes: a boolean
VALID = 2  # it is valid
END_OF_BYTES = 3  # write the offset
END_OF_ITEMS = 4  # write the offset: the domain of the items
KIND, END_COLUMN, END_A, END_B, END_C = range(5)
ENDING = 5

# Columns of the table of columns. LAST: the first column that is not within this one.
STORAGE, BYTE_WIDTH, OF_DOMAIN, ITEMS, LAST, NULLABLE = range(6)
COLUMN_WIDTH = 6
IN_NOTHING, IN_BITS, IN_FIXED, IN_BYTES, IN_ITEMS = range(5)

_MILLION, _BILLION = 10**6, 10**9
_MOST_SECONDS = MAX_LONG // _MILLION - 1


class ProtobufCode(NamedTuple):
    """A program. All read-only."""

    nodes: Any  # int64[nodes * NODE]
    fields: Any  # int64[fields * FIELD]
    domains: Any  # int64[domains * DOMAIN_WIDTH]
    endings: Any  # int64[endings * ENDING]
    columns: Any  # int64[columns * COLUMN_WIDTH]
    table: Any  # int64: symbols, members of oneofs
    constants: Any  # uint8: names of symbols, default values


class MessageFrames(NamedTuple):
    """The messages around the current one, and where the loop continues in them."""

    ends: Any  # int64[MOST_FRAMES]
    nodes: Any  # int64[MOST_FRAMES]
    guesses: Any  # int64[MOST_FRAMES]
    groups: Any  # int64[MOST_GROUPS]: numbers of unknown groups
    lows: Any  # int64[domains]: the first item to forget


class ProtobufRows(NamedTuple):
    """The bodies: the begin and end of each in the data."""

    starts: Any  # int64[rows]
    ends: Any  # int64[rows]
    is_null: Any  # bool[rows]


@helper
def _read_varint(data, position, end):
    """Return a varint as 64 bits, the position after it, and the fault or 0.

    Bits beyond the 64th are dropped, as Google's libraries do.
    """
    if position < end and byte_at(data, position) < 128:  # most are
        return byte_at(data, position), position + 1, 0
    number = 0
    shift = 0
    while position < end and shift < 70:
        byte = byte_at(data, position)
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position, 0
        shift += 7
    return 0, position, BAD_VARINT if shift == 70 else CUT_OFF


@helper
def _read_size(data, position, end):
    """As _read_varint, for a length. There is a fault if the counted bytes do not lie before the end."""
    size, position, fault = _read_varint(data, position, end)
    if fault == 0 and (size < 0 or size > end - position):
        fault = BAD_SIZE
    return size, position, fault


@helper
def _read_tag(data, position, end):
    """Return the number and the wire type of a field, the position after them, and the fault."""
    tag, after, fault = _read_varint(data, position, end)
    if fault == 0 and (tag >= 2**32 or tag < 8 or after - position > 5 or tag & 7 > WIRE_FIXED32):
        fault = BAD_TAG
    return tag >> 3, tag & 7, after, fault


@helper
def _skip_value(wire, data, position, end):
    """Skip a value that is no group; return the position after it and the fault."""
    if wire == WIRE_VARINT:
        _number, position, fault = _read_varint(data, position, end)
        return position, fault
    if wire == WIRE_BYTES:
        size, position, fault = _read_size(data, position, end)
        return position + size, fault
    size = 8 if wire == WIRE_FIXED64 else 4
    return position + size, CUT_OFF if size > end - position else 0


@helper
def _skip(number, wire, frames, data, position, end):  # noqa: PLR0911 - one for each fault
    """Skip a field behind its tag, with all that is in a group; return the position after it and the fault."""
    if wire == WIRE_END_GROUP:
        return position, BAD_GROUP
    if wire != WIRE_GROUP:
        return _skip_value(wire, data, position, end)
    frames.groups[0] = number
    depth = 1
    fault = 0
    while depth and fault == 0:
        if position >= end:
            return position, BAD_GROUP
        number, wire, position, fault = _read_tag(data, position, end)
        if fault:
            return position, fault
        if wire == WIRE_GROUP:
            if depth == MOST_GROUPS:
                return position, BAD_GROUP
            frames.groups[depth] = number
            depth += 1
        elif wire == WIRE_END_GROUP:
            depth -= 1
            if item_at(frames.groups, depth) != number:
                return position, BAD_GROUP
        else:
            position, fault = _skip_value(wire, data, position, end)
    return position, fault


@helper
def _find(fields, first, count, guess, number):
    """Return the position of a number among the fields of a message, which are sorted; -1: it is none of them."""
    if guess < count and item_at(fields, (first + guess) * FIELD + NUMBER) == number:
        return guess
    low = 0
    high = count
    while low < high:
        middle = (low + high) >> 1
        if item_at(fields, (first + middle) * FIELD + NUMBER) < number:
            low = middle + 1
        else:
            high = middle
    if low < count and item_at(fields, (first + low) * FIELD + NUMBER) == number:
        return low
    return -1


@helper
def _offset_at(target, start, index):
    """Return an offset of a column; that of the first row is 0. Reads none behind it, as there may be none."""
    return np.int64(word_at(target, start + 4 * index - 4) >> np.uint64(32)) if index else 0


@helper
def _is_set(target, start, index):
    return (byte_at(target, start + (index >> 3)) >> (index & 7)) & 1


@helper
def _clear_bits(target, start, low, high):
    for index in range(low, high):
        place = start + (index >> 3)
        store_at(target, place, np.uint8(byte_at(target, place) & ~(1 << (index & 7))))


@helper
def _forget(code, column, index, frames, buffers, target):
    """Clear the values of a column, and of all columns within it, in the current row or item of their domain."""
    columns = code.columns
    top = item_at(columns, column * COLUMN_WIDTH + OF_DOMAIN)
    for number in range(column, item_at(columns, column * COLUMN_WIDTH + LAST)):
        at = number * COLUMN_WIDTH
        domain = item_at(columns, at + OF_DOMAIN)
        low = index if domain == top else item_at(frames.lows, domain)
        high = index + 1 if domain == top else item_at(buffers.counts, domain)
        storage = item_at(columns, at + STORAGE)
        start = item_at(buffers.values, number)
        if item_at(columns, at + NULLABLE):
            _clear_bits(target, item_at(buffers.validity, number), low, high)
        if storage == IN_BITS:
            _clear_bits(target, start, low, high)
        elif storage == IN_FIXED:
            width = item_at(columns, at + BYTE_WIDTH)
            for place in range(start + width * low, start + width * high):
                store_at(target, place, np.uint8(0))
        elif storage == IN_BYTES:
            buffers.sizes[number] = _offset_at(target, start, low)
        elif storage == IN_ITEMS:
            frames.lows[item_at(columns, at + ITEMS)] = _offset_at(target, start, low)
    for number in range(column, item_at(columns, column * COLUMN_WIDTH + LAST)):
        items = item_at(columns, number * COLUMN_WIDTH + ITEMS)
        if items >= 0:
            buffers.counts[items] = item_at(frames.lows, items)


@helper
def _set_present(code, at, index, frames, buffers, target):
    """Note that a field is there, and forget the other members of its oneof."""
    own = item_at(code.fields, at + COLUMN)
    members = item_at(code.fields, at + ONEOF)
    for entry in range(members, members + item_at(code.fields, at + MEMBERS)):
        other = item_at(code.table, entry)
        if other != own and _is_set(target, item_at(buffers.validity, other), index):
            _forget(code, other, index, frames, buffers, target)
    if item_at(code.fields, at + PRESENT):
        set_bit(target, item_at(buffers.validity, own), index)


@helper
def _replace(column, index, buffers, target):
    """Forget the text that a column has in the current row, if any."""
    buffers.sizes[column] = _offset_at(target, item_at(buffers.values, column), index)


@helper
def _digits(number):
    """Return the number of decimal digits."""
    digits = 1
    while number > 9:
        number //= 10
        digits += 1
    return digits


@helper
def _entry_of(code, at, number):
    """Return where a symbol of an enum is in the table; for an unknown number the entry behind all others."""
    first = item_at(code.fields, at + A)
    count = item_at(code.fields, at + B)
    low = 0
    high = count
    while low < high:
        middle = (low + high) >> 1
        if item_at(code.table, first + 3 * middle) < number:
            low = middle + 1
        else:
            high = middle
    is_known = low < count and item_at(code.table, first + 3 * low) == number
    return first + 3 * (low if is_known else count)


@helper
def _read_symbol(code, at, number, column, index, buffers, target, fill):
    """Write the name of an enum's symbol; return the fault."""
    if fill:
        _replace(column, index, buffers, target)
    entry = _entry_of(code, at, number)
    start = item_at(code.table, entry + 1)
    size = item_at(code.table, entry + 2) - start
    fault = append(code.constants, start, size, column, index, buffers, target, fill)
    if fault or entry != item_at(code.fields, at + A) + 3 * item_at(code.fields, at + B):
        return fault
    left = -number if number < 0 else number
    digits = _digits(left) + (1 if number < 0 else 0)
    used = item_at(buffers.sizes, column)
    if digits > item_at(buffers.most_sizes, column) - used or digits > buffers.left_bytes[0]:
        return TOO_LARGE
    buffers.sizes[column] = used + digits
    if not fill:
        buffers.left_bytes[0] -= digits
        return 0
    text = item_at(buffers.texts, column) + used
    store_at(target, text, np.uint8(0x2D))
    for i in range(digits - 1, (1 if number < 0 else 0) - 1, -1):
        store_at(target, text + i, np.uint8(0x30 + left % 10))
        left //= 10
    store_at(target, item_at(buffers.values, column) + 4 * index + 4, np.int32(used + digits))
    return 0


@helper
def _read_time(code, at, frames, data, position, end, column, index, buffers, target, fill):
    """Read a message of seconds and nanoseconds, merged with one that came before."""
    size, position, fault = _read_size(data, position, end)
    last = position + size
    is_duration = item_at(code.fields, at + A)
    place = item_at(buffers.values, column) + 8 * index
    before = np.int64(word_at(target, place)) if fill else 0
    micros = before % _MILLION
    if is_duration and micros and before < 0:
        micros -= _MILLION
    seconds = (before - micros) // _MILLION
    while fault == 0 and position < last:
        number, wire, position, fault = _read_tag(data, position, last)
        if fault == 0 and wire == WIRE_VARINT and number <= 2:
            value, position, fault = _read_varint(data, position, last)
            if number == 1:
                seconds = value
            else:
                nanos = np.int64(np.int32(value))
                micros = -(-nanos // 1000) if nanos < 0 else nanos // 1000
                if nanos >= _BILLION or nanos <= -_BILLION or (nanos < 0 and not is_duration):
                    return position, OUT_OF_RANGE
        elif fault == 0:
            position, fault = _skip(number, wire, frames, data, position, last)
    if fault == 0 and (seconds >= _MOST_SECONDS or seconds <= -_MOST_SECONDS):
        fault = OUT_OF_RANGE
    if fill:
        store_at(target, place, seconds * _MILLION + micros)
    return position, fault


@helper
def _read_varint_field(op, code, at, data, position, end, column, index, buffers, target, fill):
    number, position, fault = _read_varint(data, position, end)
    if fault:
        return position, fault
    start = item_at(buffers.values, column)
    if op == ENUM:
        return position, _read_symbol(code, at, np.int64(np.int32(number)), column, index, buffers, target, fill)
    if not fill:
        return position, 0
    if op == INT64:
        store_at(target, start + 8 * index, number)
    elif op == INT32:
        store_at(target, start + 4 * index, np.int32(number))
    elif op == SINT64:
        store_at(target, start + 8 * index, ((number >> 1) & MAX_LONG) ^ -(number & 1))
    elif op == SINT32:
        number &= 0xFFFFFFFF
        store_at(target, start + 4 * index, np.int32((number >> 1) ^ -(number & 1)))
    elif op == BOOL:
        if number:
            set_bit(target, start, index)
        else:
            _clear_bits(target, start, index, index + 1)
    elif op == UINT32:
        store_at(target, start + 8 * index, number & 0xFFFFFFFF)
    else:
        store_at(target, start + 16 * index, number)
    return position, 0


@helper
def _read_text(code, at, data, position, end, column, index, buffers, target, fill):
    size, position, fault = _read_size(data, position, end)
    if fault:
        return position, fault
    if fill:
        _replace(column, index, buffers, target)
    elif item_at(code.fields, at + A) and not is_utf8(data, position, position + size):
        return position, NOT_UTF8
    return position + size, append(data, position, size, column, index, buffers, target, fill)


@helper
def _read_value(op, code, at, data, position, end, column, index, buffers, target, fill):
    """Read a value that is no message, behind its tag. Return the position after it and the fault."""
    if op < FIXED32:
        return _read_varint_field(op, code, at, data, position, end, column, index, buffers, target, fill)
    if op == BYTES:
        return _read_text(code, at, data, position, end, column, index, buffers, target, fill)
    size = 4 if op in (FIXED32, LONG32) else 8
    if size > end - position:
        return position, CUT_OFF
    if fill:
        width = size if op <= FIXED64 else 2 * size
        copy_bytes(target, item_at(buffers.values, column) + width * index, data, position, size)
    return position + size, 0


@helper
def _charge(code, at, buffers):
    """Count the cost of a field against the bytes that are left; return the fault."""
    needed = item_at(code.fields, at + CHARGE)
    if needed > buffers.left_bytes[0]:
        return TOO_LARGE
    buffers.left_bytes[0] -= needed
    return 0


@helper
def _make_room(code, at, items, buffers, fill):
    """Make room for an item; return the fault."""
    if item_at(buffers.counts, items) >= item_at(buffers.most_counts, items):
        return TOO_LARGE
    return 0 if fill else _charge(code, at, buffers)


@helper
def _is_skipped(op, code, at, data, position, end):
    """Return whether the value is a number that a closed enum does not know."""
    if op != ENUM or not item_at(code.fields, at + C):
        return False
    number, _position, fault = _read_varint(data, position, end)
    unknown = item_at(code.fields, at + A) + 3 * item_at(code.fields, at + B)
    return fault == 0 and _entry_of(code, at, np.int64(np.int32(number))) == unknown


@helper
def _read_packed(op, code, at, data, position, end, buffers, target, fill):
    """Read items without tags, behind their size. Return the position after them and the fault."""
    size, position, fault = _read_size(data, position, end)
    column = item_at(code.fields, at + COLUMN)
    items = item_at(code.fields, at + DOMAIN)
    last = position + size
    while fault == 0 and position < last:
        if _is_skipped(op, code, at, data, position, last):
            position, fault = _skip_value(WIRE_VARINT, data, position, last)
            continue
        fault = _make_room(code, at, items, buffers, fill)
        if fault == 0:
            index = item_at(buffers.counts, items)
            position, fault = _read_value(op, code, at, data, position, last, column, index, buffers, target, fill)
            buffers.counts[items] = index + 1
    return position, fault


@helper
def _put_default(code, at, index, buffers, target, fill):
    """DEFAULT_BYTES. Without `fill`, always make room for it. Return the fault."""
    endings = code.endings
    column = item_at(endings, at + END_COLUMN)
    if fill:
        if item_at(endings, at + END_C):
            if _is_set(target, item_at(buffers.validity, column), index):
                return 0
            set_bit(target, item_at(buffers.validity, column), index)
        elif item_at(buffers.sizes, column) != _offset_at(target, item_at(buffers.values, column), index):
            return 0
    start = item_at(endings, at + END_A)
    size = item_at(endings, at + END_B) - start
    return append(code.constants, start, size, column, index, buffers, target, fill)


@helper
def _end_column(code, at, index, buffers, target):
    """Do an ending that is no DEFAULT_BYTES."""
    endings = code.endings
    kind = item_at(endings, at + KIND)
    column = item_at(endings, at + END_COLUMN)
    start = item_at(buffers.values, column)
    if kind == END_OF_BYTES:
        store_at(target, start + 4 * index + 4, np.int32(item_at(buffers.sizes, column)))
        return
    if kind == END_OF_ITEMS:
        store_at(target, start + 4 * index + 4, np.int32(item_at(buffers.counts, item_at(endings, at + END_A))))
        return
    validity = item_at(buffers.validity, column)
    if kind == DEFAULT_NUMBER and not _is_set(target, validity, index):
        width = item_at(endings, at + END_B)
        if width == 8:
            store_at(target, start + 8 * index, item_at(endings, at + END_A))
        elif width == 4:
            store_at(target, start + 4 * index, np.int32(item_at(endings, at + END_A)))
        elif width == 16:
            store_at(target, start + 16 * index, item_at(endings, at + END_A))
        elif item_at(endings, at + END_A):
            set_bit(target, start, index)
    set_bit(target, validity, index)


@helper
def _end(code, domain, is_null, buffers, target, fill):
    """Do all that is done at the end of a row or an item; one that is null gets no texts. Return the fault."""
    index = item_at(buffers.counts, domain)
    first = item_at(code.domains, domain * DOMAIN_WIDTH + ENDINGS)
    defaults = first + item_at(code.domains, domain * DOMAIN_WIDTH + DEFAULTS)
    fault = 0
    for ending in range(first, defaults):
        if fault == 0 and not is_null:
            fault = _put_default(code, ending * ENDING, index, buffers, target, fill)
    if fill:
        for ending in range(defaults, first + item_at(code.domains, domain * DOMAIN_WIDTH + ENDINGS_COUNT)):
            _end_column(code, ending * ENDING, index, buffers, target)
    buffers.counts[domain] = index + 1
    return fault


@helper
def _read_body(code, frames, data, position, end, buffers, target, fill):  # noqa: PLR0911, PLR0912, PLR0915 - the loop
    """Walk one body; return its fault."""
    nodes, fields = code.nodes, code.fields
    depth = 0
    node = ROOT * NODE
    guess = 0
    while True:
        if position >= end:
            if depth == 0:
                return 0
            if item_at(nodes, node + ITEM):
                fault = _end(code, item_at(nodes, node + NODE_DOMAIN), False, buffers, target, fill)
                if fault:
                    return fault
            depth -= 1
            end = item_at(frames.ends, depth)
            node = item_at(frames.nodes, depth)
            guess = item_at(frames.guesses, depth)
            continue
        number, wire, position, fault = _read_tag(data, position, end)
        if fault:
            return fault
        first = item_at(nodes, node + FIRST)
        found = _find(fields, first, item_at(nodes, node + COUNT), guess, number)
        at = (first + found) * FIELD
        op = item_at(fields, at + OP) if found >= 0 else 0
        if found < 0 or wire != item_at(fields, at + WIRE):
            if found >= 0 and wire == WIRE_BYTES and item_at(fields, at + LIST) >= 0 and op < BYTES:
                position, fault = _read_packed(op, code, at, data, position, end, buffers, target, fill)
            else:
                position, fault = _skip(number, wire, frames, data, position, end)
            if fault:
                return fault
            continue
        if _is_skipped(op, code, at, data, position, end):
            position, fault = _skip_value(wire, data, position, end)
            continue
        is_item = item_at(fields, at + LIST) >= 0
        guess = found if is_item else found + 1
        domain = item_at(fields, at + DOMAIN)
        index = item_at(buffers.counts, domain)
        if is_item:
            fault = _make_room(code, at, domain, buffers, fill)
        elif fill:
            _set_present(code, at, index, frames, buffers, target)
        else:
            fault = _charge(code, at, buffers)
        if fault:
            return fault
        if op == MESSAGE:
            size, position, fault = _read_size(data, position, end)
            if fault:
                return fault
            frames.ends[depth] = end
            frames.nodes[depth] = node
            frames.guesses[depth] = guess
            depth += 1
            end = position + size
            node = item_at(fields, at + A) * NODE
            guess = 0
            continue
        column = item_at(fields, at + COLUMN)
        if op == TIME:
            position, fault = _read_time(code, at, frames, data, position, end, column, index, buffers, target, fill)
        else:
            position, fault = _read_value(op, code, at, data, position, end, column, index, buffers, target, fill)
        if fault:
            return fault
        if is_item:
            buffers.counts[domain] = index + 1


@kernel
def decode_protobuf(data, code, frames, rows, first, faults, buffers, target, fill):
    """Walk the rows from `first` on; return the row after the last, or -1 if the second pass meets other bytes.

    faults: uint8 of each row; rows that have one before are null
    """
    starts, ends, is_null = rows
    for row in range(first, starts.shape[0]):
        fault = 0
        there = not is_null[row] and not faults[row]
        if there:
            if fill:
                set_bit(target, item_at(buffers.validity, 0), item_at(buffers.counts, 0))
            fault = _read_body(code, frames, data, starts[row], ends[row], buffers, target, fill)
        ended = _end(code, 0, not there or fault != 0, buffers, target, fill)
        fault = fault if fault else ended
        if fault:
            if fill:
                return -1
            if fault == TOO_LARGE and row > first:
                return row
            faults[row] = fault
    return starts.shape[0]
