"""The events of a simulation in order: a digest of all, and the text of the last ones."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator

KEPT = 400


class Trace:
    """Records events. Two runs with equal digests did the same things at the same times."""

    def __init__(self, now: Callable[[], float], *, keeps: int = KEPT) -> None:
        self._now = now
        self._digest = hashlib.blake2b(digest_size=8)
        self._last: deque[str] = deque(maxlen=keeps)
        self._events: list[str] = []

    def note(self, text: str) -> None:
        """Record a detail; only those right before a failure are shown."""
        line = f"{self._now():11.6f} {text}"
        self._digest.update(line.encode())
        self._last.append(line)

    def event(self, text: str) -> None:
        """Record an event that is always shown, such as a fault or a change of leader."""
        self.note(text)
        self._events.append(self._last[-1])

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def events(self) -> Iterator[str]:
        return iter(self._events)

    def last(self, count: int) -> list[str]:
        return list(self._last)[-count:]
