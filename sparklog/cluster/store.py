"""The cluster store: a small tree of nodes with ZooKeeper's semantics.

A path is ``/`` followed by names with ``/`` between them. A node has data and a version. The version starts at 0 and
grows by one with each change, for compare and set. A node with children cannot be deleted, and a node can be created
only under an existing parent. `multi` is atomic.

    ephemeral node     belongs to the session that created it, and is deleted when that session ends. It has no
                       children.
    sequential node    gets ten digits after its name: the number of nodes that were created under its parent before
    watch              a function, given with a read. The engine calls it once, with the path, after the state that was
                       read has changed, also if it changed while the store could not be reached. A watch only says
                       that something has changed: its owner reads again, and sets a new watch with that read.
                       `get`: changed or deleted. `exists`: created, changed or deleted. `children`: a node was created
                       or deleted under the path, or the path itself deleted. After SUSPENDED an engine may call all
                       watches, though nothing has changed.
    session            begins with the store object. SUSPENDED: the store cannot be reached at the moment; the session
                       may go on. EXPIRED: the session's ephemeral nodes and watches are gone, and all its watches are
                       called. The object begins another session by itself and reports CONNECTED; owners of ephemeral
                       nodes create them again.

Calls block (an engine writes to disk or calls a server) and may come from several threads; asyncio code calls them in a
thread. The engine calls watches and session listeners on a thread of its own: they must be quick, must not raise and
must not call the store; they notify an event loop with `call_soon_threadsafe`. A write is durable when its call
returns. A call that cannot reach the store within the session time-out raises ConnectionLoss: a write may have been
done, or not. Every engine passes the same contract suite (tests/cluster/test_store.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple, Protocol

from sparklog.base.errors import NodeExists, NoNode

ANY_VERSION = -1
NO_OWNER = 0
Watch = Callable[[str], None]


class SessionState(Enum):
    """State of a session, as its listeners get it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


SessionListener = Callable[[SessionState], None]


class Node(NamedTuple):
    """The data and metadata of a node, as read."""

    data: bytes
    version: int
    created: int = 0
    """Grows with every node created in the store, so it tells a node from an earlier one at the same path (czxid)."""
    owner: int = NO_OWNER
    """Id of the session that owns the ephemeral node; NO_OWNER for other nodes."""


class Create(NamedTuple):
    """Operation of `multi`: as `Store.create`."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """Operation of `multi`: as `Store.set`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Operation of `multi`: as `Store.delete`."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Operation of `multi`: the node must have this version."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


class Store(Protocol):
    """A tree of nodes that several brokers can share."""

    @property
    def session_id(self) -> int:
        """Id of the current session, which owns the ephemeral nodes that are created now."""
        ...

    def listen(self, listener: SessionListener) -> None:
        """Call `listener` at every change of the session's state from now on."""
        ...

    def get(self, path: str, watch: Watch | None = None) -> Node:
        """Return the node. Raises NoNode, with no watch set."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> bool:
        """Return whether there is a node; the watch is set in either case."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names (not paths) of the nodes directly under `path`, sorted. Raises NoNode, with no watch set."""
        ...

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Create a node and return its path, with its number if sequential.

        Raises NodeExists, or NoNode if the parent does not exist.
        """
        ...

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Set the data and return the new version. Raises NoNode, or BadVersion if the node is not at `version`."""
        ...

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node. Raises NoNode, NotEmpty, or BadVersion if the node is not at `version`."""
        ...

    def multi(self, operations: Iterable[Operation]) -> None:
        """Do all operations in their order, or none. Raises the error of the first one that fails."""
        ...

    def newest_change(self) -> int:
        """Return the number of the newest change that this client knows (zxid); a lower one shows lost changes."""
        ...

    def close(self) -> None:
        """End the session and delete its ephemeral nodes at once."""
        ...


def parent_of(path: str) -> str:
    """Return the parent's path: ``/a/b`` for ``/a/b/c``, '' for the root."""
    return path.rpartition("/")[0] or ("/" if path != "/" else "")


def find_node(store: Store, path: str) -> Node | None:
    """Return the node; None if there is none."""
    try:
        return store.get(path)
    except NoNode:
        return None


def encode_json(value: Mapping[str, Any]) -> bytes:
    """Return a value as the JSON of a node's data, without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def ensure_path(store: Store, path: str) -> None:
    """Create the node and its ancestors, if they do not exist."""
    ensure_paths(store, (path,))


def ensure_paths(store: Store, paths: Iterable[str]) -> None:
    """Create the nodes and their ancestors that do not exist, in one write: each write waits for a disk."""
    paths = tuple(paths)
    while missing := dict.fromkeys(each for path in paths for each in _missing(store, path)):
        with suppress(NodeExists):  # another broker has created some of them
            store.multi(map(Create, missing))


def _missing(store: Store, path: str) -> list[str]:
    """Return the paths of the node and its ancestors that do not exist, parents first."""
    if path in ("", "/") or store.exists(path):
        return []
    return [*_missing(store, parent_of(path)), path]


def subtree(store: Store, path: str) -> list[str]:
    """Return `path` and all paths under it in the order of deletion: children before their parents."""
    prefix = path.rstrip("/")
    below = [found for name in store.children(path) for found in subtree(store, f"{prefix}/{name}")]
    return [*below, path]
