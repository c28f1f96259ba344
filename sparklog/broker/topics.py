"""Creation, growth, alteration and deletion of topics: any broker writes the new state to the cluster store.

The controller watches the store and carries the change out: it elects leaders, informs the brokers that have the
replicas, then all brokers. A request is answered once the controller has informed this broker: a created topic exists,
with leaders, for every later request here. If that takes longer than the request's timeout, the answer is
REQUEST_TIMED_OUT and the change continues, as in Apache Kafka.

    create      write the topic, its replica assignment and its configuration; the controller adds leaders and folders
    delete      write a deletion mark; the topic is gone once every broker with a replica has deleted it
    grow        add partitions to the topic's assignment, if it has not changed since it was read
    alter       write the configuration, if it has not changed since it was read, and a notification

A write runs to its end even if the client disconnects meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar
from uuid import UUID

from msgspec import structs

from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.errors import (
    BadVersion,
    ConnectionLoss,
    InvalidPartitions,
    InvalidTopic,
    LeaderNotAvailable,
    NodeExists,
    NoNode,
    PolicyViolation,
    ReassignmentInProgress,
    RequestTimedOut,
    SessionExpired,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import check_topic
from sparklog.base.topic_config import TopicConfig
from sparklog.broker.resources import CORDONED, check_changeable
from sparklog.cluster.metadata_cache import MetadataCache, is_led
from sparklog.cluster.model import PartitionInfo, ReplicaAssignment, Topic
from sparklog.cluster.topics import TopicStore, without_leader
from sparklog.controller.assignment import Racks, assign_more, assign_replicas
from sparklog.log.directory.topic_configs import config_of
from sparklog.runtime.serial_executor import SerialExecutor
from sparklog.security.quotas import Mutate, unlimited

MAX_PARTITIONS_PER_REQUEST = 10_000  # as in org.apache.kafka.controller.ReplicationControlManager
MANY_PARTITIONS = 500
"""Above this number of partitions, replicas are assigned in a thread."""
TIMEOUT_MS = 30_000
AUTO_CREATION_TIMEOUT_MS = 5_000
CONFIG_TIMEOUT_MS = 5_000
Replicas = Sequence[int]
Assign = Callable[[Sequence[Replicas]], Sequence[Replicas]]
"""Returns the replicas of the new partitions, given those of the existing ones."""
Done = TypeVar("Done")
logger = logging.getLogger(__name__)


class Topics:
    """Changes the topics of a cluster. Used on one event loop."""

    def __init__(
        self,
        config: DynamicConfig,
        store: TopicStore,
        metadata: MetadataCache,
        random_below: Callable[[int], int],
        check_room: Callable[[int], None],
        until_sure: Callable[[str, int], Awaitable[None]],
    ) -> None:
        """random_below: returns a random number below its argument. check_room: raises PolicyViolation if this broker
        cannot take that many more partitions. until_sure: as `StoreGuard.until_sure`.
        """
        self._config = config
        self._store = store
        self._metadata = metadata
        self._random_below = random_below
        self._check_room = check_room
        self._until_sure = until_sure
        self._writes = SerialExecutor()

    async def settled(self) -> None:
        """Wait until no write is under way."""
        await self._writes.settled()

    async def find_unsure(self, names: Collection[str]) -> set[str]:
        """Return the topics whose assignment in the store may not be the newest. Raises StoreError."""
        return await asyncio.to_thread(lambda: {name for name in names if self._store.is_unsure(name)})

    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignments: Sequence[Replicas] = (),
        overrides: Mapping[str, str] | None = None,
        validate_only: bool = False,
        timeout_ms: int = TIMEOUT_MS,
        mutate: Mutate = unlimited,
    ) -> Topic:
        """Create a topic and return it.

        assignments: the replicas of each partition, instead of both numbers
        mutate: called with the number of partitions once they are checked

        Raises InvalidTopic, TopicAlreadyExists, InvalidPartitions, InvalidReplicationFactor, PolicyViolation (too many
        partitions at once, or for this broker), InvalidConfig or RequestTimedOut, and what `mutate` raises.
        """
        self._check_new(name)
        overrides = dict(overrides or {})
        config = TopicConfig.parse(overrides, self._config.current.topic_defaults)
        count = len(assignments) or (self._config.current.num_partitions if partitions is None else partitions)
        assign = (lambda: assignments) if assignments else self._assigner(name, count, replication_factor)
        is_large = count > MANY_PARTITIONS
        replicas, infos = await asyncio.to_thread(_plan, assign) if is_large else _plan(assign)
        self._check_room(self._count_here(replicas))
        topic = Topic(name=name, topic_id=self._new_id(), partitions=infos, overrides=overrides, config=config)
        if validate_only:
            return topic
        mutate(count)
        await self._until_sure(name, timeout_ms)
        await self._add(topic, replicas, timeout_ms)
        logger.info("created topic %s with %d partitions", name, len(replicas))
        await self._wait(lambda: self._is_there(topic), timeout_ms, f"topic {name!r} is not led by anybody yet")
        return self._metadata.find(name) or topic

    def _count_here(self, replicas: Sequence[Replicas]) -> int:
        """Return how many of these partitions have a replica on this broker."""
        return sum(self._config.current.broker_id in each for each in replicas)

    async def _add(self, topic: Topic, replicas: tuple[tuple[int, ...], ...], timeout_ms: int) -> None:
        name = topic.name
        for is_last in (False, True):
            try:
                await self._write(lambda: self._store.add(name, topic.topic_id, replicas, topic.overrides))
                return
            except NodeExists:
                if is_last or not await self._has_been_deleted(name, timeout_ms):
                    raise TopicAlreadyExists(f"Topic '{name}' already exists.") from None

    async def _has_been_deleted(self, name: str, timeout_ms: int) -> bool:
        """Wait for the end of a deletion under way. Return whether the name is free then."""
        if await asyncio.to_thread(self._store.is_marked_deleted, name):
            return await self.until_removed(name, timeout_ms)
        return not await asyncio.to_thread(self._store.exists, name)

    async def until_removed(self, name: str, timeout_ms: int) -> bool:
        """Return whether the topic's deletion mark, its last node, leaves the store in time."""
        loop, has_changed = asyncio.get_running_loop(), asyncio.Event()

        def on_change(_: str) -> None:
            with suppress(RuntimeError):  # the loop is closed: the broker has stopped
                loop.call_soon_threadsafe(has_changed.set)

        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                while await asyncio.to_thread(self._store.is_marked_deleted, name, on_change):
                    await has_changed.wait()
                    has_changed.clear()
                return True
        return False

    async def create_if_missing(self, name: str) -> None:
        """Create a topic that a request names, with the broker's defaults; if it exists, wait for its leaders.

        Raises as `create` does, but LeaderNotAvailable if the topic has no leaders after `AUTO_CREATION_TIMEOUT_MS` or
        the store cannot be reached: the client retries, and requests of other clients need not wait.
        """
        try:
            try:
                await self.create(name, timeout_ms=AUTO_CREATION_TIMEOUT_MS)
            except TopicAlreadyExists:
                await self.wait_for(name, AUTO_CREATION_TIMEOUT_MS)  # a concurrent request created it
        except (RequestTimedOut, ConnectionLoss, SessionExpired) as error:
            raise LeaderNotAvailable(str(error)) from None

    async def find_or_create(self, name: str) -> Topic:
        """Return the topic of this name; create it if it is missing and auto.create.topics.enable is set.

        Raises UnknownTopicOrPartition, and as `create_if_missing` does.
        """
        if self._config.current.auto_create_topics_enable and name not in self._metadata:
            await self.create_if_missing(name)
        return self._metadata.get(name)

    async def wait_for(self, name: str, timeout_ms: int = TIMEOUT_MS) -> None:
        """Wait until this broker knows a topic of the store, with its leaders. Raises RequestTimedOut."""

        def is_known() -> bool:
            topic = self._metadata.find(name)
            return topic is not None and is_led(topic)

        await self._wait(is_known, timeout_ms, f"topic {name!r} is not led by anybody yet")

    async def delete(self, name: str, timeout_ms: int = TIMEOUT_MS, *, mutate: Mutate = unlimited) -> None:
        """Delete a topic. mutate: called with the number of its partitions

        Raises UnknownTopicOrPartition, TopicDeletionDisabled or RequestTimedOut, and what `mutate` raises.
        """
        topic = self._metadata.get(name)
        if not self._config.current.delete_topic_enable:
            raise TopicDeletionDisabled(f"topic {name!r} stays: delete.topic.enable is false")
        mutate(len(topic.partitions))
        await self._write(lambda: self._store.mark_deleted(name, topic.topic_id))
        gone = topic.topic_id
        why = f"topic {name!r} is not deleted everywhere yet"
        await self._wait(lambda: self._metadata.find_name(gone) is None, timeout_ms, why)
        # Do not wait for the files if a replica is on a dead broker: it deletes them only after it is back.
        are_alive = all(self._are_alive(info.replicas) for info in topic.partitions)
        if are_alive and not await self.until_removed(name, timeout_ms):
            raise RequestTimedOut(f"{why}; {timeout_ms} ms have passed")
        logger.info("deleted topic %s", name)

    async def grow(
        self,
        name: str,
        total: int,
        *,
        assignments: Sequence[Replicas] | None = None,
        validate_only: bool = False,
        timeout_ms: int = TIMEOUT_MS,
        mutate: Mutate = unlimited,
    ) -> int:
        """Add partitions up to `total` and return `total`.

        assignments: the replicas of each new partition
        mutate: called with the number of partitions to add

        Raises UnknownTopicOrPartition, InvalidPartitions, InvalidReplicationFactor, PolicyViolation,
        ReassignmentInProgress or RequestTimedOut, and what `mutate` raises.
        """
        topic = self._metadata.get(name)
        racks, random_start = self._racks(), self._random_below(1 << 16)

        def assign(existing: Sequence[Replicas]) -> Sequence[Replicas]:
            if assignments is not None:
                return assignments
            return assign_more(racks, total - len(existing), existing=existing, random_start=random_start)

        added = total - len(topic.partitions)
        if added > 0 and not validate_only:
            mutate(added)
        try:
            await self._write(lambda: self._grow(name, total, assign, validate_only=validate_only))
        except NoNode:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist") from None
        if not validate_only:
            logger.info("topic %s grows to %d partitions", name, total)
            await self._wait(
                lambda: self._has_grown(topic, total), timeout_ms, f"the partitions of {name!r} are not all led yet"
            )
        return total

    async def alter(
        self, name: str, revise: Callable[[Topic], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Give a topic the configuration that `revise` derives from its present one.

        Raises UnknownTopicOrPartition, InvalidConfig, or what `revise` raises.
        """
        topic = self._metadata.get(name)

        def change(overrides: Mapping[str, str]) -> Mapping[str, str]:
            config = config_of(name, overrides, self._config.current.topic_defaults)
            revised = dict(revise(structs.replace(topic, overrides=overrides, config=config)))
            changed = {key: value for key, value in revised.items() if overrides.get(key) != value}
            TopicConfig.parse(changed, self._config.current.topic_defaults)
            return revised

        if validate_only:
            change(topic.overrides)
            return
        written = await self._write(lambda: self._store.change_overrides(name, change))

        def is_known() -> bool:
            found = self._metadata.find(name)
            return found is None or found.topic_id != topic.topic_id or found.overrides == written

        # The timeout is needed: if another change follows before the controller reads, this one is never seen alone.
        await self._metadata.wait_until(is_known, CONFIG_TIMEOUT_MS)

    async def alter_broker(
        self, broker_id: int, revise: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Give a broker, or ALL_BROKERS, the dynamic configuration that `revise` derives from the present one.

        Raises InvalidRequest or InvalidConfig, or what `revise` raises.
        """

        def change(given: Mapping[str, str]) -> Mapping[str, str]:
            revised = revise(given)
            check_changeable(broker_id, {key: value for key, value in revised.items() if given.get(key) != value})
            return revised

        if validate_only:
            change(self._metadata.overrides_given_to(broker_id))
            return
        written = await self._write(lambda: self._store.change_broker_overrides(broker_id, change))
        await self._metadata.wait_until(
            lambda: self._metadata.overrides_given_to(broker_id) == written, CONFIG_TIMEOUT_MS
        )

    def _check_new(self, name: str) -> None:
        check_topic(name)
        if name in self._metadata:
            raise TopicAlreadyExists(f"Topic '{name}' already exists.")
        alike = name.replace(".", "_")
        for topic in self._metadata if "_" in alike else ():
            if topic.name.replace(".", "_") == alike:
                raise InvalidTopic(f"Topic '{name}' collides with existing topic: {topic.name}")

    def _assigner(self, name: str, count: int, factor: int | None) -> Callable[[], Sequence[Replicas]]:
        """Return a function, for any thread, that assigns a new topic's replicas."""
        _check_count(name, count)
        racks = self._racks()
        return partial(
            assign_replicas,
            racks,
            count,
            self._config.current.default_replication_factor if factor is None else factor,
            start=self._random_below(max(1, len(racks))),
            shift=self._random_below(max(1, len(racks))),
        )

    def _racks(self) -> Racks:
        """Return the racks of the brokers that may get new partitions, by broker id."""
        cordoned = self._metadata.brokers_with(CORDONED)
        return {broker_id: info.rack for broker_id, info in self._metadata.brokers.items() if broker_id not in cordoned}

    def _are_alive(self, brokers: Sequence[int]) -> bool:
        return all(broker in self._metadata.brokers for broker in brokers)

    def _new_id(self) -> UUID:
        return UUID(int=self._random_below(1 << 128), version=4)

    def _is_there(self, created: Topic) -> bool:
        topic = self._metadata.find_by_id(created.topic_id)
        return topic is not None and is_led(topic)

    def _has_grown(self, before: Topic, total: int) -> bool:
        topic = self._metadata.find_by_id(before.topic_id)
        return topic is None or (len(topic.partitions) >= total and is_led(topic))

    async def _wait(self, is_true: Callable[[], bool], timeout_ms: int, why: str) -> None:
        if not await self._metadata.wait_until(is_true, timeout_ms):
            raise RequestTimedOut(f"{why}; {timeout_ms} ms have passed")

    async def _write(self, write: Callable[[], Done]) -> Done:
        """Write to the store in a thread: one write at a time, each to its end even if the caller is cancelled."""
        return await self._writes.run_in_thread(self, write)

    # Blocks: runs in a thread.

    def _grow(self, name: str, total: int, assign: Assign, *, validate_only: bool) -> None:
        for is_last in (False, True):
            assignment = self._store.load_assignment(name)
            there = len(assignment.partitions)
            if total == there:
                raise InvalidPartitions(f"Topic already has {there} partition(s).")
            if total < there:
                raise InvalidPartitions(
                    f"The topic {name} currently has {there} partition(s); {total} would not be an increase."
                )
            _check_count(name, total - there)
            if any(each.is_reassigning for each in assignment.partitions):
                raise ReassignmentInProgress(f"partitions of topic {name!r} are being reassigned")
            added = assign([each.replicas for each in assignment.partitions])
            self._check_room(self._count_here(added))
            if validate_only:
                return
            grown = (*assignment.partitions, *(ReplicaAssignment(replicas=tuple(each)) for each in added))
            try:
                self._store.set_assignment(name, structs.replace(assignment, partitions=grown))
                return
            except BadVersion:
                if is_last:
                    raise ReassignmentInProgress(f"the partitions of topic {name!r} are being changed") from None


def _plan(assign: Callable[[], Sequence[Replicas]]) -> tuple[tuple[tuple[int, ...], ...], tuple[PartitionInfo, ...]]:
    """Return the replicas and the first state of each partition of a new topic."""
    replicas = tuple(map(tuple, assign()))
    return replicas, tuple(without_leader(ReplicaAssignment(replicas=each)) for each in replicas)


def _check_count(name: str, count: int) -> None:
    if count < 1:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise PolicyViolation(f"topic {name!r}: {count} partitions; at most {MAX_PARTITIONS_PER_REQUEST} at once")
