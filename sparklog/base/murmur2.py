"""Murmur2, the hash of Kafka's default partitioner: 32 bits, with the seed 0x9747b28c.

A record with a key goes to partition ``(murmur2(key) & 0x7fffffff) % partitions``, so all clients that follow this rule
put a key in the same partition, whatever their language. (org.apache.kafka.common.utils.Utils.murmur2 and toPositive;
the hash has the same bits, but is unsigned here.) `sparklog/base/murmur2_column.py` hashes a column of keys.
"""

from __future__ import annotations

import struct

from sparklog.base.fs import Buffer

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
SHIFT = 24
_MASK = 0xFFFFFFFF


def murmur2(key: Buffer) -> int:
    """Return the hash of `key`, from 0 to 2^32 - 1."""
    length = len(key)
    whole = length // 4
    h = SEED ^ length
    for word in struct.unpack_from(f"<{whole}I", key):
        k = word * MULTIPLIER & _MASK
        h = h * MULTIPLIER & _MASK ^ (k ^ k >> SHIFT) * MULTIPLIER & _MASK
    if length % 4:
        h = (h ^ int.from_bytes(key[whole * 4 :], "little")) * MULTIPLIER & _MASK
    h = (h ^ h >> 13) * MULTIPLIER & _MASK
    return h ^ h >> 15


def partition_for_key(key: Buffer, partitions: int) -> int:
    """Return the partition, out of `partitions`, that Kafka's default partitioner chooses for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
