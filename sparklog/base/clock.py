"""Time as an argument, so that a test or a simulation controls it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall time and monotonic time, both in milliseconds."""

    def time_ms(self) -> int:
        """Return the wall time since the Unix epoch: for timestamps; may jump either way."""
        ...

    def monotonic_ms(self) -> int:
        """Return a time that never goes back: for time-outs and intervals."""
        ...


class SystemClock:
    """The machine's own clock. Implements Clock."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
