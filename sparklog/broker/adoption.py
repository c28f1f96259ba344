"""Folders of topics that the cluster store does not know become topics: nothing is deleted because it was not known.

That is so for a log directory that Apache Kafka wrote, or whose cluster store was lost. It is done at the start of a
broker, before it registers, and only where it is the only one: among others it cannot be told whose records they are,
or whether the topic was deleted while the broker was away. Then the folders stay where they are, and it is said.

A topic gets the id that stands in its folders. Its partitions are led by this broker alone, in a leader epoch that no
batch in them has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from uuid import UUID

from sparklog.cluster.model import PartitionInfo
from sparklog.cluster.topics import TopicStore
from sparklog.log.log import Log
from sparklog.log.manager import LogManager

logger = logging.getLogger(__name__)


def adopt(
    logs: LogManager, topics: TopicStore, broker_id: int, *, others: Collection[int], new_id: Callable[[], UUID]
) -> None:
    """Blocks. `others`: the other brokers that are registered."""
    known = set(topics.names())
    found: dict[str, dict[int, Log]] = {}
    for log in sorted(logs, key=lambda log: log.partition):
        name, number = log.partition
        if name not in known:
            found.setdefault(name, {})[number] = log
    for name, partitions in found.items():
        if others:
            logger.warning(
                "%s: %d partitions are on disk, but not in the cluster store; they stay as they are, and are not "
                "served: broker %s may know better", name, len(partitions), sorted(others)[0],
            )  # fmt: skip
            continue
        count = max(partitions) + 1
        logger.warning("adopting topic %s: its %d partitions are on disk, but not in the cluster store", name, count)
        topic_id = next((log.topic_id for log in partitions.values() if log.topic_id), None)
        infos = [_led_by(broker_id, partitions.get(number)) for number in range(count)]
        topics.create(name, topic_id or new_id(), infos, {})


def _led_by(broker_id: int, log: Log | None) -> PartitionInfo:
    return PartitionInfo(
        leader=broker_id,
        leader_epoch=log.latest_epoch + 1 if log else 0,
        replicas=(broker_id,),
        in_sync_replicas=(broker_id,),
    )
