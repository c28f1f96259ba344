"""The cluster store for a controller: calls run in a thread, and writes are fenced by the controller epoch.

Every write begins with a check of `/controller_epoch`. If another controller has raised it meanwhile, nothing is
written and the call raises ControllerMoved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from sparklog.base.ids import TopicPartition
from sparklog.cluster.partition_states import (
    Leadership,
    check_controller,
    fenced_multi,
    note_initialized,
    read_states,
    write_states,
)
from sparklog.cluster.store import Delete, Operation, Store
from sparklog.cluster.topics import TopicAssignment

MAX_DELETIONS = 1_000
"""Maximum per transaction, as ZooKeeper limits requests to 1 MiB."""
P = ParamSpec("P")
T = TypeVar("T")


class FencedStore:
    """The store, for one controller from its election to its end."""

    def __init__(self, store: Store, epoch_version: int) -> None:
        self._store = store
        self._epoch_version = epoch_version

    async def read(self, function: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `function` returns, called in a thread with the store and `args`; it may make several reads."""
        return await asyncio.to_thread(function, self._store, *args, **kwargs)

    async def multi(self, operations: Iterable[Operation]) -> None:
        """Do all operations or none. Raises as Store.multi, and ControllerMoved."""
        await self.read(fenced_multi, self._epoch_version, tuple(operations))

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete nodes that no other client deletes. After an error, call again for the nodes that are left."""
        for begin in range(0, len(paths), MAX_DELETIONS):
            await self.multi(Delete(path) for path in paths[begin : begin + MAX_DELETIONS])

    async def read_states(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, Leadership]:
        """Return the partitions' states, without those that have none."""
        return await self.read(read_states, tuple(names))

    async def write_states(self, states: Mapping[TopicPartition, Leadership]) -> dict[TopicPartition, Leadership]:
        """Write states; return the written ones, with their versions. Another writer has changed the others."""
        return await self.read(write_states, dict(states), self._epoch_version) if states else {}

    async def note_initialized(
        self, topics: Mapping[str, TopicAssignment], states: Mapping[TopicPartition, Leadership]
    ) -> None:
        """Record which partitions have a state (partition_states.py)."""
        await self.read(note_initialized, topics, states, self._epoch_version)

    async def check(self) -> None:
        """Raise ControllerMoved if another controller was elected."""
        await self.read(check_controller, self._epoch_version)
