"""What a broker asks of the controller, whichever broker that is at the moment: itself, too.

The controller is who the last UpdateMetadata named. It may have lost its office since, or be gone: then another is
elected, this broker is told, and asks that one. A request whose connection failed may have been carried out, so only
those are asked this way for which twice is as good as once.
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
"""A client that does not wait for what it has asked for wants to be told all the same what becomes of it."""


async def ask_controller(request: Any, *, clock: Clock, metadata: MetadataCache, peers: Peers, timeout_ms: int) -> Any:
    """Its answer. Raises the KafkaError that it refuses with, or after `timeout_ms` why it could not be asked."""
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
