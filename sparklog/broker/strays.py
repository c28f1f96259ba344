"""Stray logs: those of partitions that moved to other brokers while this broker could not be told.

The controller tells a broker to delete a replica, but this broker may be down then, or the controller may fail. So a
full update of the metadata, which names all partitions, lets the broker look for strays and delete them, as Apache
Kafka does since 3.6. The cluster store tells which assignments are sure; while it cannot be reached, all strays stay,
and the broker looks again every STRAYS_INTERVAL_MS.

A stray is of a known partition and of a topic that is known by its id; this broker is neither its replica nor in sync,
and knows of no later leader epoch. A log without an id is a stray if it has no records: its broker lost power after it
had created the folder, and before the id was on the disk.
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
        self._is_owed = False
        """Whether there may be strays: the broker was told everything, and has not deleted them since."""

    async def delete(self) -> None:
        """Delete the strays, after a full update of the metadata."""
        self._is_owed = True
        await self.delete_if_owed()

    async def delete_if_owed(self) -> None:
        """Delete the strays if the cluster store could not be reached when they were to be deleted."""
        if not self._is_owed:
            return
        self._is_owed = False
        strays = self._find()
        if not strays:
            return
        try:
            unsure = await self._topics.find_unsure({stop.name.topic for stop, _ in strays})
        except StoreError as error:
            self._is_owed = True
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
        """Return the strays and their topics' ids. An in-sync copy is none: it may be the only one."""
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
        """Return the topic that the log is of."""
        if log.topic_id is None and log.log_start_offset == log.log_end_offset:
            return self._metadata.find(log.partition.topic)
        return self._metadata.find_by_id(log.topic_id)


def _names(strays: list[tuple[StopPartition, UUID]], sure: set[UUID]) -> list[str]:
    return [str(stop.name) for stop, topic_id in strays if topic_id in sure]
