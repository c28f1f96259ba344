"""The part of a request's time that it waits for others: other clients' records, other replicas, members of its group.

That time is neither the broker's nor the network's (RemoteTimeMs of kafka.network.RequestMetrics), and a request that
waits so does no work. Whoever runs requests sets `OBSERVER` in the context of each; whoever makes one wait for others
says so with `waiting_for_others`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class WaitObserver(Protocol):
    """Who wants to know when a request waits. What a request began and does not wait for may tell of waits too."""

    def wait_begins(self) -> None: ...

    def wait_ends(self) -> None: ...


OBSERVER: ContextVar[WaitObserver | None] = ContextVar("OBSERVER", default=None)


@contextmanager
def waiting_for_others() -> Iterator[None]:
    """The request that runs waits for others inside the block."""
    observer = OBSERVER.get()
    if observer is None:
        yield
        return
    observer.wait_begins()
    try:
        yield
    finally:
        observer.wait_ends()
