"""The cluster store: a small tree of nodes with ZooKeeper's semantics.

A path is ``/`` followed by names with ``/`` between them. A node has data and a version that starts at 0 and grows by
one with each change, so that a writer can insist on changing exactly what it has read (compare and set). A node with
children cannot be deleted, and none can be created under a node that is not there. `multi` does everything or nothing.

    ephemeral node     belongs to the session of who created it, and goes when that ends. It has no children.
    sequential node    gets ten digits after its name: the number of nodes that were created under its parent before
    watch              a function, given with a read. It is called once, with the path, after what was read has
                       changed; also where it changed while the store could not be reached. It says only that there is
                       something new: who wants to know what, reads again, and watches again with that.
                       `get`: changed or deleted. `exists`: created, changed or deleted. `children`: one was created or
                       deleted under the path, or the path itself deleted. After SUSPENDED an engine may call all that
                       are set, though nothing has changed.
    session            begins with the store object. SUSPENDED: the store cannot be reached at the moment, nothing is
                       lost yet. EXPIRED: its ephemeral nodes and its watches are gone, for good; all watches that were
                       set are called. The object begins another session by itself and says CONNECTED: who needs
                       ephemeral nodes creates them again.

Calls block (an engine writes to disk or asks a server) and may come from several threads: an event loop makes them
in a thread. Watches and session listeners are called on a thread of the engine's: they must be quick, must not raise
and must not call the store; an event loop is told with `call_soon_threadsafe`. What is written is durable when the call
returns. A call that cannot reach the store within the session's time-out raises ConnectionLoss: a write may have been
done, or not. Every engine passes the same contract suite (tests/cluster/test_store.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple, Protocol

from sparklog.base.errors import NodeExists

ANY_VERSION = -1
NO_OWNER = 0
Watch = Callable[[str], None]


class SessionState(Enum):
    """What a session listener is told."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


SessionListener = Callable[[SessionState], None]


class Node(NamedTuple):
    """A node as it was read."""

    data: bytes
    version: int
    created: int = 0
    """Grows with every node that is created in the store: tells a node from one that was there before (czxid)."""
    owner: int = NO_OWNER
    """The id of the session whose ephemeral node it is."""


class Create(NamedTuple):
    """In `multi`: as `Store.create`."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


class Set(NamedTuple):
    """In `multi`: as `Store.set`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """In `multi`: as `Store.delete`."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """In `multi`: the node must have this version."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


class Store(Protocol):
    """A tree of nodes that several brokers can share."""

    @property
    def session_id(self) -> int:
        """Of the session that lasts now; the owner of ephemeral nodes that are created now."""
        ...

    def listen(self, listener: SessionListener) -> None:
        """Tell `listener` of every change of the session's state from now on."""
        ...

    def get(self, path: str, watch: Watch | None = None) -> Node:
        """Raises NoNode, with no watch set."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> bool: ...

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names (not paths) of the nodes directly under `path`, sorted; raises NoNode, with no watch set."""
        ...

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """The path, with its number if sequential. Raises NodeExists, or NoNode where the parent is not there."""
        ...

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """The new version. Raises NoNode, or BadVersion where the node is not at `version`."""
        ...

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNode, NotEmpty, or BadVersion where the node is not at `version`."""
        ...

    def multi(self, operations: Iterable[Operation]) -> None:
        """Do all in their order, or none; raises what the first that cannot be done would raise."""
        ...

    def newest_change(self) -> int:
        """The number of the newest change that this client knows of (zxid): a store that has fewer has lost some."""
        ...

    def close(self) -> None:
        """End the session: its ephemeral nodes go at once."""
        ...


def parent_of(path: str) -> str:
    """``/a/b`` is the parent of ``/a/b/c``; the root's parent is ''."""
    return path.rpartition("/")[0] or ("/" if path != "/" else "")


def ensure_path(store: Store, path: str) -> None:
    """Create the node and those above it, as far as they are not there."""
    if path == "/" or store.exists(path):
        return
    ensure_path(store, parent_of(path))
    try:
        store.create(path)
    except NodeExists:
        return  # another broker was quicker


def subtree(store: Store, path: str) -> list[str]:
    """`path` and everything under it, children before their parents: the order in which to delete them."""
    prefix = path.rstrip("/")
    below = [found for name in store.children(path) for found in subtree(store, f"{prefix}/{name}")]
    return [*below, path]
