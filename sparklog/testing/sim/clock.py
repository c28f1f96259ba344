"""Two clocks for tests: SimClock moves only when a test moves it, LoopClock follows the time of an event loop."""

from __future__ import annotations

import asyncio


class SimClock:
    """A clock for tests. Implements Clock. Both readings start at given times, in ms, and move only by `advance`."""

    def __init__(self, time_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._time_ms = time_ms
        self._monotonic_ms = monotonic_ms

    def time_ms(self) -> int:
        return self._time_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, milliseconds: int) -> None:
        """Move both readings forward. Raise ValueError if `milliseconds` is negative."""
        if milliseconds < 0:
            raise ValueError(f"cannot advance by {milliseconds} ms")
        self._time_ms += milliseconds
        self._monotonic_ms += milliseconds


class LoopClock:
    """A clock that follows the time of an event loop. Implements Clock.

    `jump` shifts its wall time only; `drift` makes both readings run too fast or too slowly.
    """

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
        """From now on, count each second of the loop as `rate` seconds."""
        now = self._loop.time()
        self._shown_ms += (now - self._since) * 1000 * self._rate
        self._since, self._rate = now, rate

    def jump(self, milliseconds: int) -> None:
        """Move the wall time forward, or back if `milliseconds` is negative."""
        self._offset_ms += milliseconds
