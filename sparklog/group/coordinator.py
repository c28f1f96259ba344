"""The group coordinator of one broker: finds the shard of each group and passes requests to it.

The leader of a partition of `__consumer_offsets` serves the partition's groups (coordinator/partitions.py).

Most methods are one API each. The error of a group is in its response; no KafkaError is raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from msgspec.structs import replace

from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    CoordinatorLoadInProgress,
    InvalidGroupId,
    KafkaError,
)
from sparklog.base.ids import TopicPartition
from sparklog.coordinator.partition_log import PartitionLog
from sparklog.coordinator.partitions import CoordinatorPartitions, ShardCallbacks
from sparklog.coordinator.runtime import RETRY_MS, CallLater, CoordinatorRuntime
from sparklog.coordinator.transaction_messages import TransactionMarker
from sparklog.group.generations import Generation, generations
from sparklog.group.group import Group, TopicsImage
from sparklog.group.loader import load
from sparklog.group.offsets import MOST_REMOVED
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
    TxnOffsetCommit,
)
from sparklog.group.shard import GroupShard
from sparklog.group.topic_pattern import UNMATCHED, TopicMatches, match
from sparklog.log.log import Log
from sparklog.log.producers.verifications import Verification
from sparklog.offsets_topic.records import CoordinatorRecord, OffsetValue, encode
from sparklog.records.markers import EndTransactionMarker
from sparklog.replica.manager import ReplicaManager
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.slices import Slices, in_parts, of_many
from sparklog.runtime.state_machine import Decision, ProducerIdAndEpoch

OFFSETS_TOPIC = "__consumer_offsets"
MAX_ID_BYTES = (1 << 15) - 1
SLICE_SIZE = 1_000
"""Groups that are listed, or offsets that are copied, in one slice: a few milliseconds of work."""
Response = TypeVar("Response")
Response_co = TypeVar("Response_co", covariant=True)
Runtime = CoordinatorRuntime[GroupShard]
Decide = Callable[[GroupShard, Hashable, int], Decision[CoordinatorRecord, Response]]
logger = logging.getLogger(__name__)


class GroupProgress(NamedTuple):
    """The progress of one group."""

    group_id: str
    members: int
    offsets: Mapping[TopicPartition, OffsetValue]
    """The committed offsets, including those of deleted topics."""


class GroupRequest(Protocol[Response_co]):
    """Any request of `requests.py`."""

    def refused(self, error: KafkaError, /) -> Response_co:
        """Return the response to the request if it is refused as a whole."""
        ...


class GroupCoordinator:
    """The group coordinator. Runs on one event loop, except that logs are loaded in a thread."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        topics: TopicsImage,
        replicas: ReplicaManager,
        waiting: Purgatory[TopicPartition],
        create_offsets_topic: Callable[[], Awaitable[None]],
        new_id: Callable[[], UUID],
        slices: Slices,
        call_later: CallLater | None = None,
        on_generation: Callable[[Generation], None] = lambda _: None,
    ) -> None:
        """create_offsets_topic: returns once the topic exists; raises KafkaError. on_generation: called for each
        generation that begins here, once it is committed.
        """
        self._config = config
        self._clock = clock
        self._topics = topics
        self._replicas = replicas
        self._waiting = waiting
        self._new_id = new_id
        self._slices = slices
        self._call_later = call_later
        self._on_generation = on_generation
        self._forgetting: set[asyncio.Task[None]] = set()
        self.partitions = CoordinatorPartitions(
            OFFSETS_TOPIC,
            ShardCallbacks(new_shard=self._new_shard, load=self._load, serve=self._serve, begin=self._begin),
            clock=clock,
            topics=topics,
            replicas=replicas,
            waiting=waiting,
            create_topic=create_offsets_topic,
            default_partitions=config.offsets_topic_num_partitions,
        )

    def stop(self) -> None:
        """Answer all waiting requests, stop all timers, and refuse further requests."""
        for task in self._forgetting:
            task.cancel()
        self.partitions.stop()

    def _new_shard(self) -> GroupShard:
        return GroupShard(self._config, self._topics, self._new_id)

    def _load(self, log: Log, end_offset: int, is_wanted: Callable[[], bool]) -> tuple[GroupShard, object]:
        return load(log, end_offset, self._new_shard, is_wanted)

    def _serve(self, name: TopicPartition, led_since: int, shard: GroupShard) -> Runtime:
        log = PartitionLog(
            name, led_since, self._replicas, self._waiting, timeout_ms=self._config.offsets_commit_timeout_ms,
            encode=encode,
        )  # fmt: skip
        call_later = self._call_later or asyncio.get_running_loop().call_later

        def report_generations(decision: Decision[CoordinatorRecord, Any]) -> None:
            for begun in generations(decision.records, shard.groups):
                self._on_generation(begun)

        return CoordinatorRuntime(shard, log, self._clock, call_later, report_generations)

    async def _begin(self, runtime: Runtime) -> None:
        shard = runtime.shard

        async def begin_some(group_ids: Sequence[str]) -> None:
            runtime.decide(lambda now_ms: shard.loaded(now_ms, group_ids))
            runtime.decide(lambda _: shard.delete_of_others(group_ids))

        def weigh(group_id: str) -> int:
            return 1 + len(shard.groups[group_id].members) + len(shard.offsets.of(group_id))

        await self._slices.each(in_parts(tuple(shard.groups), weigh, MOST_REMOVED), begin_some)

    def partition_for(self, group_id: str) -> int:
        """Return the number of the partition of `__consumer_offsets` that a group belongs to.

        Raises InvalidGroupId if the id has more than 32,767 bytes, the limit of Kafka's protocol and of the records.
        """
        if len(group_id) > MAX_ID_BYTES or len(group_id.encode(errors="surrogatepass")) > MAX_ID_BYTES:
            raise InvalidGroupId(f"a group id of more than {MAX_ID_BYTES} bytes")
        return self.partitions.partition_for(group_id)

    async def _runtime(self, group_id: str) -> Runtime:
        """Return the runtime of a group's shard.

        Raises CoordinatorLoadInProgress, NotCoordinator, CoordinatorNotAvailable or InvalidGroupId.
        """
        self.partition_for(group_id)
        return await self.partitions.runtime_for(group_id)

    async def _answer(
        self, group_id: str, request: GroupRequest[Response], ask: Callable[[Runtime], Awaitable[Response]]
    ) -> Response:
        try:
            return await ask(await self._runtime(group_id))
        except KafkaError as error:
            return request.refused(error)

    async def _decide(self, group_id: str, request: GroupRequest[Response], decide: Decide[Response]) -> Response:
        def ask(runtime: Runtime) -> Awaitable[Response]:
            return runtime.ask(lambda ticket, now_ms: decide(runtime.shard, ticket, now_ms))

        return await self._answer(group_id, request, ask)

    # Members

    async def join(self, request: JoinGroup) -> JoinGroupResponse:
        """Answer JoinGroup, in a classic group once the join phase has ended."""

        async def ask(runtime: Runtime) -> JoinGroupResponse:
            matches = await self._match(runtime.shard.to_match(request.group_id))
            return await runtime.ask(lambda ticket, now: runtime.shard.join(request, ticket, now, matches))

        return await self._answer(request.group_id, request, ask)

    async def sync(self, request: SyncGroup) -> SyncGroupResponse:
        """Answer SyncGroup, in a classic group once the assignment is committed."""
        return await self._decide(
            request.group_id, request, lambda shard, ticket, now: shard.sync(request, ticket, now)
        )

    async def heartbeat(self, request: Heartbeat) -> HeartbeatResponse:
        """Answer Heartbeat."""
        return await self._decide(request.group_id, request, lambda shard, _, now: shard.heartbeat(request, now))

    async def leave(self, request: LeaveGroup) -> LeaveGroupResponse:
        """Answer LeaveGroup once the members' removal is committed."""
        return await self._decide(request.group_id, request, lambda shard, _, now: shard.leave(request, now))

    async def consumer_heartbeat(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatResponse:
        """Answer ConsumerGroupHeartbeat, after its regular expression is matched with the topics."""

        async def ask(runtime: Runtime) -> ConsumerGroupHeartbeatResponse:
            texts = runtime.shard.to_match(request.group_id, request.subscribed_topic_regex)
            matches = await self._match(texts, request.may_describe)
            return await runtime.ask(lambda _, now: runtime.shard.consumer_heartbeat(request, now, matches))

        return await self._answer(request.group_id, request, ask)

    async def _match(self, texts: Sequence[str], may_describe: Callable[[str], bool] | None = None) -> TopicMatches:
        return await match(texts, self._topics, self._slices, may_describe) if texts else UNMATCHED

    # Offsets

    async def commit(self, request: OffsetCommit) -> OffsetCommitResponse:
        """Answer OffsetCommit once the offsets are committed in the log."""
        return await self._decide(request.group_id, request, lambda shard, _, now: shard.commit(request, now))

    async def commit_in_transaction(
        self, request: TxnOffsetCommit, verification: Verification | None
    ) -> OffsetCommitResponse:
        """Answer TxnOffsetCommit once the offsets are in the log; they take effect with the transaction.

        verification: of the transaction, in the group's partition of the offsets topic
        """

        def decide(shard: GroupShard, _: Hashable, now_ms: int) -> Decision[CoordinatorRecord, OffsetCommitResponse]:
            return replace(shard.commit_in_transaction(request, now_ms), verification=verification)

        return await self._decide(request.group_id, request, decide)

    def end_transaction(self, partition: int, marker: TransactionMarker) -> Awaitable[None]:
        """Write a marker into a partition of the offsets topic, and commit or drop the offsets of its transaction.

        Returns an awaitable that waits until the marker is committed. Raises KafkaError with nothing written.
        """
        runtime = self.partitions.runtime_of(partition)
        producer = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
        ends = EndTransactionMarker(marker.is_commit, marker.coordinator_epoch)
        log_offset = runtime.append_marker(producer, ends, is_strict=marker.is_strict)
        runtime.shard.end_transaction(marker.producer_id, is_commit=marker.is_commit, log_offset=log_offset)
        return runtime.committed(is_new=True)

    async def fetch_offsets(self, request: OffsetFetch) -> OffsetFetchResponse:
        """Answer OffsetFetch from offsets that are committed in the log."""

        async def fetch(runtime: Runtime) -> OffsetFetchResponse:
            runtime.settle()
            return runtime.shard.fetch_offsets(request)

        return await self._answer(request.group_id, request, fetch)

    async def delete_offsets(self, request: OffsetDelete) -> OffsetDeleteResponse:
        """Answer OffsetDelete once it is committed."""
        return await self._decide(request.group_id, request, lambda shard, *_: shard.delete_offsets(request))

    async def delete_topics(self, ids: Mapping[str, UUID]) -> None:
        """Delete the offsets committed for deleted topics. ids: the deleted topics' ids by name

        A failed write is retried while this broker leads the partition. The next leader deletes the rest when it loads
        the partition.
        """
        if OFFSETS_TOPIC in ids:
            self.partitions.unload_all()

        def decide(shard: GroupShard, group_ids: Sequence[str]) -> Decision[CoordinatorRecord, None]:
            return shard.delete_topics(ids, group_ids)

        async def forget(runtime: Runtime) -> None:
            while not runtime.is_closed:
                if await self._remove(runtime, decide):
                    return
                await asyncio.sleep(RETRY_MS / 1000)

        await asyncio.gather(*map(forget, self.partitions.runtimes))

    async def expire(self) -> None:
        """Delete the expired offsets."""
        now_ms = self._clock.time_ms()

        def decide(shard: GroupShard, group_ids: Sequence[str]) -> Decision[CoordinatorRecord, None]:
            return shard.expire(now_ms, group_ids)

        for runtime in self.partitions.runtimes:
            await self._remove(runtime, decide)

    def forget_topics(self, ids: Mapping[str, UUID]) -> None:
        """Start `delete_topics` without waiting for its end."""
        task = asyncio.get_running_loop().create_task(self.delete_topics(ids))
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def _remove(
        self, runtime: Runtime, decide: Callable[[GroupShard, Sequence[str]], Decision[CoordinatorRecord, None]]
    ) -> bool:
        """Carry out a decision for all groups, some at a time; return whether all records could be written.

        A decision removes up to MOST_REMOVED offsets of each group, and is repeated for the rest.
        """

        async def remove_some(group_ids: Sequence[str]) -> None:
            while True:
                await self._slices.give_way()  # the partitions of the offsets topic expire one by one
                decision = decide(runtime.shard, group_ids)
                await runtime.write(decision)
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

    async def progress(self) -> Sequence[GroupProgress]:
        """Return copies of the progress of each group whose partition is led and loaded here."""
        found: list[GroupProgress] = []

        async def copy_some(part: tuple[Runtime, Sequence[str]]) -> None:
            runtime, group_ids = part
            if runtime.is_closed:
                return
            runtime.settle()
            for group_id in group_ids:
                if group := runtime.shard.groups.get(group_id):
                    offsets = runtime.shard.offsets.committed_of(group_id)
                    found.append(GroupProgress(group_id, len(group.members), offsets))

        def weigh(runtime: Runtime) -> Callable[[str], int]:
            return lambda group_id: 1 + len(runtime.shard.offsets.of(group_id))

        parts = (
            (runtime, group_ids)
            for runtime in self.partitions.runtimes
            for group_ids in in_parts(tuple(runtime.shard.groups), weigh(runtime), SLICE_SIZE)
        )
        await self._slices.each(parts, copy_some)
        return found

    # Groups

    async def list(self, request: ListGroups) -> ListGroupsResponse:
        """Answer ListGroups with the groups of the partitions that this broker leads.

        With an error, groups may be missing: some partitions are not loaded yet, or their state is not committed.
        """
        groups: list[ListedGroup] = []
        runtimes, failed = await self.partitions.committed()
        shards = [runtime.shard for runtime in runtimes]
        parts = ((shard, some) for shard in shards for some in of_many(tuple(shard.groups.values()), SLICE_SIZE))

        async def list_some(part: tuple[GroupShard, Sequence[Group]]) -> None:
            shard, some = part
            groups.extend(shard.list(request, some).groups)

        if sum(len(shard.groups) for shard in shards) > SLICE_SIZE:
            await self._slices.give_way()  # other requests may list all groups too
        await self._slices.each(parts, list_some)
        error = CoordinatorLoadInProgress("not all groups have been read yet") if self.partitions.is_loading else None
        return ListGroupsResponse(error=error or failed, groups=groups)

    async def describe(self, request: DescribeGroups) -> DescribeGroupsResponse:
        """Answer DescribeGroups, with an error for each group that cannot be described."""
        groups: list[DescribedGroup] = []
        for group_id in request.group_ids:
            alone = DescribeGroups(group_ids=[group_id])
            groups += (await self._describe(group_id, alone, GroupShard.describe)).groups
        return DescribeGroupsResponse(groups=groups)

    async def consumer_describe(self, request: ConsumerGroupDescribe) -> ConsumerGroupDescribeResponse:
        """Answer ConsumerGroupDescribe, with an error for each group that cannot be described."""
        groups: list[DescribedConsumerGroup] = []
        for group_id in request.group_ids:
            alone = ConsumerGroupDescribe(group_ids=[group_id])
            groups += (await self._describe(group_id, alone, GroupShard.consumer_describe)).groups
        return ConsumerGroupDescribeResponse(groups=groups)

    async def _describe(
        self, group_id: str, alone: GroupRequest[Response], describe: Callable[[GroupShard, Any], Response]
    ) -> Response:
        async def ask(runtime: Runtime) -> Response:
            await runtime.committed()
            return describe(runtime.shard, alone)

        return await self._answer(group_id, alone, ask)

    async def delete(self, request: DeleteGroups) -> DeleteGroupsResponse:
        """Answer DeleteGroups once all groups are deleted or refused; a group with many offsets takes many batches."""
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
