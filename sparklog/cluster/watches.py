"""The watches of a store object, for engines that keep watches themselves.

As in ZooKeeper, a function that is set twice for the same path and kind is called once.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sparklog.cluster.store import Watch, parent_of


class ChangeKind(Enum):
    """The kind of a node's change."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


class NodeChange(NamedTuple):
    """A change of one node."""

    path: str
    kind: ChangeKind


class WatchCall(NamedTuple):
    """A watch to call, with the path on which it was set."""

    watch: Watch
    path: str


class Watches:
    """The watches of one store object. Not thread-safe."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[Watch, None]] = {}
        self._children: dict[str, dict[Watch, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._nodes or self._children)

    def on_node(self, path: str, watch: Watch) -> None:
        """Set a watch for `get` or `exists`."""
        self._nodes.setdefault(path, {})[watch] = None

    def on_children(self, path: str, watch: Watch) -> None:
        """Set a watch for `children`."""
        self._children.setdefault(path, {})[watch] = None

    def take(self, change: NodeChange) -> list[WatchCall]:
        """Remove and return the watches that the change triggers, in the order in which they were set."""
        path, kind = change
        calls = _taken(self._nodes, path)
        if kind is ChangeKind.CHANGED:
            return calls
        if kind is ChangeKind.DELETED:
            calls += _taken(self._children, path)
        return calls + _taken(self._children, parent_of(path))

    def take_all(self) -> list[WatchCall]:
        """Remove and return all watches, because a session has ended or changes may have been missed."""
        return [
            call
            for watches in (self._nodes, self._children)
            for path in list(watches)
            for call in _taken(watches, path)
        ]


def _taken(watches: dict[str, dict[Watch, None]], path: str) -> list[WatchCall]:
    return [WatchCall(watch, path) for watch in watches.pop(path, ())]
