"""How tests wait: for what is to happen, never for some time to pass.

A limit is there to notice what hangs. That a machine is busy, or stands still for a while, is nothing to be noticed: a
limit is many times what the slowest machine takes. It is less than pytest's limit for a whole test, which could not say
what was waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 120
PATIENCE_MS = PATIENCE_S * 1000
OPEN_MS = 600_000
"""The timeout of transactions that stay open while something takes its time."""
EVERY_S = 0.01
Found = TypeVar("Found")
Tell = Callable[[], object]


def nothing() -> str:
    return ""


def wait_until(
    find: Callable[[], Found | None],
    what: str,
    *,
    tell: Tell = nothing,
    every_s: float = EVERY_S,
    patience_s: float = PATIENCE_S,
) -> Found:
    """What `find` finds, asked again while that is nothing; fails with `what` was waited for, and what `tell` says."""
    deadline = time.monotonic() + patience_s
    while not (found := find()):
        assert time.monotonic() < deadline, f"waited {patience_s} s until {what}\n{tell()}"
        time.sleep(every_s)
    return found


async def until(find: Callable[[], Found | None], what: str, *, tell: Tell = nothing, every_s: float = 0.001) -> Found:
    """As `wait_until`, while everything else on the event loop goes on."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := find()):
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s until {what}\n{tell()}"
        await asyncio.sleep(every_s)
    return found
