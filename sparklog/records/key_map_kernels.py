"""The hash table of `key_map`, in compiled loops.

A slot takes 3 words, or 4 where records have versions:

    first and second half of the key's SipHash-2-4-128 · offset + 1, 0 in a free slot · version

A key's home is the table's size times the upper 32 bits of the hash's first half, over 2^32. Its slot is the first one
from its home on that is free or has its hash. A taken slot stays taken, and some slots are always free.

A table doubles in place. Homes are then twice as far from its beginning. So slots are moved from the last to the first,
each to a place behind its old one, where only moved slots are. That fails close to the beginning, for slots farther
from their homes than the homes are from the beginning, or with homes at the table's end: these slots are put aside
first and moved last.

Keys are hashed in blocks and their slots prefetched, so that records need not each wait for memory even if the table is
far larger than the processor's caches. The rules of `kernels` apply.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparklog.records.kernels import byte_at, fetch_ahead, helper, kernel, word_at

BLOCK = 64  # records that are hashed before their slots are read
BAD_KEYS = -1

_UNSET = np.uint64(0)
_ONE = np.uint64(1)
_32 = np.uint64(32)


class KeyColumn(NamedTuple):
    """A column of keys in Arrow's form."""

    starts: Any  # int32[records + 1], read-only: start of each in the data, and end of the last
    data: Any  # uint8, read-only
    validity: Any  # uint8, read-only: a bit per record, 0 if its key is null; empty if none is null
    validity_offset: int  # the bit of the first record


@helper
def _rotated(word, bits):
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@helper
def _round(v0, v1, v2, v3):
    v0 += v1
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 += v3
    v3 = _rotated(v3, 16) ^ v2
    v0 += v3
    v3 = _rotated(v3, 21) ^ v0
    v2 += v1
    v1 = _rotated(v1, 17) ^ v2
    v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


@helper
def _last_word(data, position, size):
    """Return the bytes after a key's whole words, with the key's length in the highest byte."""
    word = np.uint64(size & 0xFF) << np.uint64(56)
    rest = size & 7
    if rest and position + 8 <= data.shape[0]:
        return word | (word_at(data, position) & ((_ONE << np.uint64(8 * rest)) - _ONE))
    for i in range(rest):
        word |= np.uint64(byte_at(data, position + i)) << np.uint64(8 * i)
    return word


@helper
def _siphash(data, position, size, seed):
    """Return the SipHash-2-4 with 128 bits of the `size` bytes at `position`; no bounds check.

    https://www.aumasson.jp/siphash/siphash.pdf
    """
    v0 = seed[0] ^ np.uint64(0x736F6D6570736575)
    v1 = seed[1] ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = seed[0] ^ np.uint64(0x6C7967656E657261)
    v3 = seed[1] ^ np.uint64(0x7465646279746573)
    end = position + (size & ~7)
    while position < end:
        word = word_at(data, position)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        position += 8
    word = _last_word(data, position, size)
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


@helper
def _is_null(keys, record):
    bit = keys.validity_offset + record
    return keys.validity.shape[0] != 0 and byte_at(keys.validity, bit >> 3) >> (bit & 7) & 1 == 0


@helper
def _home(first, slots):
    return np.int64((first >> _32) * np.uint64(slots) >> _32)


@helper
def _hash_block(keys, start, end, seed, hashes, table, slots, width):
    """Hash the keys of records [start, end) and prefetch their slots; return False if a key is not in the data."""
    for record in range(start, end):
        position = np.int64(keys.starts[record])
        size = keys.starts[record + 1] - position
        if position < 0 or size < 0 or size > keys.data.shape[0] - position:
            return False
        first, second = _siphash(keys.data, position, size, seed)
        hashes[2 * (record - start)] = first
        hashes[2 * (record - start) + 1] = second
        fetch_ahead(table, _home(first, slots) * width)
    return True


@helper
def _find(table, slots, width, first, second):
    """Return where the key's slot begins: its own, or the free one that it would take."""
    slot = _home(first, slots)
    while True:
        place = slot * width
        if table[place + 2] == _UNSET or (table[place] == first and table[place + 1] == second):
            return place
        slot += 1
        if slot == slots:
            slot = 0


@helper
def _distance(place, slots, width, first):
    """Return how many slots a key's slot is behind its home."""
    distance = place // width - _home(first, slots)
    return distance if distance >= 0 else distance + slots


