"""How long an event loop is kept from everybody else, in calls of functions: their number is the same on any machine,
whatever else it does.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from unittest import mock

from sparklog.testing import RunningBroker

MOST_CALLS = 150_000
"""What a broker may do in one turn of its event loop: some 50 ms."""


@dataclass
class Most:
    """The calls of the longest callback or step of a task so far, and what that was."""

    calls: int = 0
    what: str = ""
    total: int = 0
    """Of all turns."""


@contextmanager
def most_calls(broker: RunningBroker) -> Iterator[Most]:
    """Counts what the broker's event loop does in each turn, until the end of the block."""
    with most_calls_of(broker.run(_running_loop())) as most:
        yield most


@contextmanager
def most_calls_of(loop: asyncio.AbstractEventLoop) -> Iterator[Most]:
    """Counts what the event loop does in each turn, until the end of the block."""
    most = Most()
    run = asyncio.Handle._run

    def watched(handle: asyncio.Handle) -> None:
        if handle._loop is not loop:
            return run(handle)
        calls = 0

        def count(_: FrameType, event: str, __: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            run(handle)
        finally:
            sys.setprofile(None)
        most.total += calls
        if calls > most.calls:
            most.calls, most.what = calls, repr(handle)
        return None

    with mock.patch.object(asyncio.Handle, "_run", watched):
        yield most


def fewest_calls(broker: RunningBroker, ask: Callable[[], object], attempts: int = 3) -> Most:
    """What `ask` costs the broker: the attempt with the smallest share of the broker's other work."""
    counted: list[Most] = []
    for _ in range(attempts):
        with most_calls(broker) as most:
            ask()
        counted.append(most)
    return min(counted, key=lambda most: most.total)


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
