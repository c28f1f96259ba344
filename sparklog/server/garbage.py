"""Short garbage collections in a process with much state.

A full collection visits every object that is not frozen, and stops the event loop: for a tenth of a second with the
groups of a large broker. Objects that survive a long full collection are long-lived. They are frozen, so that later
collections skip them. Frozen objects are still freed with their last reference; only cycles of them are not.
"""

from __future__ import annotations

import gc
from time import perf_counter
from typing import Any

LONG_S = 0.010
FULL = 2
"""The generation of full collections."""


class GarbageFreezer:
    """A callback of `gc.callbacks`."""

    def __init__(self, long_s: float = LONG_S) -> None:
        self._long_s = long_s
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != FULL:
            return
        if phase == "start":
            self._began = perf_counter()
        elif perf_counter() - self._began > self._long_s:
            gc.freeze()


def freeze_long_lived() -> None:
    """Freeze all present objects, and from now on those that survive a long collection."""
    gc.collect()
    gc.freeze()
    gc.callbacks.append(GarbageFreezer())
