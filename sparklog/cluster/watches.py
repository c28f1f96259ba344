"""The watches that a store object has set and that have not been called, for engines that keep them themselves.

As in ZooKeeper, a function that is set twice on the same thing is called once.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sparklog.cluster.store import Watch, parent_of


class ChangeKind(Enum):
    """What has happened to a node."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


class Change(NamedTuple):
    """One node's change."""

    path: str
    kind: ChangeKind


class Call(NamedTuple):
    """A watch that is to be called, with the path it was set on."""

    watch: Watch
    path: str


class Watches:
    """Not for several threads at once."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[Watch, None]] = {}
        self._children: dict[str, dict[Watch, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._nodes or self._children)

    def on_node(self, path: str, watch: Watch) -> None:
        """For `get` and `exists`."""
        self._nodes.setdefault(path, {})[watch] = None

    def on_children(self, path: str, watch: Watch) -> None:
        self._children.setdefault(path, {})[watch] = None

    def take(self, change: Change) -> list[Call]:
        """The watches that the change is for, in the order in which they were set; they are set no more."""
        path, kind = change
        calls = _taken(self._nodes, path)
        if kind is ChangeKind.CHANGED:
            return calls
        if kind is ChangeKind.DELETED:
            calls += _taken(self._children, path)
        return calls + _taken(self._children, parent_of(path))

    def take_all(self) -> list[Call]:
        return [
            call
            for watches in (self._nodes, self._children)
            for path in list(watches)
            for call in _taken(watches, path)
        ]


def _taken(watches: dict[str, dict[Watch, None]], path: str) -> list[Call]:
    return [Call(watch, path) for watch in watches.pop(path, ())]
