"""The paths in the cluster store that the controller watches, and the events that their changes cause.

    /brokers/ids                               BROKERS       a broker has come, gone, or registered again
    /brokers/topics, /brokers/topics/T         TOPICS        a topic was added, has more partitions, or is gone
    /admin/delete_topics                       DELETIONS     a topic is to be deleted
    /isr_change_notification                   ISR_CHANGES   leaders have changed ISRs
    /config/changes                            CONFIGS       the configuration of a topic or a broker has changed
    /kafka-acl-changes,
    /kafka-acl-extended-changes                ACLS          ACLs have changed
    /log_dir_event_notification                DISKS         a disk of a broker has failed
    /admin/reassign_partitions, /admin/preferred_replica_election
                                               REQUESTS      a request in the store, as older tools make it

A watch is called once. The read that follows sets it again, so no change is missed in between. A path has at most one
watch: it is set only if the former one was called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from sparklog.base.errors import NoNode
from sparklog.cluster.store import Node, Store, Watch


class StoreEvent(Enum):
    """A part of the store that has changed. CONTROLLER: the election of the controller."""

    CONTROLLER = "controller"
    BROKERS = "brokers"
    TOPICS = "topics"
    DELETIONS = "deletions"
    ISR_CHANGES = "ISR changes"
    CONFIGS = "configurations"
    ACLS = "ACLs"
    DISKS = "disks"
    REQUESTS = "requests"


class StoreWatches:
    """The watches of one controller. They are set in threads, and report on the event loop."""

    def __init__(self, report: Callable[[StoreEvent], None]) -> None:
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._set: set[str] = set()
        self._is_closed = False

    def is_set(self, path: str) -> bool:
        """Return whether the watch is still set: `path` has not changed since it was read."""
        return path in self._set

    def watch(self, path: str, event: StoreEvent) -> Watch | None:
        """Return a watch to set with a read; None if one is set. An error of that read must end the controller."""
        if path in self._set:
            return None
        self._set.add(path)

        def called(_: str) -> None:
            with suppress(RuntimeError):  # the loop is closed: the event is not needed
                self._loop.call_soon_threadsafe(self._called, path, event)

        return called

    def get(self, store: Store, path: str, event: StoreEvent) -> Node | None:
        """Return the node; None, with no watch set, if it does not exist."""
        watch = self.watch(path, event)
        try:
            return store.get(path, watch)
        except NoNode:
            if watch:
                self._set.discard(path)
            return None

    def children(self, store: Store, path: str, event: StoreEvent) -> list[str]:
        """Return the names of the nodes under `path`, sorted. Raises NoNode, which must end the controller."""
        return store.children(path, self.watch(path, event))

    def exists(self, store: Store, path: str, event: StoreEvent) -> bool:
        """Return whether there is a node at `path`; its creation causes the event, too."""
        return store.exists(path, self.watch(path, event))

    def again(self, event: StoreEvent, delay_s: float) -> None:
        """Report an event after `delay_s` seconds, without a change."""

        def report() -> None:
            if not self._is_closed:
                self._report(event)

        self._loop.call_later(delay_s, report)

    def close(self) -> None:
        """Report no more events."""
        self._is_closed = True

    def _called(self, path: str, event: StoreEvent) -> None:
        if not self._is_closed:
            self._set.discard(path)
            self._report(event)
