"""Remote time of a request: its waits for other clients' records, other replicas or members of its group.

Remote time (RemoteTimeMs of kafka.network.RequestMetrics) is not the broker's time, as the request does no work
meanwhile. The code that runs requests sets `OBSERVER` in each request's context. The code that lets a request wait
wraps the wait in `waiting_for_others`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Protocol


class WaitObserver(Protocol):
    """Observes the waits of a request, including waits in background work that the request started."""

    def wait_begins(self) -> None:
        """Record the beginning of a wait; others may be in progress."""
        ...

    def wait_ends(self) -> None:
        """Record the end of a wait."""
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
        """Seconds of work until now; waits in progress count as work."""
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
