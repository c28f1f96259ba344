"""Compiled loops that turn keys and values of committed offsets into columns (layouts: schemas.py).

    locate_fields  find the kind of each record, its numbers, and the positions of its texts
    gather         copy texts from the positions that `locate_fields` found

The rules of records/kernels.py apply: no number from the data is trusted. The general reader reads records with an
unknown version or layout.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

from sparklog.records.kernels import byte_at, copy_bytes, helper, kernel

# The kinds of records.
COMMIT, TOMBSTONE, OTHER, GENERAL, DAMAGED = range(5)

# The numbers of a record.
PARTITION, OFFSET, LEADER_EPOCH, COMMIT_MS, EXPIRE_MS = range(5)
NUMBERS = 5

# The texts of a record, each with its start and size; size -1: null.
GROUP, TOPIC, METADATA, TOPIC_ID = range(4)
TEXTS = 4

_ID_BYTES = 16


class LocatedFields(NamedTuple):
    """The results of `locate_fields` for each record."""

    kinds: Any  # int8[records]
    numbers: Any  # int64[NUMBERS, records]
    starts: Any  # int64[TEXTS, records]
    sizes: Any  # int32[TEXTS, records]


@helper
def _number(data, position, size):
    """Read a signed big-endian number, which must lie inside `data`."""
    value = byte_at(data, position)
    if value >= 128:
        value -= 256
    for i in range(1, size):
        value = (value << 8) | byte_at(data, position + i)
    return value


@helper
def _text(data, position, end):
    """Return start and size of a text after its 16-bit length (size -1: null); start -1 if it goes beyond `end`."""
    if end - position < 2:
        return -1, 0
    size = _number(data, position, 2)
    return (position + 2, max(size, -1)) if size <= end - position - 2 else (-1, 0)


@helper
def _compact_text(data, position, end):
    """Return what `_text` returns, for a text after a varint of its size plus one."""
    value = 0
    shift = 0
    while True:
        if position >= end or shift > 28:
            return -1, 0
        byte = byte_at(data, position)
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    size = value - 1
    return (position, size) if size <= end - position else (-1, 0)


@helper
def _locate_key(keys, i, found):
    """Locate the fields in the key of record i, and return the record's kind."""
    position = int(keys.starts[i])
    end = position + keys.sizes[i]
    if keys.sizes[i] < 2:
        return DAMAGED
    kind = _number(keys.data, position, 2)
    if kind not in (0, 1):
        return OTHER
    start, size = _text(keys.data, position + 2, end)
    if start < 0 or size < 0:
        return DAMAGED
    found.starts[GROUP, i] = start
    found.sizes[GROUP, i] = size
    start, size = _text(keys.data, start + size, end)
    if start < 0 or size < 0 or end - start - size < 4:
        return DAMAGED
    found.starts[TOPIC, i] = start
    found.sizes[TOPIC, i] = size
    found.numbers[PARTITION, i] = _number(keys.data, start + size, 4)
    return COMMIT


@helper
def _locate_value(values, i, found):
    """Locate the fields in the value of record i, a commit, and return the record's kind."""
    position = int(values.starts[i])
    end = position + values.sizes[i]
    if end - position < 2:
        return DAMAGED
    version = _number(values.data, position, 2)
    if version < 0 or version > 4:
        return GENERAL
    position += 2
    if end - position < 12:
        return DAMAGED
    found.numbers[OFFSET, i] = _number(values.data, position, 8)
    position += 8
    found.numbers[LEADER_EPOCH, i] = -1
    if version >= 3:
        found.numbers[LEADER_EPOCH, i] = _number(values.data, position, 4)
        position += 4
    start, size = _compact_text(values.data, position, end) if version == 4 else _text(values.data, position, end)
    if start < 0:
        return DAMAGED
    found.starts[METADATA, i] = start
    found.sizes[METADATA, i] = size
    position = start + max(size, 0)
    if end - position < (16 if version == 1 else 8):
        return DAMAGED
    found.numbers[COMMIT_MS, i] = _number(values.data, position, 8)
    position += 8
    found.numbers[EXPIRE_MS, i] = _number(values.data, position, 8) if version == 1 else -1
    return _locate_tags(values.data, position, end, i, found) if version == 4 else COMMIT


@helper
def _locate_tags(data, position, end, i, found):
    """Locate the tagged fields: none, or only the topic id; others make the record GENERAL."""
    if position >= end:
        return DAMAGED
    if byte_at(data, position) == 0:
        return COMMIT
    if end - position < 3 + _ID_BYTES or byte_at(data, position) != 1:
        return GENERAL
    if byte_at(data, position + 1) != 0 or byte_at(data, position + 2) != _ID_BYTES:
        return GENERAL
    found.starts[TOPIC_ID, i] = position + 3
    found.sizes[TOPIC_ID, i] = _ID_BYTES
    return COMMIT


@kernel
def locate_fields(keys, values, found):
    """Fill `found`, whose sizes must all be -1 at first."""
    for i in range(keys.starts.shape[0]):
        kind = _locate_key(keys, i, found)
        if kind == COMMIT:
            kind = TOMBSTONE if values.sizes[i] < 0 else _locate_value(values, i, found)
        found.kinds[i] = kind


@kernel
def gather(data, starts, sizes, offsets, output):
    """Copy the texts one after the other into `output`; return False if they do not fit."""
    for i in range(starts.shape[0]):
        size = offsets[i + 1] - offsets[i]
        if size == 0:
            continue
        if starts[i] < 0 or size > data.shape[0] - starts[i] or size > output.shape[0] - offsets[i] or size != sizes[i]:
            return False
        copy_bytes(output, offsets[i], data, starts[i], size)
    return True
