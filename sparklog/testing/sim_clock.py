"""A clock that stands still until it is told to move."""

from __future__ import annotations


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
