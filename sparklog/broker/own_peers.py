"""The brokers of the cluster as one of them calls them, itself among them: a call of itself goes to its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sparklog.base.errors import NetworkException, RequestTimedOut
from sparklog.broker.api import Api
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.peers import Peers

Serve = Callable[[Api[Any, Any], Any], Awaitable[Any]]


class PeersAndSelf:
    """Implements Peers."""

    def __init__(self, broker_id: int, serve: Serve, apis: Mapping[type, Api[Any, Any]], others: Peers | None) -> None:
        """`others` None: this broker is alone, and reaches nobody else."""
        self._broker_id = broker_id
        self._serve = serve
        self._apis = apis
        self._others = others

    async def call(self, broker: BrokerInfo, request: Any, *, timeout_ms: int) -> Any:
        if broker.broker_id == self._broker_id:
            # What has been ordered is carried out to its end, as when another broker orders it.
            work = asyncio.ensure_future(self._serve(self._apis[type(request)], request))
            work.add_done_callback(_retrieve)
            done, _ = await asyncio.wait((work,), timeout=timeout_ms / 1000)  # the caller need not be a task
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
    """Nobody waits for what becomes of it any more; its errors are in the log."""
    if not work.cancelled():
        work.exception()
