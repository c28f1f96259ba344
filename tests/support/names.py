"""Names for what tests make in a broker that they share: a test may run again, and its topic is there already."""

from __future__ import annotations

import itertools

COUNT = itertools.count(1)


def unique(name: str) -> str:
    """The name with a number that nobody else has in this process."""
    return f"{name}-{next(COUNT)}"
