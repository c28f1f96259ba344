"""What in the cluster store the controller watches, and what a change there is for it.

    /brokers/ids                               BROKERS       one has come, gone, or come again
    /brokers/topics, /brokers/topics/T         TOPICS        a topic is there, or has more partitions, or is gone
    /admin/delete_topics                       DELETIONS     a topic is to be deleted
    /isr_change_notification                   ISR_CHANGES   leaders have changed who is in sync
    /config/changes                            CONFIGS       a topic or a broker is configured otherwise
    /log_dir_event_notification                DISKS         a broker has lost a disk
    /admin/reassign_partitions, /admin/preferred_replica_election
                                               REQUESTS      somebody asks for it without a broker, as tools once did

A watch is called once. It is set again in the same read that looks for what has changed, so nothing is missed between;
and only if it was called, so there is one for each path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from sparklog.base.errors import NoNode
from sparklog.cluster.store import Node, Store, Watch


class StoreEvent(Enum):
    """What is to be looked at again. CONTROLLER: whether this broker is the controller."""

    CONTROLLER = "controller"
    BROKERS = "brokers"
    TOPICS = "topics"
    DELETIONS = "deletions"
    ISR_CHANGES = "ISR changes"
    CONFIGS = "configurations"
    DISKS = "disks"
    REQUESTS = "requests"


class Watching:
    """The watches of one controller. Set in threads; what they say is told on the event loop."""

    def __init__(self, tell: Callable[[StoreEvent], None]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._set: set[str] = set()
        self._is_closed = False

    def is_set(self, path: str) -> bool:
        """Whether nothing has changed there since it was read."""
        return path in self._set

    def watch(self, path: str, event: StoreEvent) -> Watch | None:
        """To be given with a read that raises nothing but what ends the controller's time; None: one is set still."""
        if path in self._set:
            return None
        self._set.add(path)

        def called(_: str) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits for this
                self._loop.call_soon_threadsafe(self._called, path, event)

        return called

    def get(self, store: Store, path: str, event: StoreEvent) -> Node | None:
        """None where there is no such node; then it is not watched."""
        watch = self.watch(path, event)
        try:
            return store.get(path, watch)
        except NoNode:
            if watch:
                self._set.discard(path)
            return None

    def children(self, store: Store, path: str, event: StoreEvent) -> list[str]:
        return store.children(path, self.watch(path, event))

    def exists(self, store: Store, path: str, event: StoreEvent) -> bool:
        return store.exists(path, self.watch(path, event))

    def close(self) -> None:
        """Tell nothing any more."""
        self._is_closed = True

    def _called(self, path: str, event: StoreEvent) -> None:
        if not self._is_closed:
            self._set.discard(path)
            self._tell(event)
