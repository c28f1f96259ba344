"""How much a test of chance does: a little in `make test`, and in `make soak` more, as its seed says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")
VARIABLE = "SPARKLOG_SOAK_SEED"
SEED = int(os.environ[VARIABLE]) if VARIABLE in os.environ else None
"""Of this soak's round; None: this is no soak."""


def seeds(count: int, *, soak: int) -> range:
    """The same `count` seeds in each `make test`; in a soak `soak` of them, others in each round."""
    return range(count) if SEED is None else range(SEED * 1_000, SEED * 1_000 + soak)


def first(count: int, of: Sequence[Item]) -> Sequence[Item]:
    """The first `count` of what there is to do; in a soak all of it."""
    return of[:count] if SEED is None else of


def examples(count: int) -> int:
    """How many examples Hypothesis tries; ten times as many in a soak."""
    return count if SEED is None else 10 * count
