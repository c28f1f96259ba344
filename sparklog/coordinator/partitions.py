"""The partitions of a coordinator's topic that this broker leads, each with the shard that is loaded from it.

The hash of a group id or transactional id selects a partition of the topic, as in Apache Kafka. The leader of that
partition is the id's coordinator. The topic is created on the first request.

    load      this broker has become the leader. It waits until everything in the log is committed, then replays the log
              in a thread. Until then, requests for its ids are refused with COORDINATOR_LOAD_IN_PROGRESS. (Apache
              Kafka also replays uncommitted records, and answers from them.) A log that cannot be read for a moment is
              read again. A later epoch of the same leader changes nothing
    unload    this broker is no longer the leader. Waiting requests are answered NOT_COORDINATOR, and the shard's state
              is dropped. If a load is still running, its result is dropped
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence, Sized
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from sparklog.base.clock import Clock
from sparklog.base.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    KafkaStorageError,
    NotCoordinator,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.java_hash import partition_for
from sparklog.coordinator.runtime import CoordinatorRuntime, CoordinatorShard
from sparklog.log.log import Log
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.runtime.purgatory import Purgatory

LOOK_AGAIN_MS = 10_000
READ_AGAIN_MS = 1_000
AnyShard = TypeVar("AnyShard", bound=CoordinatorShard[Any])
logger = logging.getLogger(__name__)


class PartitionedTopic(Protocol):
    @property
    def partitions(self) -> Sized:
        """The partitions; only their number matters here."""
        ...


class TopicLookup(Protocol):
    """The topics of the cluster; implemented by cluster.metadata_cache.MetadataCache."""

    def find(self, name: str) -> PartitionedTopic | None:
        """Return the topic; None if there is none yet."""
        ...


class ShardCallbacks(Struct, Generic[AnyShard], frozen=True, kw_only=True, eq=False):
    """The functions by which a coordinator loads and serves a partition of its topic."""

    new_shard: Callable[[], AnyShard]
    load: Callable[[Log, int, Callable[[], bool]], tuple[AnyShard, object]]
    """`load(log, end_offset, is_wanted)`: returns the shard as of `end_offset`, and a text for logs. Blocks.

    Ends early if `is_wanted()` returns false. Raises KafkaStorageError or CorruptRecord.
    """
    serve: Callable[[TopicPartition, int, AnyShard], CoordinatorRuntime[AnyShard]]
    """`serve(name, led_since, shard)`: returns the runtime of a shard."""
    begin: Callable[[CoordinatorRuntime[AnyShard]], Awaitable[None]]
    """Called once a loaded shard is served."""


class _LedPartition(Struct, Generic[AnyShard], eq=False):
    """A partition that this broker leads; `runtime` is None while the partition is being loaded."""

    leader_epoch: int
    led_since: int
    """`led_since` of the partition when the load began. Another value now shows that leadership was lost in between."""
    runtime: CoordinatorRuntime[AnyShard] | None = None
    failed: NotCoordinator | None = None
    """The error of a load that found damage. Only a change of leader or a restart clears it."""


class CoordinatorPartitions(Generic[AnyShard]):
    """The led partitions of one topic. Runs on one event loop, except that logs are loaded in a thread."""

    def __init__(
        self,
        topic: str,
        serving: ShardCallbacks[AnyShard],
        *,
        clock: Clock,
        topics: TopicLookup,
        replicas: ReplicaManager,
        waiting: Purgatory[TopicPartition],
        create_topic: Callable[[], Awaitable[None]],
        default_partitions: int,
    ) -> None:
        """Take the dependencies.

        create_topic: returns once the topic exists, whether it created it or not; raises KafkaError.
        default_partitions: the number of partitions that the topic will get.
        """
        self.topic = topic
        self._serving = serving
        self._clock = clock
        self._topics = topics
        self._replicas = replicas
        self._waiting = waiting
        self._create_topic = create_topic
        self._default_partitions = default_partitions
        self._led: dict[int, _LedPartition[AnyShard]] = {}
        self._loading: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    @property
    def runtimes(self) -> list[CoordinatorRuntime[AnyShard]]:
        """The runtimes of the partitions that are loaded."""
        return [led.runtime for led in self._led.values() if led.runtime is not None]

    @property
    def is_loading(self) -> bool:
        """Whether a partition is being loaded."""
        return any(led.runtime is None and led.failed is None for led in self._led.values())

    @property
    def waiting(self) -> int:
        """Number of requests not answered yet."""
        return sum(runtime.waiting for runtime in self.runtimes)

    def leadership_changed(self, name: TopicPartition, is_leader: bool, leader_epoch: int) -> None:
        """Load or unload a partition after this broker gained or lost its leadership. Other topics are ignored."""
        if name.topic == self.topic and not self._is_stopped:
            if is_leader:
                self.load(name.partition, leader_epoch)
            else:
                self.unload(name.partition)

    def load(self, partition: int, leader_epoch: int) -> None:
        """Start loading a partition that this broker leads in this epoch."""
        led = self._led.get(partition)
        if led is not None and led.leader_epoch >= leader_epoch:
            return
        replica = self._replicas.find(TopicPartition(self.topic, partition))
        if led is not None and replica is not None and led.led_since == replica.partition.led_since:
            led.leader_epoch = leader_epoch
            return
        self.unload(partition)
        if replica is None or not replica.partition.is_leader:
            return
        led = _LedPartition(leader_epoch, replica.partition.led_since)
        self._led[partition] = led
        if replica.log.log_start_offset == replica.log.log_end_offset:
            self._serve(led, self._serving.new_shard(), replica)
            return
        task = asyncio.get_running_loop().create_task(self._load(partition, led, replica))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def loaded(self) -> None:
        """Wait until all loads that are running now have ended."""
        if self._loading:
            await asyncio.wait(tuple(self._loading))

    def unload(self, partition: int) -> None:
        """Drop the shard of a partition that this broker no longer leads, and answer its waiting requests."""
        led = self._led.pop(partition, None)
        if led is not None and led.runtime is not None:
            led.runtime.close(NotCoordinator(f"{self.topic}-{partition} has another leader"))
        if led is not None:
            self._waiting.check(TopicPartition(self.topic, partition))  # lets a waiting load end

    def unload_all(self) -> None:
        """Drop all shards, and answer their waiting requests."""
        for partition in tuple(self._led):
            self.unload(partition)

    def stop(self) -> None:
        """Answer all waiting requests, stop all timers, and refuse further requests: the broker is stopping."""
        self._is_stopped = True
        self.unload_all()

    async def _load(self, partition: int, led: _LedPartition[AnyShard], replica: Replica) -> None:
        def is_wanted() -> bool:
            return self._led.get(partition) is led

        started_ms = self._clock.monotonic_ms()
        end_offset = replica.log.log_end_offset
        try:
            await self._until_committed(replica, end_offset, is_wanted)
            shard, done = await self._read(replica, end_offset, is_wanted)
        except Exception as error:  # any error must end the load, or clients would retry for ever
            if is_wanted():
                trace = None if isinstance(error, KafkaError) else error
                logger.error("%s-%d cannot be read: %s", self.topic, partition, error, exc_info=trace)
                led.failed = NotCoordinator(f"{self.topic}-{partition} cannot be read")
            return
        if is_wanted():
            took_ms = self._clock.monotonic_ms() - started_ms
            logger.info("read %s of %s-%d in %d ms", done, self.topic, partition, took_ms)
            await self._serving.begin(self._serve(led, shard, replica))

    async def _read(self, replica: Replica, end_offset: int, is_wanted: Callable[[], bool]) -> tuple[AnyShard, object]:
        """Read the log; again after a while if it could not be read, as without file descriptors."""
        while True:
            try:
                return await asyncio.to_thread(self._serving.load, replica.log, end_offset, is_wanted)
            except KafkaStorageError as error:
                if not is_wanted():
                    raise
                logger.warning("%s is read again in %d ms: %s", replica.partition.name, READ_AGAIN_MS, error)
            name = replica.partition.name
            await self._waiting.wait([name], lambda: not is_wanted() or None, READ_AGAIN_MS)

    async def _until_committed(self, replica: Replica, end_offset: int, is_wanted: Callable[[], bool]) -> None:
        """Wait until the log is committed up to `end_offset`, or the load is no longer needed."""

        def attempt() -> bool | None:
            return not is_wanted() or replica.partition.high_watermark >= end_offset or None

        while not self._is_stopped:
            if await self._waiting.wait([replica.partition.name], attempt, LOOK_AGAIN_MS):
                return

    def _serve(self, led: _LedPartition[AnyShard], shard: AnyShard, replica: Replica) -> CoordinatorRuntime[AnyShard]:
        led.runtime = runtime = self._serving.serve(replica.partition.name, led.led_since, shard)
        return runtime

    def partition_for(self, text: str) -> int:
        """Return the number of the partition that an id belongs to."""
        topic = self._topics.find(self.topic)
        return partition_for(text, len(topic.partitions) if topic else self._default_partitions)

    async def ensure_topic(self) -> None:
        """Create the topic if it does not exist. Raises CoordinatorNotAvailable if that fails."""
        if self._topics.find(self.topic) is None:
            try:
                await self._create_topic()
            except KafkaError as error:
                raise CoordinatorNotAvailable(f"{self.topic} could not be created: {error}") from error

    async def runtime_for(self, text: str) -> CoordinatorRuntime[AnyShard]:
        """Return the runtime of an id's shard.

        Raises CoordinatorLoadInProgress, NotCoordinator or CoordinatorNotAvailable.
        """
        self._check_serves()
        await self.ensure_topic()
        return self.runtime_of(self.partition_for(text))

    def runtime_of(self, partition: int) -> CoordinatorRuntime[AnyShard]:
        """Return the runtime of a partition. Raises CoordinatorLoadInProgress or NotCoordinator."""
        self._check_serves()  # the broker may have stopped while the topic was created
        replica = self._replicas.find(TopicPartition(self.topic, partition))
        if replica is None or not replica.partition.is_leader:
            self.unload(partition)
            raise NotCoordinator(f"{self.topic}-{partition} is not led here")
        if partition not in self._led:
            self.load(partition, replica.partition.leader_epoch)
        led = self._led[partition]
        if led.failed is not None:
            raise led.failed
        if led.runtime is None:
            raise CoordinatorLoadInProgress(f"{self.topic}-{partition} is being read")
        return led.runtime

    def _check_serves(self) -> None:
        if self._is_stopped:
            raise NotCoordinator("this broker is stopping")

    async def committed(self) -> tuple[Sequence[CoordinatorRuntime[AnyShard]], KafkaError | None]:
        """Return the runtimes whose state is committed, and an error if others have state that may be lost."""

        async def wait(runtime: CoordinatorRuntime[AnyShard]) -> KafkaError | None:
            try:
                await runtime.committed()
            except KafkaError as error:
                return error
            return None

        runtimes = self.runtimes
        errors = await asyncio.gather(*map(wait, runtimes))
        committed = [runtime for runtime, error in zip(runtimes, errors, strict=True) if error is None]
        return committed, next((error for error in errors if error is not None), None)
