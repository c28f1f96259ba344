"""Clocks for tests: one moves only when told, the other follows an event loop's time."""

from __future__ import annotations

import asyncio


class SimClock:
    """Implements Clock: both readings start at given times, and only `advance` moves them."""

    def __init__(self, time_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._time_ms = time_ms
        self._monotonic_ms = monotonic_ms

    def time_ms(self) -> int:
        return self._time_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, milliseconds: int) -> None:
        """Move both readings forward. Raises ValueError if the number is negative."""
        if milliseconds < 0:
            raise ValueError(f"cannot advance by {milliseconds} ms")
        self._time_ms += milliseconds
        self._monotonic_ms += milliseconds


class LoopClock:
    """Implements Clock on the time of an event loop. Its wall time can jump; its monotonic time cannot. Both can
    run too fast or too slowly."""

    def __init__(self, loop: asyncio.AbstractEventLoop, time_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        self._offset_ms = time_ms
        self._rate = 1.0
        self._since = self._shown_ms = 0.0

    def time_ms(self) -> int:
        return self._offset_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._shown_ms + (self._loop.time() - self._since) * 1000 * self._rate)

    def drift(self, rate: float) -> None:
        """From now on, count `rate` seconds for each second of the loop."""
        now = self._loop.time()
        self._shown_ms += (now - self._since) * 1000 * self._rate
        self._since, self._rate = now, rate

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward; a negative number sets it back."""
        self._offset_ms += milliseconds
