"""Guards this broker against a cluster store that loses topics while the broker runs.

The store's id (cluster/identity.py) goes with all else if somebody empties it, or puts another in its place. The broker
watches the id. Once it is gone:

    controller      is not elected any more: it would take an empty store for a cluster without topics, and say so
    gone topics     a controller that begins may not name all topics any more. Those that it does not name keep their
                    committed offsets and copies, and their names, until the store still has its id `SURE_S` later.
                    A controller waits likewise before it says that a topic is gone (controller/store_changes.py)
    the broker      says what has happened, once all is deleted, and is to be started again. A start finds a new store,
                    restores the topics in it from the copies beside the logs, and registers (restoration.py)

A controller that begins may find topics whose partitions have lost their states: somebody is emptying the store, or has
deleted these nodes alone. The broker gives up then, too. If the store still has its id `SURE_S` later, it records which
topics have lost states, and a start restores these.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from sparklog.base.errors import BrokerNotAvailable, LostStates, StoreError
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
        self._topics = topics
        self._store = store
        self._store_id = store_id
        self._on_lost = on_lost
        self._has_changed = asyncio.Event()
        self._is_watched = False
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsure: dict[str, asyncio.Event] = {}
        """By the names of topics that are gone, but not surely: set when it is known."""

    def start(self) -> None:
        """Watch the store's id from now on."""
        self._begin(self._watch())

    async def stop(self) -> None:
        """Watch no longer, and forget what `when_sure` was to do."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def is_intact(self) -> bool:
        """Return whether the store has lost nothing, as far as is known. Raises StoreError. Blocks; for any thread."""
        return not self.is_lost and self._has_id()

    def lose_states(self, error: LostStates) -> None:
        """Have the broker started again, which restores the states that the store has lost."""
        if not self.is_lost:
            self.is_lost = True
            self._begin(self._end_for_states(error))

    def when_sure(self, gone: Iterable[str], do: Callable[[], Awaitable[None]]) -> None:
        """Call `do` in a while, if the store still has its id then. gone: the topics that it is about."""
        self._begin(self._do_when_sure(gone, do))

    async def until_sure(self, topic: str, timeout_ms: int) -> None:
        """Wait until a topic of this name may be created. Raises BrokerNotAvailable if the store has lost it."""
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
        if await _insist(self.is_intact, "it is not known whether the cluster store has lost its topics"):
            self._unsure = {name: event for name, event in self._unsure.items() if event is not is_known}
            await do()
        is_known.set()

    async def _watch(self) -> None:
        while not self.is_lost:
            found = await _insist(self._find, "the cluster store's id cannot be read, and is asked for again")
            if found == self._store_id:
                await self._has_changed.wait()
                self._has_changed.clear()
            elif not self.is_lost:  # or states are lost, and the broker ends for these
                await self._lose(found)

    def _find(self) -> str | None:
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

    async def _lose(self, found: str | None) -> None:
        self.is_lost = True
        await asyncio.sleep(SURE_S)  # a start meanwhile would write what is deleted then
        now = f"is {found}" if found else "is empty"
        self._end(f"the cluster store has lost everything: it was {self._store_id}, and {now}", "all brokers")

    async def _end_for_states(self, error: LostStates) -> None:
        await asyncio.sleep(SURE_S)

        def record() -> None:
            if self._has_id():
                self._topics.set_lost(error.topics)

        await _insist(record, f"it cannot be recorded that {error}")
        self._end(str(error), "this broker")

    def _end(self, what: str, which: str) -> None:
        logger.critical(
            "%s. All records are still here, and so are copies of the topics: start %s again, and they are restored. "
            "See the cluster store is lost, in docs/operating/clusters.md", what, which,
        )  # fmt: skip
        self._on_lost()

    def _has_id(self) -> bool:
        return find_store_id(self._store) == self._store_id

    def _begin(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        task = self._loop.create_task(run(), name="store guard")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _insist(ask: Callable[[], T], trouble: str) -> T:
    """Return what a function that blocks returns, called in a thread until the store answers.

    trouble: what to log while it does not
    """
    while True:
        try:
            return await asyncio.to_thread(ask)
        except StoreError as error:
            logger.info("%s: %s", trouble, error)
            await asyncio.sleep(RETRY_S)
