"""Calls from a broker to the brokers of its cluster. Calls to itself go straight to its handlers.

Requests to the controller go to the broker that the last UpdateMetadata named. If that broker has resigned or died
since, the next controller sends this broker an UpdateMetadata, and the request goes there. A request whose connection
failed may have been carried out, so `ask_controller` is for idempotent requests only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sparklog.base.clock import Clock
from sparklog.base.errors import NetworkException, NotController, RequestTimedOut
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.peers import Peers
from sparklog.coordinator.transaction_messages import WriteTxnMarkers, WriteTxnMarkersResponse

Serve = Callable[[Api[Any, Any], Any], Awaitable[Any]]


class PeersAndSelf:
    """Calls to the other brokers and to this one. Implements Peers."""

    def __init__(self, broker_id: int, serve: Serve, apis: Mapping[type, Api[Any, Any]], others: Peers | None) -> None:
        """`others` is None if there are no other brokers to reach."""
        self._broker_id = broker_id
        self._serve = serve
        self._apis = apis
        self._others = others

    async def call(self, broker: BrokerInfo, request: Any, *, timeout_ms: int) -> Any:
        if broker.broker_id == self._broker_id:
            # A task of its own: the work runs to its end after a timeout, as it does for a remote caller.
            work = asyncio.ensure_future(self._serve(self._apis[type(request)], request))
            work.add_done_callback(_retrieve)
            done, _ = await asyncio.wait((work,), timeout=timeout_ms / 1000)  # asyncio.timeout needs a task
            if done:
                return work.result()
            raise RequestTimedOut(f"{type(request).__name__} of this broker took {timeout_ms} ms")
        if self._others is None:
            raise NetworkException(f"broker {broker.broker_id} cannot be reached from here")
        return await self._others.call(broker, request, timeout_ms=timeout_ms)

    async def close(self) -> None:
        if self._others is not None:
            await self._others.close()


def _retrieve(work: asyncio.Future[Any]) -> None:
    """Retrieve the exception of work without a waiting caller, so that asyncio does not report it."""
    if not work.cancelled():
        work.exception()


class PartitionLeaders:
    """The leaders of partitions, for transaction markers. Implements `Leaders` (transaction/marker_sender.py)."""

    def __init__(self, metadata: MetadataCache, peers: Peers) -> None:
        self._metadata = metadata
        self._peers = peers

    def exists(self, name: TopicPartition) -> bool:
        return self._metadata.has(name)

    def leader_of(self, name: TopicPartition) -> int | None:
        leader = self._metadata.leader_of(name)
        return leader.broker_id if leader else None

    async def write(self, broker_id: int, request: WriteTxnMarkers, *, timeout_ms: int) -> WriteTxnMarkersResponse:
        broker = self._metadata.brokers.get(broker_id)
        if broker is None:
            raise NetworkException(f"broker {broker_id} is not alive")
        answer: WriteTxnMarkersResponse = await self._peers.call(broker, request, timeout_ms=timeout_ms)
        return answer


RETRY_BACKOFF_MS = 50
LEAST_TIMEOUT_MS = 5_000
"""Minimum timeout of a request: a client with a shorter timeout still needs to learn the outcome."""


async def ask_controller(request: Any, *, clock: Clock, metadata: MetadataCache, peers: Peers, timeout_ms: int) -> Any:
    """Return the controller's answer; retry until `timeout_ms`, at least `LEAST_TIMEOUT_MS`.

    Raises the KafkaError with which the controller refuses the request, or, after the timeout, the NotController,
    NetworkException or RequestTimedOut that left it without an answer.
    """
    deadline_ms = clock.monotonic_ms() + max(timeout_ms, LEAST_TIMEOUT_MS)
    while True:
        left_ms = deadline_ms - clock.monotonic_ms()
        try:
            controller = metadata.controller
            if controller is None:
                raise NotController("there is no controller at the moment")
            return await peers.call(controller, request, timeout_ms=max(left_ms, 1))
        except (NotController, NetworkException):
            if left_ms <= RETRY_BACKOFF_MS:
                raise
        await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
