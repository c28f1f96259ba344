"""Many writes of a controller, and writes of a deposed one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sparklog.base.errors import ControllerMoved
from sparklog.cluster.elections import CONTROLLER_EPOCH, ControllerElection, elect
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.store import Operation
from sparklog.controller.fenced_store import MAX_DELETIONS, FencedStore


class CountingStore(MemoryStore):
    """Records the number of operations of each transaction."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.counts: list[int] = []

    def multi(self, operations: Iterable[Operation]) -> None:
        asked = tuple(operations)
        self.counts.append(len(asked))
        super().multi(asked)


def elected(store: CountingStore) -> ControllerElection:
    found = elect(store, 1, "d1", time_ms=0)
    assert isinstance(found, ControllerElection)
    return found


def notices(store: CountingStore, count: int) -> list[str]:
    store.create("/notices")
    return [store.create("/notices/n_", sequential=True) for _ in range(count)]


async def test_more_nodes_are_deleted_than_one_transaction_takes() -> None:
    store = CountingStore(MemoryTree())
    fenced = FencedStore(store, elected(store).epoch_version)
    paths = notices(store, 2 * MAX_DELETIONS + 1)
    store.counts.clear()
    await fenced.delete(paths)
    assert store.children("/notices") == []
    assert [count - 1 for count in store.counts] == [MAX_DELETIONS, MAX_DELETIONS, 1]  # each has the fence, too


async def test_a_deposed_controller_deletes_nothing() -> None:
    store = CountingStore(MemoryTree())
    fenced = FencedStore(store, elected(store).epoch_version)
    paths = notices(store, 2)
    store.set(CONTROLLER_EPOCH, b"2", store.get(CONTROLLER_EPOCH).version)
    with pytest.raises(ControllerMoved):
        await fenced.delete(paths)
    assert len(store.children("/notices")) == 2
