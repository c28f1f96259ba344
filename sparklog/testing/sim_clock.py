"""Clocks of a test: one stands still until it is told to move, one goes with an event loop's time."""

from __future__ import annotations

import asyncio


class SimClock:
    """Implements Clock: both readings start at given times and move by `advance` only."""

    def __init__(self, time_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._time_ms = time_ms
        self._monotonic_ms = monotonic_ms

    def time_ms(self) -> int:
        return self._time_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, milliseconds: int) -> None:
        """Let time pass; raises ValueError where it would go back."""
        if milliseconds < 0:
            raise ValueError(f"cannot advance by {milliseconds} ms")
        self._time_ms += milliseconds
        self._monotonic_ms += milliseconds


class LoopClock:
    """Implements Clock on the time of an event loop; its wall time can be made to jump, its monotonic time cannot."""

    def __init__(self, loop: asyncio.AbstractEventLoop, time_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        self._offset_ms = time_ms

    def time_ms(self) -> int:
        return self._offset_ms + int(self._loop.time() * 1000)

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward, or back."""
        self._offset_ms += milliseconds
