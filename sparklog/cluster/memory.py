"""A cluster store in memory, for simulations and tests. It depends on neither time nor threads.

Several brokers share a `MemoryTree`; each has its own `MemoryStore` with a session. Tests inject faults:

    tree.expire(session_id)     the session ends: its ephemeral nodes are deleted. A connected store's listeners are
                                called; until then its calls raise SessionExpired. Those of a disconnected store are
                                called when it reconnects.
    store.disconnect()          its calls raise ConnectionLoss, and its watches are not called
    store.reconnect()           its missed watches are called now
    store.abandon()             its process was killed: no more calls; its session lasts until it expires
    store.lose_next_answer()    the next write is done, but its caller gets ConnectionLoss

Watches and session listeners are called one by one, in order, each through `call_soon` (an event loop's, or one that
delays). Without `call_soon` they are called before the call that caused them returns.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

from sparklog.base.errors import (
    BadVersion,
    ConnectionLoss,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    StoreError,
)
from sparklog.cluster.store import (
    ANY_VERSION,
    NO_OWNER,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    SessionListener,
    SessionState,
    Set,
    Watch,
    parent_of,
)
from sparklog.cluster.watches import ChangeKind, NodeChange, WatchCall, Watches

Work = Callable[[], None]


class NodesCopy(NamedTuple):
    """A copy of a tree."""

    nodes: dict[str, Node]
    names: dict[str, set[str]]
    creations: dict[str, int]
    newest_change: int


class Nodes(Protocol):
    """The nodes of a tree, and their changes."""

    def newest_change(self) -> int:
        """Return the number of the newest change; 0 if there was none."""

    def find(self, path: str) -> Node | None:
        """Return the node; None if there is none."""

    def names(self, path: str) -> list[str]:
        """Return the names of the nodes under `path`, sorted. Raises NoNode."""

    def owned_by(self, session_id: int) -> list[str]:
        """Return the paths of a session's nodes, sorted."""

    def next_in_sequence(self, path: str) -> str:
        """Return `path` with the number of its parent's next sequential node. Raises NoNode."""

    def apply(self, operations: Sequence[Operation], session_id: int) -> list[NodeChange]:
        """Do all operations, or none, and return the changes in their order; checks are none. Raises StoreError.

        session_id: of the session that owns the ephemeral nodes
        """

    def copy(self) -> Any:
        """Return a copy of the whole tree."""

    def go_back(self, copy: Any) -> None:
        """Restore a copy, as if an older file of the store had been restored."""


