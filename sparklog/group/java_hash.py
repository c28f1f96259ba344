"""String.hashCode of Java: by it a group's id says which partition of the offsets topic the group belongs to."""

from __future__ import annotations

import sys
from functools import lru_cache

LONG = 200
"""An id of more characters is not remembered: a client could fill the memory with them."""


def java_hash(text: str) -> int:
    """Over UTF-16 code units, as a signed number of 32 bits."""
    return _remembered(text) if len(text) <= LONG else _long(text)


@lru_cache(maxsize=10_000)
def _remembered(text: str) -> int:
    value = 0
    for unit in memoryview(_units(text)).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return _signed(value)


def _long(text: str) -> int:
    """The same, a column at a time: one by one, the units of 30,000 characters would take milliseconds."""
    import numpy as np  # takes a tenth of a second, which a broker without such ids need not wait for

    units = np.frombuffer(_units(text), np.uint16)[::-1]
    powers = np.full(len(units), 31, np.uint32)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    return _signed(int((units * powers).sum(dtype=np.uint32)))


def _units(text: str) -> bytes:
    return text.encode("utf-16-le" if sys.byteorder == "little" else "utf-16-be", "surrogatepass")


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