@helper
def _is_older(table, place, versions, offsets, record):
    """Return whether a record is older than the one in its key's slot."""
    if versions.shape[0]:
        version = np.int64(table[place + 3])
        if versions[record] != version:
            return versions[record] < version
    return offsets[record] < np.int64(table[place + 2]) - 1


@kernel
def put_keys(table, width, most, count, reach, keys, offsets, versions, begin, seed, hashes):
    """Put each key's newest record, from record number `begin` on, until `most` keys are in the table.

    Returns (the next record or BAD_KEYS, keys in the table, greatest distance of a slot behind its key's home).
    """
    slots = table.shape[0] // width
    records = offsets.shape[0]
    for start in range(begin, records, BLOCK):
        end = min(start + BLOCK, records)
        if not _hash_block(keys, start, end, seed, hashes, table, slots, width):
            return BAD_KEYS, count, reach
        for record in range(start, end):
            if _is_null(keys, record):
                continue
            first = hashes[2 * (record - start)]
            second = hashes[2 * (record - start) + 1]
            place = _find(table, slots, width, first, second)
            if table[place + 2] == _UNSET:
                if count >= most:
                    return record, count, reach
                count += 1
                reach = max(reach, _distance(place, slots, width, first))
                table[place] = first
                table[place + 1] = second
            elif _is_older(table, place, versions, offsets, record):
                continue
            table[place + 2] = np.uint64(offsets[record] + 1)
            if versions.shape[0]:
                table[place + 3] = np.uint64(versions[record])
    return records, count, reach


@kernel
def find_survivors(table, width, keys, offsets, versions, seed, hashes, answer):
    """Set `answer` to whether each record has a key and no newer record in the table; return False if keys are bad."""
    slots = table.shape[0] // width
    records = offsets.shape[0]
    for start in range(0, records, BLOCK):
        end = min(start + BLOCK, records)
        if not _hash_block(keys, start, end, seed, hashes, table, slots, width):
            return False
        for record in range(start, end):
            if _is_null(keys, record):
                answer[record] = False
                continue
            place = _find(table, slots, width, hashes[2 * (record - start)], hashes[2 * (record - start) + 1])
            known = table[place + 2] != _UNSET
            answer[record] = not (known and _is_older(table, place, versions, offsets, record))
    return True


@helper
def _move(source, start, table, slots, width):
    """Move a slot's words to their place in the table; return its distance from its home."""
    first = source[start]
    second = source[start + 1]
    offset = source[start + 2]
    version = source[start + width - 1]
    source[start + 2] = _UNSET
    place = _find(table, slots, width, first, second)
    table[place] = first
    table[place + 1] = second
    table[place + width - 1] = version
    table[place + 2] = offset
    return _distance(place, slots, width, first)


@kernel
def spread(table, width, before, aside):
    """Spread the table's first `before` slots over the whole table, which is twice as large.

    `aside` has the first of these slots, which are free in the table: at least twice as many as the greatest distance
    of a slot behind its key's home. Returns that distance after the move.
    """
    slots = table.shape[0] // width
    reach = 0
    for slot in range(before - 1, aside.shape[0] // width - 1, -1):
        if table[slot * width + 2] != _UNSET:
            reach = max(reach, _move(table, slot * width, table, slots, width))
    for start in range(0, aside.shape[0], width):
        if aside[start + 2] != _UNSET:
            reach = max(reach, _move(aside, start, table, slots, width))
    return reach


@kernel
def newest(table, width, offsets):
    """Write the offsets in the table, as many as there is room for; return how many there are."""
    count = 0
    for start in range(0, table.shape[0], width):
        if table[start + 2] != _UNSET:
            if count < offsets.shape[0]:
                offsets[count] = np.int64(table[start + 2]) - 1
            count += 1
    return count


@kernel
def hash_column(keys, seed, hashes):
    """Write the hash of each key, two words; return False if keys are bad."""
    for record in range(keys.starts.shape[0] - 1):
        position = np.int64(keys.starts[record])
        size = keys.starts[record + 1] - position
        if position < 0 or size < 0 or size > keys.data.shape[0] - position:
            return False
        first, second = _siphash(keys.data, position, size, seed)
        hashes[2 * record] = first
        hashes[2 * record + 1] = second
    return True
