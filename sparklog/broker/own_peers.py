"""Calls from a broker to the brokers of its cluster, itself included: own requests go straight to its handlers."""

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
    """Retrieve the exception of work that nothing waits for any more; unexpected errors are in the log."""
    if not work.cancelled():
        work.exception()
