"""Remote time of a request: its waits for other clients' records, other replicas or members of its group.

That time is neither the broker's nor the network's (RemoteTimeMs of kafka.network.RequestMetrics), and the request does
no work meanwhile. The code that runs requests sets `OBSERVER` in each request's context; the code that lets a request
wait wraps the wait in `waiting_for_others`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Protocol


class WaitObserver(Protocol):
    """Is called when a request starts and stops waiting; also for waits in background work that the request started."""

    def wait_begins(self) -> None:
        """Take the beginning of a wait; another may be under way."""
        ...

    def wait_ends(self) -> None:
        """Take the end of a wait."""
        ...


class WorkTimer:
    """Measures a request from its creation: how long it works, and how long it waits for others.

    Implements WaitObserver.
    """

    __slots__ = ("_began", "_waits_since", "remote_s")

    def __init__(self) -> None:
        self._began = monotonic()
        self._waits_since = 0.0
        self.remote_s = 0.0
        """Seconds of the waits that have ended."""

    def wait_begins(self) -> None:
        self._waits_since = self._waits_since or monotonic()

    def wait_ends(self) -> None:
        if self._waits_since:
            self.remote_s += monotonic() - self._waits_since
            self._waits_since = 0.0

    @property
    def local_s(self) -> float:
        """Seconds of work until now; waits that have not ended count."""
        return monotonic() - self._began - self.remote_s


OBSERVER: ContextVar[WaitObserver | None] = ContextVar("OBSERVER", default=None)


@contextmanager
def waiting_for_others() -> Iterator[None]:
    """Report that the current request waits for others inside the block."""
    observer = OBSERVER.get()
    if observer is None:
        yield
        return
    observer.wait_begins()
    try:
        yield
    finally:
        observer.wait_ends()
