"""Java's String.hashCode, by which an id selects its partition of an internal topic, and so its coordinator.

A group belongs to a partition of `__consumer_offsets`, a transactional id to one of `__transaction_state`.
"""

from __future__ import annotations

import sys
from functools import lru_cache

LONG = 200
"""Hashes of longer ids are not cached: a client could fill the memory with such ids."""


def java_hash(text: str) -> int:
    """Return the hash over the UTF-16 code units of `text`, as a signed 32-bit number."""
    return _hash_cached(text) if len(text) <= LONG else _hash_long(text)


def partition_for(key: str, count: int) -> int:
    """Return the partition, of `count`, that Apache Kafka's coordinators choose for an id."""
    return _absolute(java_hash(key)) % count


def _absolute(number: int) -> int:
    """Return the absolute value, or 0 for -2^31, as org.apache.kafka.common.utils.Utils.abs does."""
    return 0 if number == -(1 << 31) else abs(number)


@lru_cache(maxsize=10_000)
def _hash_cached(text: str) -> int:
    value = 0
    for unit in memoryview(_utf16_units(text)).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return _to_signed(value)


def _hash_long(text: str) -> int:
    """Hash a long text with NumPy: a Python loop over 30,000 characters would take milliseconds."""
    import numpy as np  # imported here: it takes a tenth of a second, and most brokers have no such ids

    units = np.frombuffer(_utf16_units(text), np.uint16)[::-1]
    powers = np.full(len(units), 31, np.uint32)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    return _to_signed(int((units * powers).sum(dtype=np.uint32)))


def _utf16_units(text: str) -> bytes:
    return text.encode("utf-16-le" if sys.byteorder == "little" else "utf-16-be", "surrogatepass")


def _to_signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
