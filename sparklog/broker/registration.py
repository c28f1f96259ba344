"""This broker's registration in the cluster: its node `/brokers/ids/N`, which ends with the store's session.

The broker registers at the start, and again whenever the store has ended its session. By then other brokers have taken
its leaderships over, so it gets a new, greater broker epoch. Until then the broker keeps working with its present
state; other brokers refuse its requests, which carry the old epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from sparklog.base.clock import Clock
from sparklog.base.errors import ConfigError, StoreError
from sparklog.cluster.brokers import BY_NAME, register_when_free, report_failed_disk
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.store import SessionState, Store

RETRY_MS = 500
FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 60_000
"""The pauses before the controller is asked again; each is twice as long as the one before."""
NO_EPOCH = -1
logger = logging.getLogger(__name__)


class Registration:
    """Keeps the broker registered. Made and used on one event loop; the store's callbacks run on another thread."""

    def __init__(
        self,
        store: Store,
        info: BrokerInfo,
        directory_id: str,
        clock: Clock,
        *,
        timeout_ms: int,
        on_connected: Callable[[], None] = lambda: None,
        protocols: Mapping[str, str] = BY_NAME,
    ) -> None:
        """timeout_ms: longest wait for another broker's node with this id to vanish, or for the store to be reachable.
        on_connected: called when the store can be reached again. protocols: the listeners' security protocols.
        """
        self.epoch = NO_EPOCH
        """The broker epoch of the present registration; NO_EPOCH before the first."""
        self.is_connected = True
        """Whether the store is reachable in the present session."""
        self.expired_sessions = 0
        """Number of sessions that the store has ended."""
        self.is_registered = False
        """Whether the session of the present registration has not expired, as far as the broker knows."""
        self._store = store
        self._info = info
        self._directory_id = directory_id
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._on_connected = on_connected
        self._protocols = protocols
        self._has_expired = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._reports: set[asyncio.Task[None]] = set()
        self._asking: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def start(self) -> None:
        """Register, and stay registered. Raises ConfigError if another broker has the id, or StoreError."""
        self._store.listen(self._session_changed)
        await self._register()
        self._task = asyncio.create_task(self._keep(), name="registration")

    async def stop(self) -> None:
        """Stop registering. The node is deleted when the store is closed."""
        self._is_stopped = True
        tasks = [*self._reports, *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def report_failed_disk(self) -> None:
        """Notify the controller of a failed disk, so that it asks this broker which replicas still work."""
        self._begin(self._report_failed_disk())

    def ask_again(self, is_pending: Callable[[], bool]) -> None:
        """Notify the controller, again and again, while replicas that it has asked for cannot be opened or deleted."""
        if self._asking is None or self._asking.done():
            self._asking = self._begin(self._ask_again(is_pending))

    def _begin(self, report: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a report until it ends, or the broker stops."""
        task = asyncio.create_task(report)
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)
        return task

    async def _ask_again(self, is_pending: Callable[[], bool]) -> None:
        pause_ms = FIRST_PAUSE_MS
        while True:
            await asyncio.sleep(pause_ms / 1000)
            if not is_pending():
                return
            await self._report_failed_disk()
            pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)

    async def _report_failed_disk(self) -> None:
        is_first = True
        while not self._is_stopped:  # a controller that does not hear of it elects no other leaders
            try:
                await asyncio.to_thread(report_failed_disk, self._store, self._info.broker_id)
                return
            except StoreError as error:
                if is_first:
                    logger.warning("the controller hears of a failed disk once the cluster store answers: %s", error)
                is_first = False
                await asyncio.sleep(RETRY_MS / 1000)

    def _session_changed(self, state: SessionState) -> None:
        """Called by the store, on one of its threads."""
        self.is_connected = state is SessionState.CONNECTED
        if state is SessionState.EXPIRED:
            self.expired_sessions += 1
        with suppress(RuntimeError):  # the loop is closed: the broker has stopped
            if state is SessionState.EXPIRED:
                self._loop.call_soon_threadsafe(self._has_expired.set)
            elif state is SessionState.CONNECTED:
                self._loop.call_soon_threadsafe(self._on_connected)

    async def _register(self) -> None:
        self.epoch = await register_when_free(
            self._store,
            self._info,
            self._directory_id,
            time_ms=self._clock.time_ms(),
            timeout_ms=self._timeout_ms,
            protocols=self._protocols,
        )
        self.is_registered = True
        logger.info("registered as broker %d with epoch %d", self._info.broker_id, self.epoch)

    async def _keep(self) -> None:
        while True:  # until `stop`
            await self._has_expired.wait()
            self._has_expired.clear()
            self.is_registered = False
            logger.warning("the cluster store has ended the session of broker %d", self._info.broker_id)
            try:
                await self._register()
            except (StoreError, ConfigError) as error:
                logger.error("broker %d cannot register, and tries again: %s", self._info.broker_id, error)
                self._has_expired.set()
                await asyncio.sleep(RETRY_MS / 1000)
