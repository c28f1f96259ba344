"""The trace of a simulation: a digest of all lines, all events, and the text of the last lines."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator

KEPT = 400


class Trace:
    """All lines of a run with their virtual times. Two runs with the same digest did the same at the same times."""

    def __init__(self, now: Callable[[], float], *, keeps: int = KEPT) -> None:
        self._now = now
        self._digest = hashlib.blake2b(digest_size=8)
        self._last: deque[str] = deque(maxlen=keeps)
        self._events: list[str] = []

    def note(self, text: str) -> None:
        """Add a line that explains only a failure right after it."""
        line = f"{self._now():11.6f} {text}"
        self._digest.update(line.encode())
        self._last.append(line)

    def event(self, text: str) -> None:
        """Add a line that is always worth showing, such as a fault or a change of leaders."""
        self.note(text)
        self._events.append(self._last[-1])

    @property
    def digest(self) -> str:
        """Return the digest of all lines so far, in hexadecimal."""
        return self._digest.hexdigest()

    def events(self) -> Iterator[str]:
        """Return all lines that were added as events, oldest first."""
        return iter(self._events)

    def last(self, count: int) -> list[str]:
        """Return the last `count` lines, or fewer if the trace keeps fewer."""
        return list(self._last)[-count:]
