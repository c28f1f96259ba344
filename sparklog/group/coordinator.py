"""The group coordinator of one broker: finds the shard of each group and passes requests to it.

The hash of a group's id selects a partition of `__consumer_offsets` (as in Apache Kafka). The leader of that partition
is the group's coordinator. The topic is created on the first request for a group.

    load      this broker has become the leader. It waits until everything in the log is committed, then replays the log
              in a thread. Until then, requests for its groups are refused with COORDINATOR_LOAD_IN_PROGRESS. (Apache
              Kafka also replays uncommitted records, and answers from them.) A later epoch of the same leader changes
              nothing
    unload    this broker is no longer the leader. Waiting requests are answered NOT_COORDINATOR, and the state of the
              groups is dropped. If a load is still running, its result is dropped

Each method is one API. An error of a group is in its response; no KafkaError is raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import UUID

from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    KafkaError,
    NotCoordinator,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.java_hash import partition_for
from sparklog.group.coordinator_runtime import RETRY_MS, CallLater, CoordinatorRuntime
from sparklog.group.generations import Generation, generations
from sparklog.group.group import Group, TopicsView
from sparklog.group.loader import load
from sparklog.group.offsets import MOST_REMOVED
from sparklog.group.partition_log import PartitionLog
from sparklog.group.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DeleteGroups,
    DeleteGroupsResponse,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribeGroups,
    DescribeGroupsResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    SyncGroup,
    SyncGroupResponse,
)
from sparklog.group.shard import Shard
from sparklog.group.topic_pattern import UNMATCHED, Matches, match
from sparklog.offsets_topic.records import CoordinatorRecord
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.slices import Slices, in_parts, of_many
from sparklog.runtime.state_machine import Decision

OFFSETS_TOPIC = "__consumer_offsets"
MAX_ID_BYTES = (1 << 15) - 1
LOOK_AGAIN_MS = 10_000
PART = 1_000
"""Number of groups that are listed together: a few milliseconds of work."""
Response = TypeVar("Response")
Response_co = TypeVar("Response_co", covariant=True)
Decide = Callable[[Shard, Hashable, int], Decision[CoordinatorRecord, Response]]
logger = logging.getLogger(__name__)


class GroupRequest(Protocol[Response_co]):
    """Any request of `requests.py`."""

    def refused(self, error: KafkaError, /) -> Response_co: ...


@dataclass(slots=True, eq=False)
class _LedPartition:
    """A partition that this broker leads; `runtime` is None while the partition is being loaded."""

    leader_epoch: int
    led_since: int
    """`led_since` of the partition at the load. A different value now means that leadership was lost in between."""
    runtime: CoordinatorRuntime | None = None
    failed: NotCoordinator | None = None
    """Why the load failed. Only a change of leader or a restart clears it."""


class GroupCoordinator:
    """The group coordinator. Runs on one event loop, except that logs are loaded in a thread."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        topics: TopicsView,
        replicas: ReplicaManager,
        waiting: Purgatory[TopicPartition],
        create_offsets_topic: Callable[[], Awaitable[None]],
        new_id: Callable[[], UUID],
        slices: Slices,
        call_later: CallLater | None = None,
        on_generation: Callable[[Generation], None] = lambda _: None,
    ) -> None:
        """Take the dependencies.

        `create_offsets_topic` returns once the topic exists, whether it created it or not; raises KafkaError.
        `on_generation` is called for each generation that begins here, once it is committed.
        """
        self._config = config
        self._clock = clock
        self._topics = topics
        self._replicas = replicas
        self._waiting = waiting
        self._create_offsets_topic = create_offsets_topic
        self._new_id = new_id
        self._slices = slices
        self._call_later = call_later
        self._on_generation = on_generation
        self._led: dict[int, _LedPartition] = {}
        self._loading: set[asyncio.Task[None]] = set()
        self._forgetting: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    # Partitions

    def start(self) -> None:
        """Load every partition of the offsets topic that this broker leads."""
        for replica in self._replicas:
            if replica.partition.name.topic == OFFSETS_TOPIC and replica.partition.is_leader:
                self.load(replica.partition.name.partition, replica.partition.leader_epoch)

    def leadership_changed(self, name: TopicPartition, is_leader: bool, leader_epoch: int) -> None:
        """Load or unload a partition after this broker gained or lost its leadership. Other topics are ignored."""
        if name.topic == OFFSETS_TOPIC and not self._is_stopped:
            if is_leader:
                self.load(name.partition, leader_epoch)
            else:
                self.unload(name.partition)

    def load(self, partition: int, leader_epoch: int) -> None:
        """Start loading a partition of the offsets topic that this broker leads in this epoch."""
        led = self._led.get(partition)
        if led is not None and led.leader_epoch >= leader_epoch:
            return
        replica = self._replicas.find(TopicPartition(OFFSETS_TOPIC, partition))
        if led is not None and replica is not None and led.led_since == replica.partition.led_since:
            led.leader_epoch = leader_epoch
            return
        self.unload(partition)
        if replica is None or not replica.partition.is_leader:
            return
        led = _LedPartition(leader_epoch, replica.partition.led_since)
        self._led[partition] = led
        if replica.log.log_start_offset == replica.log.log_end_offset:
            self._serve(led, self._new_shard(), replica)
            return
        task = asyncio.get_running_loop().create_task(self._load(partition, led, replica))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def loaded(self) -> None:
        """Wait until all loads that are running now have ended."""
        if self._loading:
            await asyncio.wait(tuple(self._loading))

    def unload(self, partition: int) -> None:
        """Drop the groups of a partition that this broker no longer leads, and answer their waiting requests."""
        led = self._led.pop(partition, None)
        if led is not None and led.runtime is not None:
            led.runtime.close(NotCoordinator(f"{OFFSETS_TOPIC}-{partition} has another leader"))
        if led is not None:
            self._waiting.check(TopicPartition(OFFSETS_TOPIC, partition))  # lets a waiting load end

    def stop(self) -> None:
        """Answer all waiting requests, stop all timers, and refuse further requests: the broker is stopping."""
        self._is_stopped = True
        for task in self._forgetting:
            task.cancel()
        for partition in tuple(self._led):
            self.unload(partition)

    def _new_shard(self) -> Shard:
        return Shard(self._config, self._topics, self._new_id)

    async def _load(self, partition: int, led: _LedPartition, replica: Replica) -> None:
        def is_wanted() -> bool:
            return self._led.get(partition) is led

        started_ms = self._clock.monotonic_ms()
        end_offset = replica.log.log_end_offset
        try:
            await self._until_committed(replica, end_offset, is_wanted)
            shard, done = await asyncio.to_thread(load, replica.log, end_offset, self._new_shard, is_wanted)
        except Exception as error:  # any error must end the load: clients would retry for ever
            if is_wanted():
                trace = None if isinstance(error, KafkaError) else error
                logger.error("the groups of %s-%d cannot be read: %s", OFFSETS_TOPIC, partition, error, exc_info=trace)
                led.failed = NotCoordinator(f"{OFFSETS_TOPIC}-{partition} cannot be read")
            return
        if is_wanted():
            took_ms = self._clock.monotonic_ms() - started_ms
            logger.info("read %s of %s-%d in %d ms", done, OFFSETS_TOPIC, partition, took_ms)
            await self._begin(self._serve(led, shard, replica))

    async def _begin(self, runtime: CoordinatorRuntime) -> None:
        async def begin_some(group_ids: Sequence[str]) -> None:
            runtime.begin(group_ids)

        def weigh(group_id: str) -> int:
            return 1 + len(runtime.shard.groups[group_id].members) + len(runtime.shard.offsets.of(group_id))

        await self._slices.each(in_parts(tuple(runtime.shard.groups), weigh, MOST_REMOVED), begin_some)

    async def _until_committed(self, replica: Replica, end_offset: int, is_wanted: Callable[[], bool]) -> None:
        """Wait until the log is committed up to `end_offset`, or the load is no longer wanted."""

        def attempt() -> bool | None:
            return not is_wanted() or replica.partition.high_watermark >= end_offset or None

        while not self._is_stopped:
            if await self._waiting.wait([replica.partition.name], attempt, LOOK_AGAIN_MS):
                return

    def _serve(self, led: _LedPartition, shard: Shard, replica: Replica) -> CoordinatorRuntime:
        log = PartitionLog(replica.partition.name, led.led_since, self._replicas, self._waiting, self._config)
        call_later = self._call_later or asyncio.get_running_loop().call_later

        def tell(records: Sequence[CoordinatorRecord]) -> None:
            for begun in generations(records, shard.groups):
                self._on_generation(begun)

        led.runtime = runtime = CoordinatorRuntime(shard, log, self._clock, call_later, tell)
        return runtime

    @property
    def waiting(self) -> int:
        """Number of requests not answered yet."""
        return sum(runtime.waiting for runtime in self._runtimes())

    def partition_for(self, group_id: str) -> int:
        """Return the number of the offsets topic's partition that a group belongs to.

        Raises InvalidGroupId if the id has more than 32,767 bytes: it fits neither Kafka's protocol nor the topic's
        records.
        """
        if len(group_id) > MAX_ID_BYTES or len(group_id.encode(errors="surrogatepass")) > MAX_ID_BYTES:
            raise InvalidGroupId(f"a group id of more than {MAX_ID_BYTES} bytes")
        topic = self._topics.find(OFFSETS_TOPIC)
        count = len(topic.partitions) if topic else self._config.offsets_topic_num_partitions
        return partition_for(group_id, count)

    async def ensure_topic(self) -> None:
        """Create the offsets topic if it does not exist. Raises CoordinatorNotAvailable if that fails."""
        if OFFSETS_TOPIC not in self._topics:
            try:
                await self._create_offsets_topic()
            except KafkaError as error:
                raise CoordinatorNotAvailable(f"{OFFSETS_TOPIC} could not be created: {error}") from error

    async def _runtime(self, group_id: str) -> CoordinatorRuntime:
        """Return the runtime of a group's shard.

        Raises CoordinatorLoadInProgress, NotCoordinator, CoordinatorNotAvailable or InvalidGroupId.
        """
        self._check_serves()
        await self.ensure_topic()
        return self._runtime_of(self.partition_for(group_id))

    def _check_serves(self) -> None:
        if self._is_stopped:
            raise NotCoordinator("this broker is stopping")

    def _runtime_of(self, partition: int) -> CoordinatorRuntime:
        self._check_serves()  # the broker may have stopped while the topic was created
        replica = self._replicas.find(TopicPartition(OFFSETS_TOPIC, partition))
        if replica is None or not replica.partition.is_leader:
            self.unload(partition)
            raise NotCoordinator(f"{OFFSETS_TOPIC}-{partition} is not led here")
        if partition not in self._led:
            self.load(partition, replica.partition.leader_epoch)
        led = self._led[partition]
        if led.failed is not None:
            raise led.failed
        if led.runtime is None:
            raise CoordinatorLoadInProgress(f"{OFFSETS_TOPIC}-{partition} is being read")
        return led.runtime

    async def _answer(
        self, group_id: str, request: GroupRequest[Response], ask: Callable[[CoordinatorRuntime], Awaitable[Response]]
    ) -> Response:
        try:
            return await ask(await self._runtime(group_id))
        except KafkaError as error:
            return request.refused(error)

    async def _decide(self, group_id: str, request: GroupRequest[Response], decide: Decide[Response]) -> Response:
        def ask(runtime: CoordinatorRuntime) -> Awaitable[Response]:
            return runtime.ask(lambda ticket, now_ms: decide(runtime.shard, ticket, now_ms))

        return await self._answer(group_id, request, ask)

    # Members

    async def join(self, request: JoinGroup) -> JoinGroupResponse:
        async def ask(runtime: CoordinatorRuntime) -> JoinGroupResponse:
            matches = await self._match(runtime.shard.to_match(request.group_id))
            return await runtime.ask(lambda ticket, now: runtime.shard.join(request, ticket, now, matches))

        return await self._answer(request.group_id, request, ask)

    async def sync(self, request: SyncGroup) -> SyncGroupResponse:
        return await self._decide(
            request.group_id, request, lambda shard, ticket, now: shard.sync(request, ticket, now)
        )

    async def heartbeat(self, request: Heartbeat) -> HeartbeatResponse:
        return await self._decide(request.group_id, request, lambda shard, _, now: shard.heartbeat(request, now))

    async def leave(self, request: LeaveGroup) -> LeaveGroupResponse:
        return await self._decide(request.group_id, request, lambda shard, _, now: shard.leave(request, now))

    async def consumer_heartbeat(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatResponse:
        async def ask(runtime: CoordinatorRuntime) -> ConsumerGroupHeartbeatResponse:
            matches = await self._match(runtime.shard.to_match(request.group_id, request.subscribed_topic_regex))
            return await runtime.ask(lambda _, now: runtime.shard.consumer_heartbeat(request, now, matches))

        return await self._answer(request.group_id, request, ask)

    async def _match(self, texts: Sequence[str]) -> Matches:
        return await match(texts, self._topics, self._slices) if texts else UNMATCHED

    # Offsets

    async def commit(self, request: OffsetCommit) -> OffsetCommitResponse:
        return await self._decide(request.group_id, request, lambda shard, _, now: shard.commit(request, now))

    async def fetch_offsets(self, request: OffsetFetch) -> OffsetFetchResponse:
        async def fetch(runtime: CoordinatorRuntime) -> OffsetFetchResponse:
            return runtime.fetch_offsets(request)

        return await self._answer(request.group_id, request, fetch)

    async def delete_offsets(self, request: OffsetDelete) -> OffsetDeleteResponse:
        return await self._decide(request.group_id, request, lambda shard, *_: shard.delete_offsets(request))

    async def delete_topics(self, ids: Mapping[str, UUID]) -> None:
        """Delete the offsets committed for deleted topics. `ids` maps their names to the ids that they had.

        A failed write is retried for as long as this broker leads the partition. The broker that loads the partition
        next deletes the rest.
        """
        if OFFSETS_TOPIC in ids:
            for partition in tuple(self._led):
                self.unload(partition)

        def decide(shard: Shard, group_ids: Sequence[str]) -> Decision[CoordinatorRecord, None]:
            return shard.delete_topics(ids, group_ids)

        async def forget(runtime: CoordinatorRuntime) -> None:
            while not runtime.is_closed:
                if await self._remove(runtime, decide):
                    return
                await asyncio.sleep(RETRY_MS / 1000)

        await asyncio.gather(*map(forget, self._runtimes()))

    async def expire(self) -> None:
        """Delete the offsets that have expired."""
        now_ms = self._clock.time_ms()

        def decide(shard: Shard, group_ids: Sequence[str]) -> Decision[CoordinatorRecord, None]:
            return shard.expire(now_ms, group_ids)

        for runtime in self._runtimes():
            await self._remove(runtime, decide)

    def forget_topics(self, ids: Mapping[str, UUID]) -> None:
        """Start `delete_topics` without waiting for its end."""
        task = asyncio.get_running_loop().create_task(self.delete_topics(ids))
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def _remove(
        self, runtime: CoordinatorRuntime, decide: Callable[[Shard, Sequence[str]], Decision[CoordinatorRecord, None]]
    ) -> bool:
        """Carry out a decision about all groups for some groups at a time; return whether all could be written.

        A decision removes up to MOST_REMOVED offsets of each group, and is made again for the rest.
        """

        async def remove_some(group_ids: Sequence[str]) -> None:
            while True:
                await self._slices.give_way()  # the partitions of the offsets topic expire one by one
                decision = decide(runtime.shard, group_ids)
                await runtime.do(decision)
                if len(decision.records) < MOST_REMOVED:
                    return

        def weigh(group_id: str) -> int:
            return 1 + len(runtime.shard.offsets.of(group_id))

        try:
            await self._slices.each(in_parts(tuple(runtime.shard.groups), weigh, MOST_REMOVED), remove_some)
        except KafkaError as error:
            logger.error("offsets could not be removed, and will be next time: %s", error)
            return False
        return True

    def _runtimes(self) -> Sequence[CoordinatorRuntime]:
        return [led.runtime for led in self._led.values() if led.runtime is not None]

    # Groups

    async def list(self, request: ListGroups) -> ListGroupsResponse:
        groups: list[ListedGroup] = []
        runtimes, failed = await self._committed()
        shards = [runtime.shard for runtime in runtimes]
        parts = ((shard, some) for shard in shards for some in of_many(tuple(shard.groups.values()), PART))

        async def list_some(part: tuple[Shard, Sequence[Group]]) -> None:
            shard, some = part
            groups.extend(shard.list(request, some).groups)

        if sum(len(shard.groups) for shard in shards) > PART:
            await self._slices.give_way()  # others that list all groups are served, too
        await self._slices.each(parts, list_some)
        is_loading = any(led.runtime is None and led.failed is None for led in self._led.values())
        error = CoordinatorLoadInProgress("not all groups have been read yet") if is_loading else None
        return ListGroupsResponse(error=error or failed, groups=groups)

    async def _committed(self) -> tuple[Sequence[CoordinatorRuntime], KafkaError | None]:
        """Return the runtimes whose groups are committed, and an error if those of others are not and may be lost."""

        async def wait(runtime: CoordinatorRuntime) -> KafkaError | None:
            try:
                await runtime.committed()
            except KafkaError as error:
                return error
            return None

        runtimes = self._runtimes()
        errors = await asyncio.gather(*map(wait, runtimes))
        committed = [runtime for runtime, error in zip(runtimes, errors, strict=True) if error is None]
        return committed, next((error for error in errors if error is not None), None)

    async def describe(self, request: DescribeGroups) -> DescribeGroupsResponse:
        groups: list[DescribedGroup] = []
        for group_id in request.group_ids:
            alone = DescribeGroups(group_ids=[group_id])
            groups += (await self._describe(group_id, alone, Shard.describe)).groups
        return DescribeGroupsResponse(groups=groups)

    async def consumer_describe(self, request: ConsumerGroupDescribe) -> ConsumerGroupDescribeResponse:
        groups: list[DescribedConsumerGroup] = []
        for group_id in request.group_ids:
            alone = ConsumerGroupDescribe(group_ids=[group_id])
            groups += (await self._describe(group_id, alone, Shard.consumer_describe)).groups
        return ConsumerGroupDescribeResponse(groups=groups)

    async def _describe(
        self, group_id: str, alone: GroupRequest[Response], describe: Callable[[Shard, Any], Response]
    ) -> Response:
        async def ask(runtime: CoordinatorRuntime) -> Response:
            await runtime.committed()
            return describe(runtime.shard, alone)

        return await self._answer(group_id, alone, ask)

    async def delete(self, request: DeleteGroups) -> DeleteGroupsResponse:
        errors: dict[str, KafkaError | None] = {}

        async def delete_some(group_id: str) -> None:
            alone = DeleteGroups(group_ids=[group_id])
            errors.update((await self._decide(group_id, alone, lambda shard, *_: shard.delete(alone))).errors)

        def until_deleted() -> Iterator[str]:
            for group_id in request.group_ids:
                while group_id not in errors:
                    yield group_id

        await self._slices.each(until_deleted(), delete_some)
        return DeleteGroupsResponse(errors=errors)
