"""Controlled shutdown: before a broker stops, the controller moves its leaderships to other brokers.

The broker retries up to `controlled.shutdown.max.retries` times, with a pause each time, while partitions remain that
another broker could lead: a live broker with a replica may still get in sync. Then the broker stops in any case.
Partitions that it still leads have no leader until the controller sees the broker gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from sparklog.broker.peers import ask_controller
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.peers import Peers

MAX_WAIT_MS = 30_000
logger = logging.getLogger(__name__)


async def hand_over_leaderships(
    broker_epoch: int, *, clock: Clock, config: BrokerConfig, metadata: MetadataCache, peers: Peers
) -> tuple[TopicPartition, ...]:
    """Hand leaderships over; return the partitions still led. Raises no KafkaError: the broker must be able to stop."""
    request = ControlledShutdownRequest(broker_id=config.broker_id, broker_epoch=broker_epoch)
    remaining: tuple[TopicPartition, ...] = ()
    for retries_left in range(config.controlled_shutdown_max_retries, -1, -1):
        pause_ms = config.controlled_shutdown_retry_backoff_ms if retries_left else 0
        try:
            response: ControlledShutdownResponse = await ask_controller(
                request,
                clock=clock,
                metadata=metadata,
                peers=peers,
                timeout_ms=min(config.controller_socket_timeout_ms, MAX_WAIT_MS),
            )
            remaining = tuple(response.remaining)
        except KafkaError as error:
            logger.warning("the controller could not be asked to take over: %s", error)
            await asyncio.sleep(pause_ms / 1000)
        else:
            if await _have_no_successor(metadata, config.broker_id, remaining, pause_ms):
                break
            logger.info("nobody has taken over %d partitions yet", len(remaining))
    if remaining:
        logger.warning("stopping as leader of %d partitions that nobody else can lead now", len(remaining))
    return remaining


async def _have_no_successor(
    metadata: MetadataCache, here: int, partitions: Iterable[TopicPartition], timeout_ms: int
) -> bool:
    """Return whether no other broker could lead these, now or within the time: a whole cluster may be stopping."""
    return await metadata.wait_until(lambda: not _have_successor(metadata, here, partitions), timeout_ms)


def _have_successor(metadata: MetadataCache, here: int, partitions: Iterable[TopicPartition]) -> bool:
    """Return whether another live broker has a replica of one of these partitions."""
    others = metadata.brokers.keys() - {here}
    return any(
        others.intersection(info.replicas) for name in partitions if (info := metadata.find_partition(name)) is not None
    )