class MemoryNodes:
    """Implements Nodes."""

    def __init__(self) -> None:
        self._nodes = {"/": Node(b"", 0)}
        self._names: dict[str, set[str]] = {"/": set()}
        self._creations: dict[str, int] = {"/": 0}
        """Number of nodes that were ever created under each path."""
        self._created = 0
        self._newest_change = 0

    def newest_change(self) -> int:
        return self._newest_change

    def copy(self) -> NodesCopy:
        names = {path: set(each) for path, each in self._names.items()}
        return NodesCopy(dict(self._nodes), names, dict(self._creations), self._newest_change)

    def go_back(self, copy: NodesCopy) -> None:
        self._nodes, self._newest_change = dict(copy.nodes), copy.newest_change
        self._names = {path: set(each) for path, each in copy.names.items()}
        self._creations = dict(copy.creations)

    def find(self, path: str) -> Node | None:
        return self._nodes.get(path)

    def get(self, path: str) -> Node:
        """Return the node. Raises NoNode."""
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def names(self, path: str) -> list[str]:
        self.get(path)
        return sorted(self._names[path])

    def owned_by(self, session_id: int) -> list[str]:
        return sorted(path for path, node in self._nodes.items() if node.owner == session_id)

    def next_in_sequence(self, path: str) -> str:
        parent = parent_of(path)
        self.get(parent)
        return f"{path}{self._creations[parent]:010}"

    def apply(self, operations: Sequence[Operation], session_id: int) -> list[NodeChange]:
        undo: list[Work] = []
        try:
            changes = [self._apply(operation, session_id, undo) for operation in operations]
        except StoreError:
            for step in reversed(undo):
                step()
            raise
        done = [change for change in changes if change]
        self._newest_change += len(done)
        return done

    def _apply(self, operation: Operation, session_id: int, undo: list[Work]) -> NodeChange | None:
        match operation:
            case Create(path, data, ephemeral, sequential):
                path = self.next_in_sequence(path) if sequential else path
                self._create(path, data, session_id if ephemeral else NO_OWNER, undo)
                return NodeChange(path, ChangeKind.CREATED)
            case Set(path, data, version):
                node = self._checked(path, version)
                undo.append(partial(self._nodes.__setitem__, path, node))
                self._nodes[path] = node._replace(data=data, version=node.version + 1)
                return NodeChange(path, ChangeKind.CHANGED)
            case Delete(path, version):
                self._delete(path, version, undo)
                return NodeChange(path, ChangeKind.DELETED)
            case Check(path, version):
                self._checked(path, version)
                return None

    def _checked(self, path: str, version: int) -> Node:
        node = self.get(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(f"{path} is at version {node.version}, not {version}")
        return node

    def _create(self, path: str, data: bytes, owner: int, undo: list[Work]) -> None:
        if path in self._nodes:
            raise NodeExists(path)
        parent = parent_of(path)
        if self.get(parent).owner != NO_OWNER:
            raise StoreError(f"{parent} is ephemeral: it has no children")
        self._created += 1
        self._put(path, Node(data, 0, self._created, owner), creations=0)
        undo.append(partial(self._remove, path))
        self._creations[parent] += 1
        undo.append(partial(self._creations.__setitem__, parent, self._creations[parent] - 1))

    def _delete(self, path: str, version: int, undo: list[Work]) -> None:
        node = self._checked(path, version)
        if self._names[path]:
            raise NotEmpty(path)
        undo.append(partial(self._put, path, node, creations=self._creations[path]))
        self._remove(path)

    def _put(self, path: str, node: Node, *, creations: int) -> None:
        self._nodes[path], self._names[path], self._creations[path] = node, set(), creations
        self._names[parent_of(path)].add(path.rpartition("/")[2])

    def _remove(self, path: str) -> None:
        del self._nodes[path], self._names[path], self._creations[path]
        self._names[parent_of(path)].remove(path.rpartition("/")[2])


class MemoryTree:
    """The nodes and the sessions that all stores of a cluster share."""

    def __init__(self, nodes: Nodes | None = None) -> None:
        self.lock = threading.RLock()
        self.nodes = nodes or MemoryNodes()
        self._stores: dict[int, MemoryStore] = {}
        self._sessions = 0

    @property
    def newest_change(self) -> int:
        """The number of the newest change."""
        return self.nodes.newest_change()

    def begin_session(self, store: MemoryStore) -> int:
        """Return the id of a new session of a store; no id is used twice."""
        with self.lock:
            self._sessions += 1
            self._stores[self._sessions] = store
            return self._sessions

    def has_session(self, session_id: int) -> bool:
        """Return whether the session has not ended."""
        return session_id in self._stores

    def expire(self, session_id: int) -> None:
        """End a session. Do nothing if it has already ended."""
        with self.lock:
            store = self._stores.pop(session_id, None)
            if store is None:
                return
            self.change([Delete(path) for path in self.nodes.owned_by(session_id)], session_id)
            store.session_ended()

    def find(self, path: str) -> Node | None:
        """Return the node; None if there is none."""
        return self.nodes.find(path)

    def get(self, path: str) -> Node:
        """Return the node. Raises NoNode."""
        node = self.nodes.find(path)
        if node is None:
            raise NoNode(path)
        return node

    def names(self, path: str) -> list[str]:
        """Return the names of the nodes under `path`, sorted. Raises NoNode."""
        return self.nodes.names(path)

    def next_in_sequence(self, path: str) -> str:
        """Return `path` with the number of its parent's next sequential node. Raises NoNode."""
        return self.nodes.next_in_sequence(path)

    def change(self, operations: Iterable[Operation], session_id: int) -> None:
        """Do all operations or none, and report the changes to all stores."""
        done = self.nodes.apply(tuple(operations), session_id)
        for store in list(self._stores.values()):
            store.notice(done)


def _at_once(work: Work) -> None:
    work()


class MemoryStore:
    """Implements Store."""

    def __init__(self, tree: MemoryTree, *, call_soon: Callable[[Work], object] = _at_once) -> None:
        self._tree = tree
        self._call_soon = call_soon
        self._watches = Watches()
        self._listeners: list[SessionListener] = []
        self._due: deque[Work] = deque()
        self._missed: list[WatchCall] = []
        """Watches to call when the store is connected again."""
        self._is_connected = True
        self._is_over = False
        self._loses_answer = False
        self._session_id = tree.begin_session(self)

    @property
    def session_id(self) -> int:
        return self._session_id

    def listen(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def get(self, path: str, watch: Watch | None = None) -> Node:
        with self._reaching():
            node = self._tree.get(path)
            if watch:
                self._watches.on_node(path, watch)
            return node

    def exists(self, path: str, watch: Watch | None = None) -> bool:
        with self._reaching():
            if watch:
                self._watches.on_node(path, watch)
            return self._tree.find(path) is not None

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        with self._reaching():
            names = self._tree.names(path)
            if watch:
                self._watches.on_children(path, watch)
            return names

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        with self._reaching():
            if sequential:
                path = self._tree.next_in_sequence(path)
            self.multi((Create(path, data, ephemeral),))
            return path

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        with self._reaching():
            self.multi((Set(path, data, version),))
            return self._tree.get(path).version

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self.multi((Delete(path, version),))

    def multi(self, operations: Iterable[Operation]) -> None:
        with self._reaching():
            self._tree.change(operations, self._session_id)
            if self._loses_answer:
                self._loses_answer = False
                raise ConnectionLoss("the answer was lost")

    def newest_change(self) -> int:
        with self._reaching():
            return self._tree.newest_change

    def close(self) -> None:
        with self._tree.lock:
            self._is_over = True
            if self._is_connected:
                self._tree.expire(self._session_id)

    def disconnect(self) -> None:
        """Lose the connection: listeners are told, and calls raise ConnectionLoss until `reconnect`."""
        with self._tree.lock:
            if self._is_connected:
                self._is_connected = False
                self._schedule(partial(self._announce, SessionState.SUSPENDED))

    def reconnect(self) -> None:
        """Restore the connection: missed watches are called; if the session has ended, another begins."""
        with self._tree.lock:
            if self._is_connected:
                return
            self._is_connected = True
            if not self._tree.has_session(self._session_id):
                self._schedule(self._begin_again)
                return
            self._schedule(partial(self._announce, SessionState.CONNECTED))
            self._call(self._missed)
            self._missed = []

    def abandon(self) -> None:
        """Act as if the process were killed: listeners and watches are not called, and calls fail."""
        self._is_over, self._is_connected = True, False

    def lose_next_answer(self) -> None:
        """Let the next write be done, and raise ConnectionLoss to its caller."""
        self._loses_answer = True

    def notice(self, changes: Sequence[NodeChange]) -> None:
        """Take the changes that the tree reports, in their order."""
        calls = [call for change in changes for call in self._watches.take(change)]
        if self._is_connected:
            self._call(calls)
        else:
            self._missed += calls

    def session_ended(self) -> None:
        """Take the tree's report that the session has ended."""
        if self._is_connected:
            self._schedule(self._begin_again)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        with self._tree.lock:
            if not self._is_connected:
                raise ConnectionLoss("the store cannot be reached")
            if self._is_over:
                raise StoreError("the store is closed")
            if not self._tree.has_session(self._session_id):
                raise SessionExpired(f"session {self._session_id} has expired")
            yield

    def _begin_again(self) -> None:
        with self._tree.lock:
            if not self._is_connected or self._tree.has_session(self._session_id):
                return  # disconnected meanwhile, so that `reconnect` does it; or already done
            self._announce(SessionState.EXPIRED)
            for watch, path in (*self._missed, *self._watches.take_all()):
                watch(path)
            self._missed = []
            self._session_id = self._tree.begin_session(self)
            self._announce(SessionState.CONNECTED)

    def _announce(self, state: SessionState) -> None:
        for listener in self._listeners:
            listener(state)

    def _call(self, calls: Iterable[WatchCall]) -> None:
        for watch, path in calls:
            self._schedule(partial(watch, path))

    def _schedule(self, work: Work) -> None:
        if not self._is_over:
            self._due.append(work)
            self._call_soon(self._deliver)

    def _deliver(self) -> None:
        work = self._due.popleft()
        if not self._is_over:
            work()
