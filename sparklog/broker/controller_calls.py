"""Requests from a broker to the controller, which may be another broker or this one.

The controller is the broker that the last UpdateMetadata named. If it has resigned or died since, another controller is
elected and tells this broker, which then sends the request there. A request whose connection failed may have been
carried out, so only idempotent requests are sent this way.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sparklog.base.clock import Clock
from sparklog.base.errors import NetworkException, NotController
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.peers import Peers

RETRY_BACKOFF_MS = 50
LEAST_TIMEOUT_MS = 5_000
"""Least time for a request: a client with a shorter timeout still needs to learn the outcome."""


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
