"""Splits the work of a large request into slices; between slices, other tasks get the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

SLICE_S = 0.010
FEW = 4
Item = TypeVar("Item")
Part = TypeVar("Part")
Outcome = TypeVar("Outcome")


def in_parts(items: Iterable[Item], weigh: Callable[[Item], int], most: int) -> list[list[Item]]:
    """Split items into runs of at most `most` total weight; a heavier item is a part of its own.

    Returns at least one part; for no items, it is empty.
    """
    parts: list[list[Item]] = [[]]
    weight = 0
    for item in items:
        more = weigh(item)
        if weight + more > most and parts[-1]:
            parts.append([])
            weight = 0
        parts[-1].append(item)
        weight += more
    return parts


def of_many(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    """Return an iterator over runs of at most `most` items, in their order."""
    return (items[at : at + most] for at in range(0, len(items), most))


class Slices:
    """Slices of one event loop: one slice at a time between turns of other tasks, for all requests together."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._thread = asyncio.Lock()
        self._slice_ends: float | None = None
        """End of the slice of the requests that have begun in this iteration of the event loop."""
        self.few = asyncio.Semaphore(FEW)
        """Held while a large request with many names is in memory. Such a request takes many times its bytes there, and
        serving several at once makes none faster."""

    async def in_thread(self, do: Callable[[], Outcome]) -> Outcome:
        """Return the result of `do`, run in a thread, one at a time: computing threads slow the event loop."""
        async with self._thread:
            return await asyncio.to_thread(do)

    async def begin(self) -> None:
        """Count a request that rarely yields against the current slice. Yield first if the slice is used up.

        A hundred such requests may arrive in one iteration of the event loop.
        """
        loop = asyncio.get_running_loop()
        if self._slice_ends is None:
            self._slice_ends = loop.time() + SLICE_S
            loop.call_soon(self._end_turn)
        elif loop.time() >= self._slice_ends:
            await self.give_way()

    def _end_turn(self) -> None:
        self._slice_ends = None

    async def give_way(self) -> None:
        """Let other tasks run; those that gave way earlier come first."""
        async with self._turn:
            await asyncio.sleep(0)

    async def each_if_many(
        self, items: Sequence[Item], do: Callable[[Item], Awaitable[Outcome]], few: int = 100
    ) -> list[Outcome]:
        """Return as `each` does, but process up to `few` items in one slice."""
        return [await do(item) for item in items] if len(items) <= few else await self.each(items, do)

    async def each(self, parts: Iterable[Part], do: Callable[[Part], Awaitable[Outcome]]) -> list[Outcome]:
        """Return the result of `do` for each part, in order. A part should take a few milliseconds at most."""
        outcomes = []
        time = asyncio.get_running_loop().time  # virtual time in simulations, so that they are deterministic
        began = time()
        for part in parts:
            outcomes.append(await do(part))
            if time() - began > SLICE_S:
                await self.give_way()
                began = time()
        return outcomes
