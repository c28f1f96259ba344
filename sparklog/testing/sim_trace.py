"""What happened in a simulation, in its order: a digest of all of it, and the last lines in words."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator

KEPT = 400


class Trace:
    """Two runs with the same digest did the same at the same times."""

    def __init__(self, now: Callable[[], float], *, keeps: int = KEPT) -> None:
        self._now = now
        self._digest = hashlib.blake2b(digest_size=8)
        self._last: deque[str] = deque(maxlen=keeps)
        self._events: list[str] = []

    def note(self, text: str) -> None:
        """Something that is of interest only right before a failure."""
        line = f"{self._now():11.6f} {text}"
        self._digest.update(line.encode())
        self._last.append(line)

    def event(self, text: str) -> None:
        """Something that is worth showing whenever it happened: a fault, a change of leaders."""
        self.note(text)
        self._events.append(self._last[-1])

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def events(self) -> Iterator[str]:
        return iter(self._events)

    def last(self, count: int) -> list[str]:
        return list(self._last)[-count:]
