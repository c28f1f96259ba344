"""Sizes and times in options, as Spark writes them: ``512m`` is a number of bytes, ``15m`` is a quarter of an hour."""

from __future__ import annotations

import re

_BYTES = {
    "": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40, "p": 50, "pb": 50,
}  # fmt: skip
_MILLISECONDS = {
    "": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_QUANTITY = re.compile(r"(\d{1,18})\s*([a-z]*)")


def parse_bytes(raw: str) -> int:
    """Return a number of bytes: ``1048576``, ``1024k``, ``1mb``. A unit is 1024 of the next smaller one.

    Raises ValueError or KeyError.
    """
    count, unit = _split(raw)
    return count << _BYTES[unit]


def parse_time_ms(raw: str) -> int:
    """Return a time in ms: ``90s``, ``15m``, ``1h``; without a unit it is in ms. Raises ValueError or KeyError."""
    count, unit = _split(raw)
    return count * _MILLISECONDS[unit]


def _split(raw: str) -> tuple[int, str]:
    found = _QUANTITY.fullmatch(raw.strip().lower())
    if found is None:
        raise ValueError(raw)
    return int(found[1]), found[2]
