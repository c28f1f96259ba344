"""The cluster store: a small tree of nodes with ZooKeeper's semantics.

A path is ``/`` followed by names with ``/`` between them. A node has data and a version that starts at 0 and grows by
one with each change, so that a writer can insist on changing exactly what it has read (compare and set). A node with
children cannot be deleted, and none can be created under a node that is not there. `multi` does everything or nothing.

Calls block (an engine writes to disk or asks a server) and may come from several threads: an event loop makes them
in a thread. What is written is durable when the call returns. Every engine passes the same contract
suite (tests/cluster/test_store.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from sparklog.base.errors import NodeExists

ANY_VERSION = -1


class Node(NamedTuple):
    """A node's data, and the version it had when it was read."""

    data: bytes
    version: int


class Create(NamedTuple):
    """In `multi`: as `Store.create`."""

    path: str
    data: bytes = b""


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

    def get(self, path: str) -> Node:
        """Raises NoNode."""
        ...

    def exists(self, path: str) -> bool: ...

    def children(self, path: str) -> list[str]:
        """Names (not paths) of the nodes directly under `path`, sorted; raises NoNode."""
        ...

    def create(self, path: str, data: bytes = b"") -> None:
        """Raises NodeExists, or NoNode where the parent is not there."""
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

    def close(self) -> None: ...


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
