"""Topics come, change and go: the one place where store, metadata, replicas and logs are changed together.

One change at a time. What blocks (the store, making and deleting folders) runs in a thread; metadata and replicas
change on the event loop once that has succeeded. A change that was asked for is carried out, even if whoever asked is
cancelled meanwhile (a client that does not wait any longer): half of it must not stay.

    create      store, then folders. A crash between leaves a topic without folders: made at the next start.
    delete      mark in the store, forget the replicas, delete folders, remove from the store. A crash between:
                carried on at the next start.
    adopt       folders of topics that the store does not know (a log directory that Apache Kafka wrote, or whose
                cluster store was lost) become topics at the start, with the ids that stand in them; nothing is ever
                deleted because it was not known. A folder that is of another topic of the same name goes offline.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopic,
    KafkaStorageError,
    NodeExists,
    PolicyViolation,
    TopicAlreadyExists,
    TopicDeletionDisabled,
)
from sparklog.base.ids import TopicPartition, check_topic
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import PartitionInfo, Topic
from sparklog.cluster.topics import TopicStore
from sparklog.log.log import Log
from sparklog.log.manager import LogManager
from sparklog.replica.manager import ReplicaManager

MAX_PARTITIONS_PER_REQUEST = 10_000  # as in org.apache.kafka.controller.ReplicationControlManager
Opened = Log | KafkaStorageError  # the log of a partition, or why it is offline
Asked = ParamSpec("Asked")
Changed = TypeVar("Changed")
logger = logging.getLogger(__name__)


def _carried_out(
    change: Callable[Asked, Coroutine[Any, Any, Changed]],
) -> Callable[Asked, Coroutine[Any, Any, Changed]]:
    """Goes on with a change when the caller is cancelled."""

    @functools.wraps(change)
    async def carry_out(*args: Asked.args, **kwargs: Asked.kwargs) -> Changed:
        return await asyncio.shield(asyncio.create_task(change(*args, **kwargs)))

    return carry_out


class Topics:
    """Changes the topics of a cluster of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: TopicStore,
        metadata: MetadataCache,
        logs: LogManager,
        replicas: ReplicaManager,
    ) -> None:
        self._config = config
        self._store = store
        self._metadata = metadata
        self._logs = logs
        self._replicas = replicas
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Bring up every topic that the store knows or a folder holds, with a new leader epoch for each partition."""
        for topic, opened in await asyncio.to_thread(self._load):
            self._lead(topic, opened)

    async def settled(self) -> None:
        """Wait for the changes that were asked for."""
        async with self._changing:
            return

    @_carried_out
    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        overrides: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """The new topic.

        Raises InvalidTopic, TopicAlreadyExists, InvalidPartitions, InvalidReplicationFactor, PolicyViolation (too many
        partitions at once) or InvalidConfig.
        """
        count = self._config.num_partitions if partitions is None else partitions
        factor = self._config.default_replication_factor if replication_factor is None else replication_factor
        async with self._changing:
            self._check_new(name)
            _check_count(name, count)
            _check_factor(name, factor)
            overrides = dict(overrides or {})
            config = TopicConfig.parse(overrides, self._config.topic_defaults)
            topic = Topic(
                name=name, topic_id=uuid.uuid4(), partitions=self._assign(count), overrides=overrides, config=config
            )
            if not validate_only:
                self._lead(topic, await asyncio.to_thread(self._create, topic))
                logger.info("created topic %s with %d partitions", name, count)
            return topic

    async def create_if_missing(self, name: str) -> None:
        """Create a topic that somebody asked for by name, with the broker's defaults; raises as `create` does."""
        try:
            await self.create(name)
        except TopicAlreadyExists:
            return  # a request that came at the same moment was first

    @_carried_out
    async def delete(self, name: str) -> None:
        """Raises UnknownTopicOrPartition or TopicDeletionDisabled."""
        async with self._changing:
            topic = self._metadata.get(name)
            if not self._config.delete_topic_enable:
                raise TopicDeletionDisabled(f"topic {name!r} stays: delete.topic.enable is false")
            await asyncio.to_thread(self._store.mark_deleted, name)
            self._metadata.remove(name)
            for number in range(len(topic.partitions)):
                self._replicas.drop(TopicPartition(name, number))
            await asyncio.to_thread(self._delete, name)
            logger.info("deleted topic %s", name)

    @_carried_out
    async def grow(self, name: str, total: int, *, validate_only: bool = False) -> Topic:
        """The topic with `total` partitions; raises UnknownTopicOrPartition, InvalidPartitions or PolicyViolation."""
        async with self._changing:
            topic = self._metadata.get(name)
            there = len(topic.partitions)
            if total <= there:
                raise InvalidPartitions(f"topic {name!r} has {there} partitions; it can only grow, not become {total}")
            _check_count(name, total - there)
            added = self._assign(total - there)
            grown = dataclasses.replace(topic, partitions=topic.partitions + added)
            if not validate_only:
                self._lead(grown, await asyncio.to_thread(self._grow, topic, added))
                logger.info("topic %s grew from %d to %d partitions", name, there, total)
            return grown

    @_carried_out
    async def alter(
        self, name: str, revise: Callable[[Topic], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Give a topic the configuration that `revise` makes from the one it has.

        Raises UnknownTopicOrPartition, InvalidConfig, or what `revise` raises.
        """
        async with self._changing:
            topic = self._metadata.get(name)
            overrides = dict(revise(topic))
            config = TopicConfig.parse(overrides, self._config.topic_defaults)
            if validate_only:
                return
            await asyncio.to_thread(self._store.set_overrides, name, overrides)
            self._metadata.put(dataclasses.replace(topic, overrides=overrides, config=config))
            self._replicas.update_config(name, config)

    def _check_new(self, name: str) -> None:
        check_topic(name)
        if name in self._metadata:
            raise TopicAlreadyExists(f"topic {name!r} exists already")
        for topic in self._metadata:
            if topic.name.replace(".", "_") == name.replace(".", "_"):
                raise InvalidTopic(f"topic {name!r} differs from {topic.name!r} only in '.' and '_': names of metrics")

    def _assign(self, count: int) -> tuple[PartitionInfo, ...]:
        me = self._config.broker_id
        return (PartitionInfo(leader=me, leader_epoch=0, replicas=(me,), in_sync_replicas=(me,)),) * count

    def _lead(self, topic: Topic, opened: Mapping[int, Opened]) -> None:
        """Take up the partitions that were opened, and show the topic to requests."""
        for number, log in opened.items():
            name = TopicPartition(topic.name, number)
            if isinstance(log, KafkaStorageError):
                self._replicas.set_offline(name, str(log))
                continue
            self._replicas.lead(
                name,
                log,
                leader_epoch=topic.partitions[number].leader_epoch,
                config=topic.config,
                broker_id=self._config.broker_id,
            )
        self._metadata.put(topic)

    # What follows blocks: it runs in a thread.

    def _create(self, topic: Topic) -> dict[int, Opened]:
        try:
            self._store.create(topic.name, topic.topic_id, topic.partitions, topic.overrides)
        except NodeExists:
            raise TopicAlreadyExists(f"topic {topic.name!r} exists already") from None
        opened = self._open(topic, range(len(topic.partitions)))
        for failed in opened.values():
            if isinstance(failed, KafkaStorageError):
                self._delete(topic.name)  # half a topic is of no use to anybody
                raise failed
        return opened

    def _grow(self, topic: Topic, added: tuple[PartitionInfo, ...]) -> dict[int, Opened]:
        self._store.grow(topic, added)
        there = len(topic.partitions)
        return self._open(topic, range(there, there + len(added)))

    def _open(self, topic: Topic, numbers: Iterable[int], *, is_new: bool = True) -> dict[int, Opened]:
        opened: dict[int, Opened] = {}
        for number in numbers:
            try:
                name = TopicPartition(topic.name, number)
                opened[number] = self._logs.create(name, topic.config, topic_id=topic.topic_id, is_new=is_new)
            except KafkaStorageError as error:
                logger.error("%s-%d is offline: %s", topic.name, number, error)
                opened[number] = error
        return opened

    def _delete(self, name: str) -> None:
        names = {log.partition for log in self._logs if log.partition.topic == name}
        if name in self._store.names():  # and those that are offline, so that their name is free again
            names |= {TopicPartition(name, number) for number in range(len(self._store.load(name).partitions))}
        for partition in names:
            self._logs.delete(partition)
        self._store.remove(name)

    def _load(self) -> list[tuple[Topic, dict[int, Opened]]]:
        for name in self._store.marked_deleted():
            logger.info("carrying on with the deletion of topic %s", name)
            self._delete(name)
        self._adopt()
        return [self._elect(self._store.load(name)) for name in self._store.names()]

    def _adopt(self) -> None:
        known = set(self._store.names())
        found: dict[str, int] = {}
        ids: dict[str, uuid.UUID] = {}
        for log in sorted(self._logs, key=lambda log: log.partition):
            name, number = log.partition
            if name not in known:
                found[name] = number + 1
                if log.topic_id:
                    ids.setdefault(name, log.topic_id)
        for name, count in found.items():
            logger.warning(
                "adopting topic %s: its %d partitions are on disk, but not in the cluster store", name, count
            )
            self._store.create(name, ids.get(name) or uuid.uuid4(), self._assign(count), {})

    def _elect(self, topic: Topic) -> tuple[Topic, dict[int, Opened]]:
        """Open the topic's logs and write leader epochs that no batch in them has."""
        opened = self._open(topic, range(len(topic.partitions)), is_new=False)
        partitions = tuple(_next_epoch(info, opened[number]) for number, info in enumerate(topic.partitions))
        self._store.set_states(topic.name, partitions)
        return dataclasses.replace(topic, partitions=partitions), opened


def _next_epoch(info: PartitionInfo, log: Opened) -> PartitionInfo:
    if isinstance(log, KafkaStorageError):
        return info
    return dataclasses.replace(info, leader_epoch=max(info.leader_epoch, log.latest_epoch) + 1)


def _check_count(name: str, count: int) -> None:
    if count < 1:
        raise InvalidPartitions(f"topic {name!r}: {count} partitions; there must be at least 1")
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise PolicyViolation(f"topic {name!r}: {count} partitions; at most {MAX_PARTITIONS_PER_REQUEST} at once")


def _check_factor(name: str, factor: int) -> None:
    if factor != 1:
        raise InvalidReplicationFactor(f"topic {name!r}: {factor} replicas; there is 1 broker, so it must be 1")
