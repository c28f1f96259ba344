"""Channels from the controller to the brokers: an ordered queue and a task for each registered broker.

A request is repeated, after a pause, until the broker has answered it; then the next one is sent. A channel ends when
its broker is gone or has registered again with another epoch, or when the controller ends. An unreachable broker does
not delay the others. A queue that gets too long is dropped, with what follows, until the controller sends the broker's
full state instead, which contains the dropped requests: memory stays bounded and nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from sparklog.base.errors import SparklogError, StaleControllerEpoch
from sparklog.cluster.messages import UpdateMetadata
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.peers import Peers
from sparklog.controller.outbox import Request

MAX_QUEUED = 100
RETRY_BACKOFF_S = 0.1
logger = logging.getLogger(__name__)


class ChannelListener(Protocol):
    """Receiver of the events of channels."""

    def answered(self, broker: BrokerInfo, request: Request, response: Any) -> None:
        """Handle a broker's answer to a request of its channel."""
        ...

    def refused(self, controller_epoch: int) -> None:
        """Handle the answer of a broker that remembers a later controller epoch."""
        ...

    def left_behind(self, broker: BrokerInfo) -> None:
        """Send the broker its full state: its queue was dropped."""
        ...


class BrokerChannel:
    """The channel to one broker with one broker epoch. Sends nothing before `start`."""

    def __init__(self, broker: BrokerInfo, peers: Peers, listener: ChannelListener, *, timeout_ms: int) -> None:
        self.broker = broker
        self._peers = peers
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._queue: deque[Request] = deque()
        self._has_work = asyncio.Event()
        self._is_behind = False
        """Whether the queue was dropped, and the broker's full state has not come yet."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Send the queued requests, and those to come, until `close`."""
        self._task = asyncio.create_task(self._run())

    def put(self, request: Request) -> None:
        """Queue a request. Drop a queue that gets too long, and call `left_behind`.

        What follows is dropped too until the full state comes: it builds on what was dropped.
        """
        if self._is_behind and not (isinstance(request, UpdateMetadata) and request.begins_full):
            return
        self._is_behind = False
        self._queue.append(request)
        self._has_work.set()
        if len(self._queue) > MAX_QUEUED:
            self._queue.clear()
            self._is_behind = True
            self._listener.left_behind(self.broker)

    def close(self) -> None:
        """Send nothing more, and ignore an answer that is still to come."""
        if self._task:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._queue:
                await self._deliver(self._queue.popleft())

    async def _deliver(self, request: Request) -> None:
        """Send a request until the broker has answered."""
        while True:
            try:
                response = await self._peers.call(self.broker, request, timeout_ms=self._timeout_ms)
            except StaleControllerEpoch:
                self._listener.refused(request.controller_epoch)
            except SparklogError as error:
                logger.info("broker %s: %s: %s", self.broker.broker_id, type(request).__name__, error)
            except Exception:
                # A bug, here or in the broker: the channel must not end because of it.
                logger.exception("broker %s: %s", self.broker.broker_id, type(request).__name__)
            else:
                self._listener.answered(self.broker, request, response)
                return
            await asyncio.sleep(RETRY_BACKOFF_S)


class Channels:
    """The channels to all registered brokers."""

    def __init__(self, peers: Peers, listener: ChannelListener, *, timeout_ms: int) -> None:
        self._peers = peers
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._channels: dict[int, BrokerChannel] = {}

    def open(self, broker: BrokerInfo) -> None:
        """Open a channel, and close the one to an earlier epoch of the broker."""
        self.close([broker.broker_id])
        channel = BrokerChannel(broker, self._peers, self._listener, timeout_ms=self._timeout_ms)
        self._channels[broker.broker_id] = channel
        channel.start()

    def send(self, broker_id: int, request: Request) -> None:
        """Queue a request for a broker; dropped if there is no channel to it."""
        if channel := self._channels.get(broker_id):
            channel.put(request)

    def close(self, brokers: Iterable[int] | None = None) -> None:
        """Close the channels to these brokers, or to all."""
        for broker_id in list(self._channels) if brokers is None else list(brokers):
            if channel := self._channels.pop(broker_id, None):
                channel.close()
