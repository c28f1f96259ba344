"""The common part of the loops that fill columns: buffers, faults of rows, and helpers that write bits and texts.

The buffers of all columns lie in one block of memory, the target. A loop runs twice: it measures, with `fill` = 0, and
counts items and bytes of each column; then it fills, and stays within what was measured. All columns of a pass together
stay within `left_bytes`.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparklog.records.kernels import byte_at, copy_bytes, helper, item_at, store_at, word_at

# Faults of a row; 0: none. The decoders in `formats` find the first two as they read frames.
(
    NO_FRAME, UNKNOWN_SCHEMA, CUT_OFF, TOO_LONG, BAD_VARINT, OUT_OF_RANGE, BAD_BOOLEAN, BAD_SIZE, NOT_UTF8, BAD_SYMBOL,
    BAD_BRANCH, NO_MATCH, BAD_DECIMAL, TOO_MANY_ITEMS, TOO_LARGE,
) = range(1, 16)  # fmt: skip
INCOMPATIBLE = 16  # found before a body is read, like the first two
NOT_JSON = 17
BAD_TAG, BAD_GROUP, BAD_INDEXES = 18, 19, 20
FAULTS = {
    NO_FRAME: "it does not begin with the magic byte 0 and a schema id, and its headers name no schema",
    UNKNOWN_SCHEMA: "its schema is not known",
    CUT_OFF: "it ends before its last field",
    TOO_LONG: "there are bytes after its last field",
    BAD_VARINT: "a number has too many bytes",
    OUT_OF_RANGE: "a number is out of the range of its type",
    BAD_BOOLEAN: "a boolean is neither 0 nor 1",
    BAD_SIZE: "a length is negative, or longer than the bytes that are left",
    NOT_UTF8: "a text is not UTF-8",
    BAD_SYMBOL: "an enum has a symbol that the schema does not have",
    BAD_BRANCH: "a union has a branch that the schema does not have",
    NO_MATCH: "a union has a branch that the reader's schema does not have",
    BAD_DECIMAL: "a decimal has more digits than its schema allows",
    TOO_MANY_ITEMS: "an array or a map claims more items than there are bytes for",
    TOO_LARGE: "it needs more memory than the limit allows",
    NOT_JSON: "it is no JSON object of the schema",
    BAD_TAG: "a field has the number 0, one that is too large, or a wire type that there is not",
    BAD_GROUP: "a group does not end, ends without a beginning, or is nested too deep",
    BAD_INDEXES: "the id of its schema is not followed by the indexes of a message",
    INCOMPATIBLE: "its schema cannot be read as the reader's",
}


def read_only(array: Any) -> Any:
    """Return the array read-only: kernels are compiled for one signature."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


class Buffers(NamedTuple):
    """The positions of columns in the target, how far they are filled, and their limits."""

    counts: Any  # int64[domains]
    most_counts: Any  # int64[domains]
    sizes: Any  # int64[columns]: bytes of the texts so far
    most_sizes: Any  # int64[columns]
    validity: Any  # int64[columns]: where the validity bits begin
    values: Any  # int64[columns]: where values or offsets begin
    texts: Any  # int64[columns]: where the bytes of texts begin
    left_items: Any  # int64[levels]: items that are left in the current block of each list
    left_bytes: Any  # int64[1]: bytes that columns may still take


@helper
def set_bit(target, start, index):
    place = start + (index >> 3)
    store_at(target, place, np.uint8(byte_at(target, place) | (1 << (index & 7))))


@helper
def is_utf8(data, position, end):
    """Return whether the bytes are UTF-8 as RFC 3629 defines it."""
    while position < end:
        if position + 8 <= end and word_at(data, position) & np.uint64(0x8080808080808080) == 0:
            position += 8
            continue
        first = byte_at(data, position)
        if first < 0x80:
            position += 1
            continue
        more = 1 if 0xC2 <= first <= 0xDF else 2 if first & 0xF0 == 0xE0 else 3 if 0xF0 <= first <= 0xF4 else 0
        if more == 0 or more >= end - position:
            return False
        second = byte_at(data, position + 1)
        low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
        high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for i in range(2, more + 1):
            if byte_at(data, position + i) & 0xC0 != 0x80:
                return False
        position += more + 1
    return True


@helper
def append(data, position, size, column, index, buffers, target, fill):
    """Append bytes to a column; return the fault."""
    used = item_at(buffers.sizes, column)
    if size > item_at(buffers.most_sizes, column) - used or size > buffers.left_bytes[0]:
        return TOO_LARGE
    buffers.sizes[column] = used + size
    if fill:
        copy_bytes(target, item_at(buffers.texts, column) + used, data, position, size)
        store_at(target, item_at(buffers.values, column) + 4 * index + 4, np.int32(used + size))
    else:
        buffers.left_bytes[0] -= size
    return 0
