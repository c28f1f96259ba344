"""Work that a request asks for, done in slices: after each, whoever else waits for the event loop has a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import TypeVar

SLICE_S = 0.010
FEW = 4
Item = TypeVar("Item")
Part = TypeVar("Part")
Outcome = TypeVar("Outcome")


def in_parts(items: Iterable[Item], weigh: Callable[[Item], int], most: int) -> list[list[Item]]:
    """Neighbours together, up to so much weight in all: one that weighs more is a part. Never empty."""
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
    """At most so many neighbours at a time."""
    return (items[at : at + most] for at in range(0, len(items), most))


class Slices:
    """Of one event loop: between two turns of others there is one slice, however many requests have some to do."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self.few = asyncio.Semaphore(FEW)
        """To be held for as long as a large request that names much is in memory: it takes many times its bytes there,
        and none is served sooner for there being more of them."""

    async def give_way(self) -> None:
        """Let everybody else go on, and those who gave way before."""
        async with self._turn:
            await asyncio.sleep(0)

    async def each_if_many(
        self, items: Sequence[Item], do: Callable[[Item], Awaitable[Outcome]], few: int = 100
    ) -> list[Outcome]:
        """As `each`, but a few items are done in one go, however long that takes."""
        return [await do(item) for item in items] if len(items) <= few else await self.each(items, do)

    async def each(self, parts: Iterable[Part], do: Callable[[Part], Awaitable[Outcome]]) -> list[Outcome]:
        """What `do` returned for each part, in their order. A part is to take a few milliseconds at most."""
        outcomes = []
        began = monotonic()
        for part in parts:
            outcomes.append(await do(part))
            if monotonic() - began > SLICE_S:
                await self.give_way()
                began = monotonic()
        return outcomes
