"""The tables of the embedded cluster store, and the operations on them within one transaction.

    node(path, parent, data, version,       one row per node; the root always exists. created: number of the change that
         created, owner, creations)         created the node; creations: number of nodes ever created directly under it
    change(number, path, kind)              the last `CHANGES_KEPT` changes of nodes, without a gap, for the watches
    session(id, timeout_ms, beats)          current sessions; `beats` grows while their process lives. No id is used
                                            twice

A write is one transaction in a write-ahead log. After a crash the file has the whole write or none of it, and a write
only with all earlier ones. `sync` flushes the writes to disk. Unlike SQLite's synchronous=FULL, it runs outside of the
transaction: other processes need not wait for the disk, and a process that is stopped (SIGSTOP) seldom holds the file's
lock. A file without the tables for sessions gets them when it is opened.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple, Self

from sparklog.base.errors import (
    BadVersion,
    ConnectionLoss,
    NodeExists,
    NoNode,
    NotEmpty,
    StoreError,
)
from sparklog.cluster.store import ANY_VERSION, NO_OWNER, Check, Create, Delete, Node, Operation, Set, parent_of
from sparklog.cluster.watches import ChangeKind, NodeChange

CHANGES_KEPT = 10_000
OPEN_RETRY_S = 0.02
NOT_OPEN = -1
IN_MEMORY = ":memory:"
SCHEMA_VERSION = 1
PRIVATE = 0o600

_FIRST_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS node (path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, "
    "version INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS node_parent ON node (parent)",
    "INSERT OR IGNORE INTO node (path, parent, data, version) VALUES ('/', '', x'', 0)",
)
_SESSIONS_SCHEMA = (
    *(f"ALTER TABLE node ADD COLUMN {name} INTEGER NOT NULL DEFAULT 0" for name in ("created", "owner", "creations")),
    "CREATE INDEX node_owner ON node (owner) WHERE owner != 0",
    "CREATE TABLE change (number INTEGER PRIMARY KEY, path TEXT NOT NULL, kind TEXT NOT NULL)",
    "CREATE TABLE session (id INTEGER PRIMARY KEY AUTOINCREMENT, timeout_ms INTEGER NOT NULL, beats INTEGER NOT NULL)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


class SessionRow(NamedTuple):
    """A row of `session`."""

    session_id: int
    timeout_ms: int
    beats: int


class SqliteTree:
    """One connection to the file. The caller must ensure that only one thread uses it at a time.

    Every method raises ConnectionLoss if the file cannot be read or written at the moment.
    """

    def __init__(self, path: str, db: sqlite3.Connection, wal_fd: int) -> None:
        self._path = path
        self._db = db
        self._wal_fd = wal_fd

    @classmethod
    def open(cls, path: str, *, busy_timeout_s: float) -> Self:
        """Return a connection to the file, which is created if there is none. Blocks. Raises StoreError."""
        deadline = time.monotonic() + busy_timeout_s
        while True:
            try:
                _keep_private(path)
                return cls(path, *_connect(path, busy_timeout_s))
            except sqlite3.OperationalError as error:
                # two processes create the file at once: SQLite does not wait when it sets the journal mode
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise StoreError(f"{path}: {error}") from None
                time.sleep(OPEN_RETRY_S)
            except (sqlite3.Error, OSError) as error:
                raise StoreError(f"{path}: {error}{_what_to_do(path, error)}") from None

    def close(self) -> None:
        """Close the file; `sync` then does nothing."""
        self._db.close()
        if self._wal_fd != NOT_OPEN:
            os.close(self._wal_fd)
            self._wal_fd = NOT_OPEN

    def sync(self) -> None:
        """Flush all writes to disk. May be called while another thread uses the connection. Raises ConnectionLoss."""
        try:
            if self._wal_fd != NOT_OPEN:
                os.fsync(self._wal_fd)
        except OSError as error:
            raise ConnectionLoss(f"{self._path}: {error}") from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Run a read transaction: all reads within it see the same state."""
        with self._transaction("BEGIN"):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run a write transaction: all writes within it are done, or none."""
        with self._transaction("BEGIN IMMEDIATE"):
            yield

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        try:
            self._db.execute(begin)
            try:
                yield
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            raise ConnectionLoss(str(error)) from error
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}{_what_to_do(self._path, error)}") from error

    def data_version(self) -> int:
        """Return a number that changes when another connection has written. Raises ConnectionLoss."""
        try:
            return int(self._db.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error as error:
            raise ConnectionLoss(str(error)) from error

    def find(self, path: str) -> Node | None:
        """Return the node; None if there is none."""
        row = self._db.execute("SELECT data, version, created, owner FROM node WHERE path = ?", (path,)).fetchone()
        return Node(*row) if row else None

    def get(self, path: str) -> Node:
        """Return the node. Raises NoNode."""
        node = self.find(path)
        if node is None:
            raise NoNode(path)
        return node

    def names(self, path: str) -> list[str]:
        """Return the names (not paths) of the nodes directly under `path`, sorted. Raises NoNode."""
        self.get(path)
        rows = self._db.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
        return [found.rpartition("/")[2] for (found,) in rows]

    def owned_by(self, session_id: int) -> list[str]:
        """Return the paths of a session's nodes, sorted."""
        rows = self._db.execute("SELECT path FROM node WHERE owner = ? ORDER BY path", (session_id,))
        return [path for (path,) in rows]

    def next_in_sequence(self, path: str) -> str:
        """Return `path` with the number of its parent's next sequential node. Raises NoNode."""
        row = self._db.execute("SELECT creations FROM node WHERE path = ?", (parent_of(path),)).fetchone()
        if row is None:
            raise NoNode(parent_of(path))
        return f"{path}{row[0]:010}"

    def apply(self, operations: Sequence[Operation], session_id: int) -> list[NodeChange]:
        """Do all operations, and return the changes in their order, without checks.

        session_id: the owner of the ephemeral nodes. Raises StoreError if an operation fails: the caller's transaction
        (`writing`) then undoes the others.
        """
        changes = []
        number = self.newest_change()
        for operation in operations:
            match operation:
                case Create(path, data, ephemeral, sequential):
                    path = self.next_in_sequence(path) if sequential else path
                    self._create(path, data, number + 1, session_id if ephemeral else NO_OWNER)
                    changes.append(NodeChange(path, ChangeKind.CREATED))
                case Set(path, data, version):
                    self._check(path, version)
                    self._db.execute("UPDATE node SET data = ?, version = version + 1 WHERE path = ?", (data, path))
                    changes.append(NodeChange(path, ChangeKind.CHANGED))
                case Delete(path, version):
                    self._delete(path, version)
                    changes.append(NodeChange(path, ChangeKind.DELETED))
                case Check(path, version):
                    self._check(path, version)
                    continue
            number += 1
            self._db.execute("INSERT INTO change VALUES (?, ?, ?)", (number, changes[-1].path, changes[-1].kind.value))
        self._db.execute("DELETE FROM change WHERE number <= ?", (number - CHANGES_KEPT,))
        return changes

    def _check(self, path: str, version: int) -> None:
        node = self.get(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(f"{path} is at version {node.version}, not {version}")

    def _create(self, path: str, data: bytes, number: int, owner: int) -> None:
        if self.find(path):
            raise NodeExists(path)
        parent = parent_of(path)
        if self.get(parent).owner != NO_OWNER:
            raise StoreError(f"{parent} is ephemeral: it has no children")
        self._db.execute("UPDATE node SET creations = creations + 1 WHERE path = ?", (parent,))
        self._db.execute("INSERT INTO node VALUES (?, ?, ?, 0, ?, ?, 0)", (path, parent, data, number, owner))

    def _delete(self, path: str, version: int) -> None:
        self._check(path, version)
        if self._db.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise NotEmpty(path)
        self._db.execute("DELETE FROM node WHERE path = ?", (path,))

    def newest_change(self) -> int:
        """Return the number of the newest change; 0 if there was none."""
        return int(self._db.execute("SELECT max(number) FROM change").fetchone()[0] or 0)

    def changes_since(self, number: int) -> list[NodeChange] | None:
        """Return the changes after `number`; None if some of them are no longer kept."""
        rows = self._db.execute("SELECT number, path, kind FROM change WHERE number > ? ORDER BY number", (number,))
        found = rows.fetchall()
        if found and found[0][0] > number + 1:
            return None
        return [NodeChange(path, ChangeKind(kind)) for _, path, kind in found]

    def begin_session(self, timeout_ms: int) -> int:
        """Return the id of a new session. timeout_ms: time without renewal after which other processes may end it"""
        added = self._db.execute("INSERT INTO session (timeout_ms, beats) VALUES (?, 0)", (timeout_ms,))
        return int(added.lastrowid or NO_OWNER)

    def has_session(self, session_id: int) -> bool:
        """Return whether the session has not ended."""
        return self._db.execute("SELECT 1 FROM session WHERE id = ?", (session_id,)).fetchone() is not None

    def renew_session(self, session_id: int) -> bool:
        """Renew the session and return whether it still exists."""
        return self._db.execute("UPDATE session SET beats = beats + 1 WHERE id = ?", (session_id,)).rowcount > 0

    def sessions(self) -> list[SessionRow]:
        """Return all sessions that have not ended, in the order of their ids."""
        return [SessionRow(*row) for row in self._db.execute("SELECT id, timeout_ms, beats FROM session ORDER BY id")]

    def end_session(self, session_id: int) -> None:
        """End the session and delete its ephemeral nodes."""
        self.apply([Delete(path) for path in self.owned_by(session_id)], session_id)
        self._db.execute("DELETE FROM session WHERE id = ?", (session_id,))


def _connect(path: str, busy_timeout_s: float) -> tuple[sqlite3.Connection, int]:
    """Return a connection to the file with its tables, and a descriptor of the -wal file or NOT_OPEN."""
    with ExitStack() as opened:
        db = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)
        opened.callback(db.close)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        if _schema_version(db) < SCHEMA_VERSION:
            db.execute("BEGIN IMMEDIATE")
            if _schema_version(db) < SCHEMA_VERSION:  # no other process has done it meanwhile
                for statement in (*_FIRST_SCHEMA, *_SESSIONS_SCHEMA):
                    db.execute(statement)
            db.execute("COMMIT")
        wal_fd = NOT_OPEN if path == IN_MEMORY else os.open(f"{path}-wal", os.O_RDONLY)
        opened.pop_all()
    return db, wal_fd


def _schema_version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _what_to_do(path: str, error: Exception) -> str:
    """Return advice if the file is damaged, else an empty text."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code
    if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return ""
    return (
        f"; stop all brokers that use it, move {path}, {path}-wal and {path}-shm away together, and start them again: "
        "topics come back from the log directories"
    )


def _keep_private(path: str) -> None:
    """Create the file if it is missing, readable for its owner only: it holds values that verify users' passwords.

    SQLite gives new -wal and -shm files the same mode; those of a process that was killed keep theirs. Raises OSError.
    """
    if path == IN_MEMORY:
        return
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE))
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(PermissionError, FileNotFoundError):  # another user owns and shares the file; or it is gone
            if os.stat(name).st_mode & ~PRIVATE & 0o777:
                os.chmod(name, PRIVATE)
