"""The embedded cluster store: the tree in one SQLite file, for one or several brokers on the same machine.

A session is a lease that a thread renews. With each renewal the thread also checks the other sessions, and ends those
whose `beats` have not changed for their time-out, counted while its own session was renewed. No clocks are compared: a
reboot, a changed clock or a long lock on the file ends no session, and a process that was stopped gives the other
sessions their full time-out again when it resumes. Besides:

    watches     Every `POLL_S` the thread checks whether another connection has written (PRAGMA data_version, no disk).
                If so, and after every write of its own, it compares the new changes with the watches.
    waiting     Writers of several processes wait for each other for at most half of the session time-out, and the
                threads of a process for each other for the other half; then the call raises ConnectionLoss.
    killed      A process that is killed loses its session after the time-out if another process lives; otherwise the
                time-out begins when the next process starts.
    stopped     A stopped process (SIGSTOP) loses its session too, and notices when it resumes: a write raises
                SessionExpired. A process that was stopped in the middle of a write holds the file: the others are
                SUSPENDED, and no session expires, until it resumes or is killed.

The session and the thread begin with the first call that needs them: a tool that only reads and writes leaves no trace.
The path ":memory:" makes a store that lives as long as the object.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Self

from sparklog.base.errors import ConnectionLoss, SessionExpired, StoreError
from sparklog.cluster.sqlite_tree import SessionRow, SqliteTree
from sparklog.cluster.store import (
    ANY_VERSION,
    NO_OWNER,
    Create,
    Delete,
    Node,
    Operation,
    SessionListener,
    SessionState,
    Set,
    Watch,
)
from sparklog.cluster.watches import WatchCall, Watches

DEFAULT_SESSION_TIMEOUT_MS = 6_000
BEATS_PER_TIMEOUT = 5
POLL_S = 0.02
NEVER = -1
logger = logging.getLogger(__name__)

Work = Callable[[], None]


class SqliteStore:
    """Implements Store. Calls of several threads take turns. `open` returns one."""

    def __init__(self, path: str, tree: SqliteTree, *, session_timeout_ms: int) -> None:
        self._path = path
        self._timeout_ms = session_timeout_ms
        self._patience_s = _patience_s(session_timeout_ms)
        self._lock = threading.RLock()
        self._tree = tree
        self._is_closed = False
        self._session_id = NO_OWNER
        self._state = SessionState.CONNECTED
        self._others = OtherSessions()
        self._watches = Watches()
        self._seen = 0
        """Number of the newest change that was compared with the watches."""
        self._version = NEVER
        """Data version at the thread's last check for changes."""
        self._listeners: list[SessionListener] = []
        self._due: SimpleQueue[Work] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @classmethod
    def open(cls, path: str, *, session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> Self:
        """Return the store in the file, which is created if there is none. Blocks. Raises StoreError.

        The session begins when it is first needed.
        """
        tree = SqliteTree.open(path, busy_timeout_s=_patience_s(session_timeout_ms))
        return cls(path, tree, session_timeout_ms=session_timeout_ms)

    @property
    def session_id(self) -> int:
        self._start()
        return self._session_id

    def listen(self, listener: SessionListener) -> None:
        self._start()
        self._listeners.append(listener)

    def get(self, path: str, watch: Watch | None = None) -> Node:
        with self._reading(watch):
            node = self._tree.get(path)
            if watch:
                self._watches.on_node(path, watch)
            return node

    def exists(self, path: str, watch: Watch | None = None) -> bool:
        with self._reading(watch):
            found = self._tree.find(path)
            if watch:
                self._watches.on_node(path, watch)
            return found is not None

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        with self._reading(watch):
            names = self._tree.names(path)
            if watch:
                self._watches.on_children(path, watch)
            return names

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        if ephemeral:
            self._start()
        with self._writing():
            if sequential:
                path = self._tree.next_in_sequence(path)
            self._tree.apply((Create(path, data, ephemeral),), self._session_id)
            return path

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        with self._writing():
            self._tree.apply((Set(path, data, version),), self._session_id)
            return self._tree.get(path).version

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self.multi((Delete(path, version),))

    def multi(self, operations: Iterable[Operation]) -> None:
        listed = tuple(operations)
        if any(isinstance(operation, Create) and operation.ephemeral for operation in listed):
            self._start()
        with self._writing():
            self._tree.apply(listed, self._session_id)

    def newest_change(self) -> int:
        with self._reading(None):
            return self._tree.newest_change()

    def end_session(self, session_id: int) -> None:
        """End a session, of this store or of another, as if it had expired."""
        with self._exclusively():
            with self._tree.writing():
                self._tree.end_session(session_id)
            self._look_for_changes()
        self._tree.sync()

    def close(self) -> None:
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
            if self._thread and not was_closed:
                self._end_own_session()
        self._due.put(_nothing)
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join()
        self._tree.close()

    def _end_own_session(self) -> None:
        try:
            with self._tree.writing():
                self._tree.end_session(self._session_id)
        except StoreError as error:
            logger.warning("session %d is left to expire: %s", self._session_id, error)

    @contextmanager
    def _exclusively(self, *, is_patient: bool = False) -> Iterator[None]:
        """Hold the lock. Raises ConnectionLoss if other threads hold it for too long.

        While SUSPENDED one call waits for the file and others raise at once, so that a broker keeps its threads.
        """
        waits = is_patient or self._state is not SessionState.SUSPENDED
        if not self._lock.acquire(timeout=self._patience_s if waits else 0):
            raise ConnectionLoss(f"{self._path}: others wait for it")
        try:
            if self._is_closed:
                raise StoreError(f"{self._path} is closed")
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _reading(self, watch: Watch | None) -> Iterator[None]:
        if watch:
            self._start()
        with self._exclusively(), self._tree.reading():
            if watch:
                self._compare_changes()  # so that the watch begins exactly after this read
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._exclusively():
            with self._tree.writing():
                if self._session_id != NO_OWNER and not self._tree.has_session(self._session_id):
                    self._due.put(self._keep_session)
                    raise SessionExpired(f"session {self._session_id} has expired")
                yield
            self._look_for_changes()
        self._tree.sync()

    def _look_for_changes(self) -> None:
        """Compare changes with watches after a write. If that fails, the thread does it later."""
        if not self._watches:
            return
        try:
            with self._tree.reading():
                self._compare_changes()
        except StoreError:
            self._version = NEVER

    def _compare_changes(self) -> None:
        """Call the watches that the changes since the last comparison trigger."""
        changes = self._tree.changes_since(self._seen)
        if changes is None:
            self._call(self._watches.take_all())
            self._seen = self._tree.newest_change()
            return
        for change in changes:
            self._call(self._watches.take(change))
        self._seen += len(changes)

    def _call(self, calls: Iterable[WatchCall]) -> None:
        for watch, path in calls:
            self._due.put(partial(watch, path))

    # The session and its thread

    def _start(self) -> None:
        with self._exclusively():
            if self._thread:
                return
            with self._tree.writing():
                self._session_id = self._tree.begin_session(self._timeout_ms)
                self._seen = self._tree.newest_change()
            self._thread = threading.Thread(target=self._run, name="cluster store", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        interval_s = self._timeout_ms / 1000 / BEATS_PER_TIMEOUT
        beat_at = time.monotonic() + interval_s
        while not self._is_closed:
            try:
                _carry_out(self._due.get(timeout=min(POLL_S, interval_s)))
            except Empty:
                self._poll()
            if time.monotonic() >= beat_at:
                self._keep_session()
                beat_at = time.monotonic() + interval_s

    def _poll(self) -> None:
        """Look for changes if another connection has written; it may also have ended this session."""
        try:
            with self._exclusively():
                version = self._tree.data_version()
                if version == self._version:
                    return
                with self._tree.reading():
                    self._compare_changes()
                    lasts = self._tree.has_session(self._session_id)
                self._version = version
            if not lasts:
                self._keep_session()
        except StoreError as error:
            if not self._is_closed:
                logger.warning("cluster store %s: %s", self._path, error)

    def _keep_session(self) -> None:
        """Renew the session, or begin another if it has expired."""
        try:
            if self._state is not SessionState.EXPIRED and self._renew():
                self._become(SessionState.CONNECTED)
                return
            try:
                with self._exclusively(is_patient=True), self._tree.writing():
                    self._session_id = self._tree.begin_session(self._timeout_ms)
            finally:
                self._expire()
            self._become(SessionState.CONNECTED)
        except StoreError as error:
            if self._is_closed:
                return
            logger.warning("session %d of %s was not renewed: %s", self._session_id, self._path, error)
            if self._state is SessionState.CONNECTED:
                self._become(SessionState.SUSPENDED)

    def _expire(self) -> None:
        if self._state is not SessionState.EXPIRED:
            self._become(SessionState.EXPIRED)
            with self._lock:
                self._call(self._watches.take_all())

    def _renew(self) -> bool:
        with self._exclusively(is_patient=True):
            with self._tree.writing():
                if not self._tree.renew_session(self._session_id):
                    return False
                others = [session for session in self._tree.sessions() if session.session_id != self._session_id]
                longest_ms = 2 * self._timeout_ms / BEATS_PER_TIMEOUT
                for session_id in self._others.overdue(others, time.monotonic() * 1000, longest_ms):
                    logger.warning("session %d of %s has expired", session_id, self._path)
                    self._tree.end_session(session_id)
            self._look_for_changes()
            return True

    def _become(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        for listener in self._listeners:
            _carry_out(partial(listener, state))


class OtherSessions:
    """The time for which the `beats` of each other session have not changed, while this session was renewed."""

    def __init__(self) -> None:
        self._looked_ms = 0.0
        self._silent: dict[int, tuple[int, float]] = {}
        """For each session its beats, and the ms for which they have not changed."""

    def overdue(self, sessions: Iterable[SessionRow], now_ms: float, longest_ms: float) -> list[int]:
        """Return the sessions whose time-out has passed. Each call counts at most `longest_ms`."""
        passed_ms = min(now_ms - self._looked_ms, longest_ms)
        self._looked_ms = now_ms
        before, self._silent = self._silent, {}
        for session_id, _, beats in sessions:
            known, silent_ms = before.get(session_id, (-1, 0.0))
            self._silent[session_id] = (beats, silent_ms + passed_ms if known == beats else 0.0)
        return [session.session_id for session in sessions if self._silent[session.session_id][1] >= session.timeout_ms]


def _carry_out(work: Work) -> None:
    try:
        work()
    except Exception:
        logger.exception("a watch or a listener of the cluster store failed")


def _nothing() -> None:
    return None


def _patience_s(session_timeout_ms: int) -> float:
    """Return the longest wait for another process's transaction, in seconds."""
    return session_timeout_ms / 2000
