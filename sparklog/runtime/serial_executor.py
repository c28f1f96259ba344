"""Runs work on a resource, such as a file, that only one caller at a time may change.

A cancelled caller stops waiting. Its work still runs to its end, and later work for the key waits for it. So a resource
is never closed or removed while a thread writes to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar
from weakref import WeakKeyDictionary

Result = TypeVar("Result")


class SerialExecutor:
    """A queue for each key. Used on one event loop."""

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[Hashable, asyncio.Lock] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[object]] = set()

    async def run(self, key: Hashable, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run `work` after earlier work for `key`; return or raise what `work` does."""
        lock = self._locks.setdefault(key, asyncio.Lock())

        async def run_next() -> Result:
            async with lock:
                return await work()

        task = asyncio.create_task(run_next())
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return await asyncio.shield(task)

    async def run_in_thread(self, key: Hashable, work: Callable[[], Result]) -> Result:
        """Return as `run` does, for blocking work: it runs in a thread."""
        return await self.run(key, lambda: asyncio.to_thread(work))

    async def settled(self) -> None:
        """Wait until no work is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _on_done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved, in place of a cancelled caller
