"""Stray replicas: logs of partitions that moved to other brokers while this broker was down.

The controller sends StopReplica when a partition moves, but the broker may be down then, or the controller may fail. So
a broker deletes stray replicas after a full update of the metadata, which names all partitions, as Apache Kafka does
since 3.6. The store knows which assignments are sure. While the store cannot be reached, all strays stay, and the
broker tries again every STRAYS_INTERVAL_MS.

A log is a stray if its topic's id and its partition are known, this broker is neither a replica nor in sync, and it
knows of no later leader epoch. A log without an id is a stray if it has no records: the broker lost power after it had
created the folder, and before the id was on the disk.
"""

from __future__ import annotations

import logging
from uuid import UUID

from sparklog.base.errors import StoreError
from sparklog.broker.topics import Topics
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import Topic
from sparklog.log.directory.manager import LogManager
from sparklog.log.log import Log
from sparklog.replica.messages import StopPartition
from sparklog.replica.state_changes import StateChanges

STRAYS_INTERVAL_MS = 10_000
logger = logging.getLogger(__name__)


class StrayReplicas:
    """Finds and deletes the stray logs of one broker."""

    def __init__(
        self, broker_id: int, logs: LogManager, metadata: MetadataCache, state_changes: StateChanges, topics: Topics
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._metadata = metadata
        self._state_changes = state_changes
        self._topics = topics
        self._is_pending = False
        """Whether strays may be left: none were deleted since the last full update."""

    async def delete(self) -> None:
        """Delete the strays, after a full update of the metadata."""
        self._is_pending = True
        await self.delete_pending()

    async def delete_pending(self) -> None:
        """Delete the strays that were left because the cluster store could not be reached."""
        if not self._is_pending:
            return
        self._is_pending = False
        strays = self._find()
        if not strays:
            return
        try:
            unsure = await self._topics.find_unsure({stop.name.topic for stop, _ in strays})
        except StoreError as error:
            self._is_pending = True
            logger.warning("stray replicas stay until the cluster store tells whether they were moved: %s", error)
            return
        for stop, _ in strays:
            if stop.name.topic in unsure:
                logger.warning(
                    "%s: its replica here stays, though it is not in the topic's assignment: the cluster store had "
                    "lost the topic, or changes of it. Copy its folder before you move the partition here or delete "
                    "the topic; remove it while this broker is stopped, if nobody wants it", stop.name,
                )  # fmt: skip
        sure = {topic_id for stop, topic_id in strays if stop.name.topic not in unsure}
        if sure:
            logger.warning("deleting replicas that have moved to other brokers: %s", _names(strays, sure))
            await self._state_changes.delete_strays(
                lambda: [stop for stop, topic_id in self._find() if topic_id in sure]  # it may be a replica by now
            )

    def _find(self) -> list[tuple[StopPartition, UUID]]:
        """Return the strays and their topics' ids. An in-sync replica is no stray: it may be the only one."""
        found = []
        for log in sorted(self._logs, key=lambda log: log.partition):
            topic, info = self._find_topic(log), self._metadata.find_partition(log.partition)
            if not (topic and topic.name == log.partition.topic and info):
                continue
            if self._broker_id not in (*info.replicas, *info.in_sync_replicas):
                stop = StopPartition(name=log.partition, leader_epoch=info.leader_epoch, delete=True)
                found.append((stop, topic.topic_id))
        return found

    def _find_topic(self, log: Log) -> Topic | None:
        """Return the log's topic; None if it is not known."""
        if log.topic_id is None and log.log_start_offset == log.log_end_offset:
            return self._metadata.find(log.partition.topic)
        return self._metadata.find_by_id(log.topic_id)


def _names(strays: list[tuple[StopPartition, UUID]], sure: set[UUID]) -> list[str]:
    return [str(stop.name) for stop, topic_id in strays if topic_id in sure]
