"""Checks JSON objects and joins them to lines, in a compiled loop.

Arrow's parser takes lines, and trusts them: some lines that are no objects crash the process. So the kernel first
checks each row by the grammar (RFC 8259): it must be one object, in UTF-8, nested at most MOST_DEPTH levels deep. Line
ends between tokens become spaces. The rules of `records.kernels` apply: nothing read from the data is trusted.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from sparklog.records.kernels import byte_at, helper, kernel, store_at
from sparklog.schemas.column_kernels import NOT_JSON, NOT_UTF8, is_utf8

MOST_DEPTH = 60

_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D
_MINUS, _PLUS, _POINT, _ZERO, _NINE = 0x2D, 0x2B, 0x2E, 0x30, 0x39
_SPACE, _TAB, _LINE_FEED, _RETURN = 0x20, 0x09, 0x0A, 0x0D


@helper
def _after_spaces(data, position, end):
    while position < end:
        byte = byte_at(data, position)
        if byte not in (_SPACE, _TAB, _LINE_FEED, _RETURN):
            break
        position += 1
    return position


@helper
def _at(data, position, end):
    """Return the byte at the position; -1 at the end."""
    return byte_at(data, position) if position < end else -1


@helper
def _after_digits(data, position, end):
    """Return the position after one digit or more; -1 without any."""
    start = position
    while position < end and _ZERO <= byte_at(data, position) <= _NINE:
        position += 1
    return position if position > start else -1


@helper
def _after_number(data, position, end):
    """Return the position after a number; -1 if it is none."""
    if _at(data, position, end) == _MINUS:
        position += 1
    if _at(data, position, end) == _ZERO:
        position += 1
    else:
        position = _after_digits(data, position, end)
        if position < 0:
            return -1
    if _at(data, position, end) == _POINT:
        position = _after_digits(data, position + 1, end)
        if position < 0:
            return -1
    if _at(data, position, end) | 0x20 == 0x65:  # e, E
        position += 1
        if _at(data, position, end) in (_MINUS, _PLUS):
            position += 1
        position = _after_digits(data, position, end)
    return position


@helper
def _is_hex(byte):
    return _ZERO <= byte <= _NINE or 0x61 <= byte | 0x20 <= 0x66


@helper
def _after_string(data, position, end):
    """Return the position after a string, given that of its quote; -1 if it is none."""
    position += 1
    while position < end:
        byte = byte_at(data, position)
        position += 1
        if byte == _QUOTE:
            return position
        if byte < _SPACE:
            return -1
        if byte != _BACKSLASH:
            continue
        escape = _at(data, position, end)
        position += 1
        if escape == 0x75:  # u
            if end - position < 4:
                return -1
            for i in range(4):
                if not _is_hex(byte_at(data, position + i)):
                    return -1
            position += 4
        elif escape not in (_QUOTE, _BACKSLASH, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74):  # / b f n r t
            return -1
    return -1


@helper
def _after_word(data, position, end):
    """Return the position after true, false or null; -1 if it is none of them."""
    first = byte_at(data, position)
    size = 5 if first == 0x66 else 4
    if size > end - position:
        return -1
    number = 0
    for i in range(1, size):
        number = number << 8 | byte_at(data, position + i)
    if first == 0x74:
        return position + 4 if number == 0x727565 else -1  # rue
    if first == 0x66:
        return position + 5 if number == 0x616C7365 else -1  # alse
    return position + 4 if number == 0x756C6C else -1  # ull


@helper
def _after_key(data, position, end):
    """Return the position after a key and its colon; -1 if they are none."""
    position = _after_spaces(data, position, end)
    if _at(data, position, end) != _QUOTE:
        return -1
    position = _after_string(data, position, end)
    if position < 0:
        return -1
    position = _after_spaces(data, position, end)
    return position + 1 if _at(data, position, end) == _COLON else -1


@helper
def _after_leaf(data, position, end):
    """Return the position after a value that is no object and no list; -1 if it is none."""
    byte = _at(data, position, end)
    if byte == _QUOTE:
        return _after_string(data, position, end)
    if byte == _MINUS or _ZERO <= byte <= _NINE:
        return _after_number(data, position, end)
    if byte in (0x74, 0x66, 0x6E):  # t f n
        return _after_word(data, position, end)
    return -1


@helper
def _is_object(data, position, end):  # noqa: PLR0911, PLR0912 - the grammar
    """Return whether the bytes are one JSON object."""
    position = _after_spaces(data, position, end)
    if _at(data, position, end) != _OPEN_OBJECT:
        return False
    depth = 0
    objects = 0  # a bit for each level: 1 for an object
    while True:  # at a value
        position = _after_spaces(data, position, end)
        byte = _at(data, position, end)
        if byte in (_OPEN_OBJECT, _OPEN_LIST):
            if depth >= MOST_DEPTH:
                return False
            depth += 1
            is_object = byte == _OPEN_OBJECT
            objects = objects << 1 | (1 if is_object else 0)
            position = _after_spaces(data, position + 1, end)
            if _at(data, position, end) != (_CLOSE_OBJECT if is_object else _CLOSE_LIST):
                if is_object:
                    position = _after_key(data, position, end)
                    if position < 0:
                        return False
                continue
        else:
            position = _after_leaf(data, position, end)
            if position < 0:
                return False
        while True:  # after a value, or at the end of an empty object or list
            position = _after_spaces(data, position, end)
            byte = _at(data, position, end)
            if byte == (_CLOSE_OBJECT if objects & 1 else _CLOSE_LIST):
                position += 1
                depth -= 1
                objects >>= 1
                if depth == 0:
                    return _after_spaces(data, position, end) == end
                continue
            if byte != _COMMA:
                return False
            position += 1
            if objects & 1:
                position = _after_key(data, position, end)
                if position < 0:
                    return False
            break


@kernel
def join_objects(data, starts, ends, faults, target, lines):
    """Copy each row that is a JSON object to `target`, as a line; note where it begins in `lines`.

    faults: uint8 of each row. Rows with a fault are left out; rows that are no objects get one
    lines: int64[rows + 1]: the begins of the lines, then the end of the target

    Returns the number of lines.
    """
    position = 0
    count = 0
    for row in range(starts.shape[0]):
        start = starts[row]
        end = ends[row]
        if faults[row]:
            continue
        if not is_utf8(data, start, end):
            faults[row] = NOT_UTF8
            continue
        if not _is_object(data, start, end):
            faults[row] = NOT_JSON
            continue
        if end - start >= target.shape[0] - position:
            return -1
        lines[count] = position
        count += 1
        for i in range(start, end):
            byte = byte_at(data, i)
            store_at(target, position, np.uint8(_SPACE if byte in (_LINE_FEED, _RETURN) else byte))
            position += 1
        store_at(target, position, np.uint8(_LINE_FEED))
        position += 1
    lines[count] = position
    return count
