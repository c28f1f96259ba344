"""The engines that the contract of cluster stores is tested with, each as something that opens stores on one tree."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Protocol

from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.store import SessionState, Store

PATIENCE_S = 20
SESSION_TIMEOUT_MS = 4_000


class Told:
    """What watches and listeners were told, in order."""

    def __init__(self) -> None:
        self._queue: queue.Queue[object] = queue.Queue()

    def __call__(self, what: str | SessionState) -> None:
        self._queue.put(what)

    def next(self) -> object:
        return self._queue.get(timeout=PATIENCE_S)

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
        self._opened.append(SqliteStore(self._path, session_timeout_ms=SESSION_TIMEOUT_MS))
        return self._opened[-1]

    def expire(self, store: Store) -> None:
        other = SqliteStore(self._path)
        other.end_session(store.session_id)
        other.close()

    def close(self) -> None:
        for store in self._opened:
            store.close()
