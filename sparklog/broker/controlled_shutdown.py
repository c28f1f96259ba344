"""Controlled shutdown: before a broker stops, the controller moves its leaderships to other brokers.

The broker retries up to `controlled.shutdown.max.retries` times, with a pause each time, while partitions remain that
another broker could lead: a live broker with a replica may still get in sync. A pause ends when nothing remains. The
last one waits only for other members of ISRs, until the session of a broker that is silent since the begin has ended:
only then the controller knows that its replicas may have lost records. Then the broker stops in any case. Partitions
that it still leads have no leader until the controller sees the broker gone.
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
from sparklog.cluster.engines import session_timeout_ms
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
    sessions_end_ms = clock.monotonic_ms() + _longest_session_ms(config)
    for retries_left in range(config.controlled_shutdown_max_retries, -1, -1):
        pause_ms = config.controlled_shutdown_retry_backoff_ms
        if not retries_left:
            pause_ms = max(0, sessions_end_ms - clock.monotonic_ms())
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
            if await _can_stop(metadata, config.broker_id, remaining, pause_ms, is_last=not retries_left):
                break
            logger.info("nobody has taken over %d partitions yet", len(remaining))
    led = tuple(name for name in remaining if _leads(metadata, config.broker_id, name))
    if led:
        logger.warning("stopping as leader of %d partitions that nobody else can lead now", len(led))
    return led


def longest_hand_over_ms(config: BrokerConfig) -> int:
    """Return how long `hand_over_leaderships` may pause between its requests, in ms."""
    pauses_ms = config.controlled_shutdown_max_retries * config.controlled_shutdown_retry_backoff_ms
    return max(pauses_ms, _longest_session_ms(config))


def _longest_session_ms(config: BrokerConfig) -> int:
    """Return when the controller has seen the session of a silent broker end, in ms.

    ZooKeeper ends a session up to a tick late, and a tick is at most half a time-out.
    """
    return 2 * session_timeout_ms(config)


async def _can_stop(
    metadata: MetadataCache, here: int, partitions: Iterable[TopicPartition], timeout_ms: int, *, is_last: bool
) -> bool:
    """Return whether none of these waits for other brokers, now or within the time: a whole cluster may stop."""
    return await metadata.wait_until(
        lambda: not any(_waits_for_others(metadata, here, name, is_last=is_last) for name in partitions), timeout_ms
    )


def _waits_for_others(metadata: MetadataCache, here: int, name: TopicPartition, *, is_last: bool) -> bool:
    """Return whether another live broker may take the partition over, or one of two members has to leave the ISR.

    A member whose session has ended leaves soon. If this broker stopped before, the next controller would see both gone
    at once, and could not tell which of them has all records, unless this one leads.
    """
    info = metadata.find_partition(name)
    if info is None:
        return False
    others = metadata.brokers.keys() - {here}
    if info.leader == here:
        return not others.isdisjoint(info.in_sync_replicas if is_last else info.replicas)
    return here in info.in_sync_replicas and len(info.in_sync_replicas) > 1


def _leads(metadata: MetadataCache, here: int, name: TopicPartition) -> bool:
    info = metadata.find_partition(name)
    return info is not None and info.leader == here
