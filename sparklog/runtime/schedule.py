"""Periodic work on the event loop, with one task per kind of work.

The next run starts one interval after the last one ended, so runs never overlap. A failed run is logged, and the next
one follows as usual: a later run must repair what an earlier one missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)


class PeriodicTasks:
    """The periodic tasks; `stop` ends them."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, interval_ms: int, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Run `work` every `interval_ms`, first one interval from now; never if `interval_ms` is 0."""
        if interval_ms > 0:
            self._tasks.append(asyncio.create_task(_repeat(interval_ms, name, work), name=name))

    async def stop(self) -> None:
        """End all tasks; a current run is cancelled at its next await."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


async def _repeat(interval_ms: int, name: str, work: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await work()
        except Exception:
            logger.exception("%s failed; the next run is in %d ms", name, interval_ms)
