"""Detects a cluster store that loses topics while the broker runs.

The broker watches the store's id (cluster/identity.py). If the store is emptied or replaced, the id is gone too. Then:

    controller        this broker's is not elected any more: it would take an empty store for a cluster without topics
    missing topics    a new controller's full update may lack topics. Their committed offsets, copies and names are kept
                      until the store is seen to have its id `SURE_S` later. A controller waits likewise before it
                      reports a topic as deleted (controller/store_changes.py)
    broker            logs the loss once the whole store is deleted, and must be restarted. The start finds a new store,
                      restores the topics in it from the copies beside the logs, and registers (restoration.py)

A new controller may find topics whose partitions have lost their states: the store is being emptied, or only these
nodes were deleted. Then, too, the broker must be restarted. If the store still has its id `SURE_S` later, the broker
records the topics that have lost states, and the start restores the states.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from sparklog.base.errors import BrokerNotAvailable, InconsistentClusterId, LostStates, StoreError
from sparklog.cluster.identity import SURE_S, find_store_id
from sparklog.cluster.store import Store
from sparklog.cluster.topics import TopicStore

RETRY_S = 0.5
T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreGuard:
    """Watches the id of one broker's store. Create and use it on one event loop, except `is_intact`."""

    def __init__(
        self, store: Store, topics: TopicStore, store_id: str, on_lost: Callable[[], None] = lambda: None
    ) -> None:
        """store_id: the id that the store had at the broker's start. on_lost: called once the store has lost topics."""
        self.is_lost = False
        """Whether the store has lost topics since the broker's start."""
        self._topics = topics
        self._store = store
        self.store_id = store_id
        self._on_lost = on_lost
        self._has_changed = asyncio.Event()
        self._is_watched = False
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsure: dict[str, asyncio.Event] = {}
        """For each missing topic that may not be deleted: an event that is set once this is known."""

    def start(self) -> None:
        """Watch the store's id."""
        self._start_task(self._watch())

    async def stop(self) -> None:
        """Stop watching, and cancel the calls that `when_sure` has scheduled."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def is_intact(self) -> bool:
        """Return whether the store still has its id. Raises StoreError. Blocks; for any thread."""
        return not self.is_lost and self._has_id()

    def check_controller(self, store_id: str) -> None:
        """Raise InconsistentClusterId for a request of a controller with another store; empty: it does not say.

        A controller that was paused while its store was lost, and restored, does not know it yet. Its epochs mean
        nothing in the new store.
        """
        if store_id not in ("", self.store_id):
            raise InconsistentClusterId(f"for the cluster store {store_id}; this broker's is {self.store_id}")

    def lose_states(self, error: LostStates) -> None:
        """Report that the store has lost states: the broker must be restarted, and restores them at its start."""
        if not self.is_lost:
            self.is_lost = True
            self._start_task(self._report_lost_states(error))

    def when_sure(self, gone: Iterable[str], do: Callable[[], Awaitable[None]]) -> None:
        """Call `do` after `SURE_S`, if the store still has its id then. gone: the missing topics"""
        self._start_task(self._do_when_sure(gone, do))

    async def until_sure(self, topic: str, timeout_ms: int) -> None:
        """Wait until a topic of this name may be created. Raises BrokerNotAvailable if the store may have lost it."""
        if unsure := self._unsure.get(topic):
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await unsure.wait()
        if self.is_lost or topic in self._unsure:
            raise BrokerNotAvailable(f"the cluster store may have lost topic {topic!r}: it cannot be created now")

    async def _do_when_sure(self, gone: Iterable[str], do: Callable[[], Awaitable[None]]) -> None:
        is_known = asyncio.Event()
        self._unsure |= dict.fromkeys(gone, is_known)
        await asyncio.sleep(SURE_S)
        if await _retry(self.is_intact, "it is not known whether the cluster store has lost its topics"):
            self._unsure = {name: event for name, event in self._unsure.items() if event is not is_known}
            await do()
        is_known.set()

    async def _watch(self) -> None:
        while not self.is_lost:
            found = await _retry(self._find_id, "the cluster store's id cannot be read, and is asked for again")
            if found == self.store_id:
                await self._has_changed.wait()
                self._has_changed.clear()
            elif not self.is_lost:  # meanwhile, `lose_states` may have reported lost states
                await self._report_loss(found)

    def _find_id(self) -> str | None:
        watch = None if self._is_watched else self._changed
        self._is_watched = True  # before the watch is set: it may be called at once
        try:
            return find_store_id(self._store, watch)
        except StoreError:
            self._is_watched = False
            raise

    def _changed(self, _: str) -> None:
        """Called by the store, on one of its threads."""
        self._is_watched = False
        with suppress(RuntimeError):  # the loop is closed: the broker has stopped
            self._loop.call_soon_threadsafe(self._has_changed.set)

    async def _report_loss(self, found: str | None) -> None:
        self.is_lost = True
        await asyncio.sleep(SURE_S)  # a start during the deletion would write nodes that are deleted then
        now = f"is {found}" if found else "is empty"
        self._require_restart(
            f"the cluster store has lost everything: it was {self.store_id}, and {now}", "all brokers"
        )

    async def _report_lost_states(self, error: LostStates) -> None:
        await asyncio.sleep(SURE_S)

        def record() -> None:
            if self._has_id():
                self._topics.set_lost(error.topics)

        await _retry(record, f"it cannot be recorded that {error}")
        self._require_restart(str(error), "this broker")

    def _require_restart(self, what: str, which: str) -> None:
        logger.critical(
            "%s. All records are still here, and so are copies of the topics: start %s again, and they are restored. "
            "See the cluster store is lost, in docs/operating/clusters.md", what, which,
        )  # fmt: skip
        self._on_lost()

    def _has_id(self) -> bool:
        return find_store_id(self._store) == self.store_id

    def _start_task(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        task = self._loop.create_task(run(), name="store guard")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _retry(ask: Callable[[], T], trouble: str) -> T:
    """Return the result of `ask`, which blocks, called in a thread until the store answers. trouble: for the log"""
    while True:
        try:
            return await asyncio.to_thread(ask)
        except StoreError as error:
            logger.info("%s: %s", trouble, error)
            await asyncio.sleep(RETRY_S)
