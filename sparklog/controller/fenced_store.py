"""The cluster store as a controller uses it: in a thread, and only as long as no other controller was elected.

Every write begins with a check of `/controller_epoch`; where another controller has raised it meanwhile, nothing is
written and ControllerMoved is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from sparklog.base.ids import TopicPartition
from sparklog.cluster.partition_states import Leadership, check_controller, fenced_multi, read_states, write_states
from sparklog.cluster.store import Delete, Operation, Store

MAX_DELETIONS = 1_000
"""In one transaction: ZooKeeper takes requests of 1 MiB."""
P = ParamSpec("P")
T = TypeVar("T")


class FencedStore:
    """The store, for one controller from its election to its end."""

    def __init__(self, store: Store, epoch_version: int) -> None:
        self._store = store
        self._epoch_version = epoch_version

    async def read(self, function: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` with the store and `args` in a thread; it may make several reads."""
        return await asyncio.to_thread(function, self._store, *args, **kwargs)

    async def multi(self, operations: Iterable[Operation]) -> None:
        """Do all or nothing. Raises as Store.multi, and ControllerMoved."""
        await self.read(fenced_multi, self._epoch_version, tuple(operations))

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete nodes that nobody else deletes. All are gone, or what is left may be asked for again."""
        for begin in range(0, len(paths), MAX_DELETIONS):
            await self.multi(Delete(path) for path in paths[begin : begin + MAX_DELETIONS])

    async def read_states(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, Leadership]:
        return await self.read(read_states, tuple(names))

    async def write_states(self, states: Mapping[TopicPartition, Leadership]) -> dict[TopicPartition, Leadership]:
        """Those that were written, with their version; who is missing was changed by another meanwhile."""
        return await self.read(write_states, dict(states), self._epoch_version) if states else {}

    async def check(self) -> None:
        """Raises ControllerMoved."""
        await self.read(check_controller, self._epoch_version)
