"""Work that comes round again on the event loop, one task for each kind of work.

The next run is due an interval after the last one ended, so a run that takes long is never doubled. A run that fails is
logged and the next one comes all the same: the work must be such that a later run makes up for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)


class Schedule:
    """The running tasks; `stop` ends them."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, interval_ms: int, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do `work` each `interval_ms`, for the first time one interval from now; never where it is 0."""
        if interval_ms > 0:
            self._tasks.append(asyncio.create_task(_repeat(interval_ms, name, work), name=name))

    async def stop(self) -> None:
        """End all tasks; a run that is under way is cancelled at its next await."""
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
