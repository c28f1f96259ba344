"""`murmur2` of a whole column of keys at once, over the two buffers of an Arrow binary column.

Key i is ``data[offsets[i] : offsets[i + 1]]``. Keys are sorted longest first, so that the keys with words left to hash
are always a prefix of the arrays: no masks are needed, and the work is the number of words in all keys.
A key longer than `LONG_KEY` is hashed alone: one of a megabyte would cost a quarter of a million steps over short
arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparklog.base.murmur2 import MULTIPLIER, SEED, SHIFT, murmur2

LONG_KEY = 256

UInt32s = npt.NDArray[np.uint32]


def murmur2_column(offsets: npt.NDArray[Any], data: npt.NDArray[np.uint8]) -> UInt32s:
    """Return the hash of each key, from 0 to 2^32 - 1; `offsets` has one entry more than there are keys."""
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    hashes = np.empty(len(starts), dtype=np.uint32)
    order = np.argsort(-lengths, kind="stable")
    first_short = int(np.searchsorted(-lengths[order], -LONG_KEY))
    for i in order[:first_short]:
        hashes[i] = murmur2(data[starts[i] : starts[i] + lengths[i]].tobytes())
    short = order[first_short:]
    hashes[short] = _hash_short(starts[short], lengths[short], data)
    return hashes


def partition_column(offsets: npt.NDArray[Any], data: npt.NDArray[np.uint8], partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition, out of `partitions`, that Kafka's default partitioner chooses for each key."""
    positive = murmur2_column(offsets, data) & np.uint32(0x7FFFFFFF)
    return (positive % np.uint32(partitions)).astype(np.int32)


def _hash_short(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> UInt32s:
    """Return the hashes of keys that are sorted longest first."""
    multiplier = np.uint32(MULTIPLIER)
    padded = np.concatenate((data, np.zeros(4, dtype=np.uint8)))
    h = np.uint32(SEED) ^ lengths.astype(np.uint32)
    words = lengths // 4
    for word in range(int(words.max(initial=0))):
        active = int(np.searchsorted(-words, -word))  # keys with more than `word` words
        k = _words_at(padded, starts[:active] + 4 * word) * multiplier
        k = (k ^ (k >> np.uint32(SHIFT))) * multiplier
        h[:active] = (h[:active] * multiplier) ^ k
    rest = lengths % 4
    tail = np.flatnonzero(rest)
    if len(tail):
        bits = (8 * rest[tail]).astype(np.uint32)
        left = _words_at(padded, starts[tail] + 4 * words[tail]) & ((np.uint32(1) << bits) - np.uint32(1))
        h[tail] = (h[tail] ^ left) * multiplier
    h = (h ^ (h >> np.uint32(13))) * multiplier
    return h ^ (h >> np.uint32(15))


def _words_at(data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> UInt32s:
    """Return the four bytes at each position as a little-endian number."""
    word = data[positions].astype(np.uint32)
    for byte in range(1, 4):
        word |= data[positions + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
