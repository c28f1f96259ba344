"""What the controller tells each broker, in order: a queue and a task for every broker that is registered.

A request is sent again, after a pause, until the broker has answered it; the next one is sent then. That ends when the
broker is gone, or has come again with another epoch, or when the controller's time is over. So a broker that cannot be
reached delays nobody else. A queue that gets long is given up, and the controller asked for the broker's whole state:
nothing in the requests counts that a later one does not say too, so memory stays bounded and nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from sparklog.base.errors import SparklogError, StaleControllerEpoch
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.peers import Peers
from sparklog.controller.outbox import Request

MAX_QUEUED = 100
RETRY_BACKOFF_S = 0.1
logger = logging.getLogger(__name__)


class Correspondent(Protocol):
    """Who hears what brokers answer."""

    def answered(self, broker: BrokerInfo, request: Request, response: Any) -> None: ...

    def deposed(self) -> None:
        """A broker knows of a later controller."""
        ...

    def left_behind(self, broker: BrokerInfo) -> None:
        """The broker has to be told its whole state."""
        ...


class Channel:
    """To one life of one broker."""

    def __init__(self, broker: BrokerInfo, peers: Peers, correspondent: Correspondent, *, timeout_ms: int) -> None:
        self.broker = broker
        self._peers = peers
        self._correspondent = correspondent
        self._timeout_ms = timeout_ms
        self._queue: deque[Request] = deque()
        self._has_work = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def put(self, request: Request) -> None:
        self._queue.append(request)
        self._has_work.set()
        if len(self._queue) > MAX_QUEUED:
            self._queue.clear()
            self._correspondent.left_behind(self.broker)

    def close(self) -> None:
        """Send nothing more; an answer that comes still is not heard."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._queue:
                await self._deliver(self._queue.popleft())

    async def _deliver(self, request: Request) -> None:
        """Returns once the broker has answered; the channel's end cancels it."""
        while True:
            try:
                response = await self._peers.call(self.broker, request, timeout_ms=self._timeout_ms)
            except StaleControllerEpoch:
                self._correspondent.deposed()
            except SparklogError as error:
                logger.info("broker %s: %s: %s", self.broker.broker_id, type(request).__name__, error)
            except Exception:
                # A mistake, here or there: the broker must not be without a controller for ever because of it.
                logger.exception("broker %s: %s", self.broker.broker_id, type(request).__name__)
            else:
                self._correspondent.answered(self.broker, request, response)
                return
            await asyncio.sleep(RETRY_BACKOFF_S)


class Channels:
    """To all brokers that are registered."""

    def __init__(self, peers: Peers, correspondent: Correspondent, *, timeout_ms: int) -> None:
        self._peers = peers
        self._correspondent = correspondent
        self._timeout_ms = timeout_ms
        self._channels: dict[int, Channel] = {}

    def open(self, broker: BrokerInfo) -> None:
        """In place of the one to an earlier life of the broker."""
        self.close([broker.broker_id])
        self._channels[broker.broker_id] = Channel(
            broker, self._peers, self._correspondent, timeout_ms=self._timeout_ms
        )

    def send(self, broker_id: int, request: Request) -> None:
        if channel := self._channels.get(broker_id):
            channel.put(request)

    def close(self, brokers: Iterable[int] | None = None) -> None:
        """To these brokers, or to all."""
        for broker_id in list(self._channels) if brokers is None else list(brokers):
            if channel := self._channels.pop(broker_id, None):
                channel.close()
