"""Work on something that only one at a time may change, such as a file: each piece runs to its end, whoever asked.

A caller that is cancelled stops waiting; its work goes on, and who comes next still waits for it. So nothing is closed
or removed under a thread that writes to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar
from weakref import WeakKeyDictionary

Result = TypeVar("Result")


class SerialExecutor:
    """A line for each key. Used on one event loop."""

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[Hashable, asyncio.Lock] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[object]] = set()

    async def run(self, key: Hashable, work: Callable[[], Awaitable[Result]]) -> Result:
        """What `work` returns or raises, once it has had its turn."""
        lock = self._locks.setdefault(key, asyncio.Lock())

        async def take_turn() -> Result:
            async with lock:
                return await work()

        task = asyncio.create_task(take_turn())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def run_in_thread(self, key: Hashable, work: Callable[[], Result]) -> Result:
        """The same with work that blocks."""
        return await self.run(key, lambda: asyncio.to_thread(work))

    async def settled(self) -> None:
        """Return once nothing runs."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; if nobody did, it is nobody's
