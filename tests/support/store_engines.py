"""The engines that the contract of cluster stores is tested with, each as something that opens stores on one tree."""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Protocol
from unittest import mock

from kazoo.client import KazooClient

from sparklog.base.errors import ConnectionLoss
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.store import Operation, Store
from sparklog.cluster.zookeeper import ZookeeperStore
from support.patience import PATIENCE_MS, PATIENCE_S
from support.processes.zookeeper import ZooKeeperServer

SESSION_TIMEOUT_MS = 60_000
"""No session ends by itself: where one is to, the engine's `expire` ends it."""


class Told:
    """What watches and listeners were told, in order."""

    def __init__(self) -> None:
        self._queue: queue.Queue[object] = queue.Queue()

    def __call__(self, what: object) -> None:
        self._queue.put(what)

    def next(self) -> object:
        try:
            return self._queue.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError("nothing more was told") from None

    def rest(self) -> list[object]:
        found = []
        while not self._queue.empty():
            found.append(self._queue.get())
        return found


def settle(store: Store) -> None:
    """Return when the store has called every watch that was due."""
    told = Told()
    path = store.create("/settle_", sequential=True)
    store.get(path, told)
    store.delete(path)
    assert told.next() == path


class DyingStore(MemoryStore):
    """Of a broker that dies after some more writes."""

    writes_left = math.inf

    def multi(self, operations: Iterable[Operation]) -> None:
        if self.writes_left <= 0:
            raise ConnectionLoss("its broker is dead")
        super().multi(operations)
        self.writes_left -= 1


def dying_after_each_write(
    prepare: Callable[[MemoryStore], object], work: Callable[[MemoryStore], object]
) -> Iterator[MemoryStore]:
    """Yield stores on which `work` was cut off, after no write, after one, and so on until it is done.

    prepare: called first, with each store
    """
    for writes in count():
        store = DyingStore(MemoryTree())
        prepare(store)
        store.writes_left = writes
        try:
            work(store)
        except ConnectionLoss:
            store.writes_left = math.inf
            yield store
        else:
            return


class Engine(Protocol):
    def open(self) -> Store:
        """A store on the tree that all stores of this engine share."""
        ...

    def expire(self, store: Store) -> None:
        """End the store's session as if its time were over."""
        ...

    def close(self) -> None: ...


class MemoryEngine:
    def __init__(self) -> None:
        self._tree = MemoryTree()

    def open(self) -> MemoryStore:
        return MemoryStore(self._tree)

    def expire(self, store: Store) -> None:
        self._tree.expire(store.session_id)

    def close(self) -> None:
        pass


class SqliteEngine:
    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "cluster.sqlite")
        self._opened: list[SqliteStore] = []

    def open(self) -> SqliteStore:
        self._opened.append(SqliteStore.open(self._path, session_timeout_ms=SESSION_TIMEOUT_MS))
        return self._opened[-1]

    def expire(self, store: Store) -> None:
        other = SqliteStore.open(self._path)
        other.end_session(store.session_id)
        other.close()

    def close(self) -> None:
        for store in self._opened:
            store.close()


class ZookeeperEngine:
    """Each has a tree of its own on the server."""

    _trees = count()

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._hosts = f"{server.address}/tree-{next(self._trees)}"
        self._opened: list[ZookeeperStore] = []

    def open(self) -> ZookeeperStore:
        opened = ZookeeperStore.open(
            self._hosts, session_timeout_ms=SESSION_TIMEOUT_MS, connection_timeout_ms=PATIENCE_MS
        )
        self._opened.append(opened)
        return opened

    def expire(self, store: Store) -> None:
        """Another client takes the session over, and closes it, while the store cannot return to take it back."""
        assert isinstance(store, ZookeeperStore)
        with mock.patch.object(store._client.handler, "create_connection", side_effect=ConnectionRefusedError):
            thief = KazooClient(self._hosts, client_id=store._client.client_id)
            thief.start(timeout=PATIENCE_S)
            thief.stop()
            thief.close()

    def close(self) -> None:
        for store in self._opened:
            store.close()
