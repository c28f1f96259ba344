"""The embedded cluster store: the tree in one SQLite file, for one broker or several on the same machine.

    node(path, parent, data, version)       one row for each node; the root is always there

A write is one transaction, synced to disk before the call returns (write-ahead log, synchronous=FULL); after a crash
each transaction is there as a whole or not at all. Writers of several processes wait for one another
for up to `BUSY_TIMEOUT_S`. The path ":memory:" makes a store that lives as long as the object.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sparklog.base.errors import BadVersion, NodeExists, NoNode, NotEmpty, StoreError
from sparklog.cluster.store import ANY_VERSION, Check, Create, Delete, Node, Operation, Set, parent_of

BUSY_TIMEOUT_S = 10

_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS node_parent ON node (parent);
INSERT OR IGNORE INTO node VALUES ('/', '', x'', 0);
"""


class SqliteStore:
    """Implements Store; the calls of several threads take turns."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            if not self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'node_parent'").fetchone():
                self._db.executescript("BEGIN IMMEDIATE;" + _SCHEMA + "COMMIT;")
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from None

    def get(self, path: str) -> Node:
        with self._reading():
            return self._get(path)

    def exists(self, path: str) -> bool:
        with self._reading():
            return self._find(path) is not None

    def children(self, path: str) -> list[str]:
        with self._reading():
            self._get(path)
            rows = self._db.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
            return [found.rpartition("/")[2] for (found,) in rows]

    def create(self, path: str, data: bytes = b"") -> None:
        self.multi((Create(path, data),))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        with self._writing():
            return self._set(path, data, version)

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self.multi((Delete(path, version),))

    def multi(self, operations: Iterable[Operation]) -> None:
        with self._writing():
            for operation in operations:
                match operation:
                    case Create(path, data):
                        self._create(path, data)
                    case Set(path, data, version):
                        self._set(path, data, version)
                    case Delete(path, version):
                        self._delete(path, version)
                    case Check(path, version):
                        self._check(path, version)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise StoreError(str(error)) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._reading():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _find(self, path: str) -> Node | None:
        row = self._db.execute("SELECT data, version FROM node WHERE path = ?", (path,)).fetchone()
        return Node(*row) if row else None

    def _get(self, path: str) -> Node:
        node = self._find(path)
        if node is None:
            raise NoNode(path)
        return node

    def _check(self, path: str, version: int) -> None:
        node = self._get(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(f"{path} is at version {node.version}, not {version}")

    def _create(self, path: str, data: bytes) -> None:
        if self._find(path):
            raise NodeExists(path)
        parent = parent_of(path)
        self._get(parent)
        self._db.execute("INSERT INTO node VALUES (?, ?, ?, 0)", (path, parent, data))

    def _set(self, path: str, data: bytes, version: int) -> int:
        self._check(path, version)
        self._db.execute("UPDATE node SET data = ?, version = version + 1 WHERE path = ?", (data, path))
        return self._get(path).version

    def _delete(self, path: str, version: int) -> None:
        self._check(path, version)
        if self._db.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise NotEmpty(path)
        self._db.execute("DELETE FROM node WHERE path = ?", (path,))
