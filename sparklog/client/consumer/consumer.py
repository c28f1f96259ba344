"""The consumer: reads partitions in order, assigned by the user or by its group.

`AsyncConsumer` is the implementation. Its `take` returns fetched records without waiting, in any thread. So the
synchronous `Consumer` (sync.py) uses the event loop only when it must wait.

A position moves when records are returned. With a group_id, positions begin at the group's committed offsets, and
committer.py commits them. After `subscribe`, the group assigns the partitions, and reassigns them during `poll`
(rebalancer.py). Without a group_id nothing is committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import nullcontext
from random import Random
from typing import Any, Self, Unpack

from sparklog.base.clock import Clock, SystemClock
from sparklog.base.config_keys import MAX_INT
from sparklog.base.errors import ClosedError, InvalidRequest, RequestTimedOut, SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.client.base import AsyncClient
from sparklog.client.cluster import Cluster
from sparklog.client.commits import GroupMetadata, OffsetAndMetadata, Offsets
from sparklog.client.config import ConsumerConfig
from sparklog.client.connection import OpenChannel, open_channel
from sparklog.client.consumer.callback_invoker import UserCall
from sparklog.client.consumer.committer import Callback
from sparklog.client.consumer.consumed import ConsumerRecord, to_records, to_table
from sparklog.client.consumer.consumer_coordinator import ConsumerCoordinator, required
from sparklog.client.consumer.fetcher import Fetcher, PollSignal
from sparklog.client.consumer.positions import Positions
from sparklog.client.consumer.subscription import select
from sparklog.client.consumer.subscription_state import COMMITTED, SubscriptionState
from sparklog.client.interceptors import ConsumerInterceptors
from sparklog.client.loop_thread import background
from sparklog.client.offsets import EARLIEST, LATEST, ListedOffset, list_offsets
from sparklog.client.options import ConsumerOptions

Rows = list[tuple[TopicPartition, Any]]


class AsyncConsumer(AsyncClient):
    """Consumer that reads records from partitions, for use on an event loop.

        async with AsyncConsumer(bootstrap_servers="127.0.0.1:9094", group_id="billing") as consumer:
            consumer.subscribe(["orders"])  # or await consumer.assign_topic("orders"), without a group
            async for record in consumer:
                print(record.offset, record.key, record.value)

    Options are those of ConsumerConfig; raises ConfigError for an invalid one.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        open_channel: OpenChannel = open_channel,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.config = ConsumerConfig.parse(options)
        self._cluster = Cluster(self.config, clock or SystemClock(), random or Random(), open_channel=open_channel)
        self._assignment = SubscriptionState(COMMITTED if self.config.group_id else None)
        self._positions = Positions(self._assignment, self._wake)
        self._signal = PollSignal()
        self._group: ConsumerCoordinator | None = None
        if self.config.group_id:
            self._group = ConsumerCoordinator(
                self._cluster, self.config, self._assignment, notify=self._signal.notify, wake=self._wake
            )
        committed = self._group.committed if self._group else None
        self._fetcher = Fetcher(self._assignment, self._cluster, self.config, self._signal, committed)
        self._interceptors = ConsumerInterceptors(self.config.interceptors)
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fetching: asyncio.Task[None]

    async def start(self) -> Self:
        """Start fetching, on the running event loop, and return the consumer.

        The first call that waits does the same.
        """
        self._begin()
        return self

    def _begin(self) -> None:
        if self._closed:
            raise ClosedError("the consumer is closed")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._fetching = background(self._fetcher.run(), "sparklog consumer")

    # Partitions and positions. Changes take effect with the next `poll`. Only coroutines wait.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others; partitions that were assigned before keep their position.

        With a group_id, new partitions begin at the group's committed offsets. Raises InvalidRequest after `subscribe`.
        """
        if self._group and self._group.is_subscribed:
            raise InvalidRequest("the group assigns the partitions of this consumer: unsubscribe first")
        with self._assignment.lock:
            self._assignment.assign(TopicPartition(*partition) for partition in partitions)
        self._wake()

    async def assign_topic(self, topic: str) -> list[TopicPartition]:
        """Read the topic's current partitions and no others, and return them; raises UnknownTopicOrPartition."""
        partitions = await self.partitions_for(topic)
        self.assign(partitions)
        return partitions

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | None = None,
        deny: str | None = None,
        listener: Any = None,
    ) -> None:
        """Subscribe to `topics`, or to all topics whose full names match `pattern` and not `deny`.

        The members of the group share the topics' partitions. Replaces an earlier subscription. `poll` calls `listener`
        when partitions are assigned, revoked or lost; see sparklog.client.listeners. Topics that appear later, and new
        partitions, are read as well. Raises ConfigError for an invalid selection, InvalidTopic for an invalid name,
        InvalidRequest without a group_id or after `assign`.
        """
        group = required(self._group)
        if len(self._assignment) and not group.is_subscribed:
            raise InvalidRequest("partitions were assigned to this consumer by assign: assign([]) first")
        group.subscribe(select(topics, pattern, deny, internal=not self.config.exclude_internal_topics), listener)

    async def unsubscribe(self) -> None:
        """Leave the group as `close` does. `assign` and `subscribe` are possible afterwards."""
        if self._group and self._group.is_subscribed:
            await self._leave("unsubscribe")

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read, sorted."""
        return self._assignment.partitions()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`; raises InvalidRequest for a partition that is not assigned, ValueError below 0."""
        self._positions.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the log start offset of these partitions, or of all assigned ones."""
        self._positions.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record of these partitions, or of all assigned ones."""
        self._positions.seek_to_end(*partitions)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Continue at the first record with that timestamp or a later one, or at the end if there is none.

        Without `partitions` this applies to all assigned ones.
        """
        self._positions.seek_to_timestamp(timestamp_ms, *partitions)

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue at the group's committed offset of these partitions, or of all assigned ones.

        Needed after the abort of a transaction with offsets. A partition without a committed offset continues where
        auto_offset_reset says. Raises InvalidRequest without a group_id.
        """
        required(self._group)
        self._positions.seek_to_committed(*partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions (or of all assigned ones) until `resume`; keep fetched records."""
        self._positions.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause` for these partitions, or for all assigned ones."""
        self._positions.resume(*partitions)

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions, sorted."""
        return self._positions.paused()

    @property
    def queued_bytes(self) -> int:
        """Bytes fetched ahead of `poll`, before decompression."""
        return self._positions.queued_bytes

    def known_position(self, partition: TopicPartition) -> int | None:
        """Return the position as `position` does, but None instead of waiting."""
        return self._positions.known_position(partition)

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that `poll` will return.

        Waits for the lookup of an unknown position. Raises RequestTimedOut if no broker answers within
        default_api_timeout_ms, OffsetOutOfRange if the partition has no position and auto_offset_reset is none.
        """
        await self.start()
        try:
            async with asyncio.timeout(self.config.default_api_timeout_ms / 1000):
                while (position := self.known_position(partition)) is None:
                    await self._signal.wait()
        except TimeoutError:
            raise RequestTimedOut(f"the position in {partition} was not found in time") from None
        return position

    # Reading.

    async def poll(self, timeout_ms: int = 1_000, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return up to `max_records` (None: max_poll_records) as soon as there is one; none after `timeout_ms`.

        Also returns none at once if a position has moved over records that are not returned: aborted ones, and markers
        of transactions. Records of one partition come in order. Raises the error of a partition that cannot be read:
        UnknownTopicOrPartition or CorruptRecord; with auto_offset_reset="none" also OffsetOutOfRange, and LogTruncation
        if an unclean election has lost records that were read. With another auto_offset_reset the consumer continues
        as that option says, or at the first lost record. Raises InvalidRequest if nothing is assigned or subscribed to.
        A broker that does not answer raises no error: the consumer keeps trying.

        A deserializer's exception is raised after the records before it have been returned, and again until `seek`
        skips the record.

        With `subscribe`, rebalances of the group happen in `poll`: it calls the listener and raises its exceptions,
        and errors that exclude the consumer from its group: FencedInstanceId, InconsistentGroupProtocol,
        InvalidSessionTimeout, GroupMaxSizeReached and others.
        """
        await self._wait_for_rows(timeout_ms)
        return self.take(max_records)

    async def poll_arrow(self, timeout_ms: int = 1_000, max_records: int | None = None) -> Any:
        """Return all fetched records, or up to `max_records`, as a pyarrow Table; otherwise as `poll`.

        Its columns are topic, partition, offset, timestamp, timestampType, key, value and headers. Deserializers and
        interceptors are not applied.
        """
        await self._wait_for_rows(timeout_ms)
        return self.take_arrow(max_records)

    def take(self, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the records that `poll` would return without waiting; for any thread, but one at a time."""
        records: list[ConsumerRecord] = []
        taken = deque(self._take_rows(max_records or self.config.max_poll_records))
        while taken:
            partition, rows = taken[0]
            some, error = to_records(partition, rows, self.config.key_deserializer, self.config.value_deserializer)
            records += some
            if error is not None:
                self._positions.give_back([(partition, rows.slice(len(some))), *list(taken)[1:]])
                if not records:
                    raise error
                break
            taken.popleft()
        return self._interceptors.on_consume(records) if records else records

    def take_arrow(self, max_records: int | None = None) -> Any:
        """Return the table that `poll_arrow` would return without waiting."""
        return to_table(self._take_rows(max_records or MAX_INT))

    @property
    def unread(self) -> deque[ConsumerRecord]:
        """Records that an iteration has polled and not yet yielded.

        The next `poll` returns them again, and `commit` leaves them out.
        """
        return self._assignment.unread

    @property
    def is_subscribed(self) -> bool:
        """Whether the group assigns the partitions."""
        return self._group is not None and self._group.is_subscribed

    @property
    def has_group(self) -> bool:
        """Whether there is a group to leave, or to commit to."""
        return self._group is not None and not self._closed

    async def deadline(self, timeout_ms: int) -> float:
        """Return the event loop's time after `timeout_ms`."""
        return asyncio.get_running_loop().time() + timeout_ms / 1000

    @property
    def needs_poll(self) -> bool:
        """Whether to wait before `take`: it has no result, or the group has work on the event loop; for any thread."""
        return not self._has_result() or (self._group is not None and self._group.needs_poll)

    def _has_result(self) -> bool:
        """Whether `take` would return records, move a position over records that are not returned, or raise."""
        if self._closed:
            return True
        if self._group and self._group.callbacks.holds_back:
            return False
        with self._assignment.lock:
            if not len(self._assignment):
                return not self.is_subscribed
            is_fetched = any((state.chunks and not state.paused) or state.error for state in self._assignment)
            return is_fetched or bool(self._assignment.unread)

    async def next_call(self, deadline: float) -> UserCall | None:
        """Wait for a call that the user must make, and return it; None once there are records or at the deadline.

        To be repeated after each call. `deadline` is a time of the event loop.
        """
        self._begin()
        with self._assignment.lock:
            self._assignment.put_back()
        with self._group.polling() if self._group else nullcontext():
            try:
                async with asyncio.timeout_at(deadline):
                    while True:
                        if self._group and (call := self._group.next_call()):
                            return call
                        if self._has_result():
                            return None
                        await self._signal.wait()
            except TimeoutError:
                return None

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        unread = self._assignment.unread
        while not self._closed:
            unread.extend(await self.poll())
            while unread:
                yield unread.popleft()

    # Committed offsets. These methods raise InvalidRequest without a group_id.

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit `offsets`, or the positions after the records that `poll` has returned, and wait for the answer.

        Raises UnknownMemberId or IllegalGeneration if the group has expelled this consumer, RequestTimedOut or
        NetworkException if no coordinator answers for default_api_timeout_ms.
        """
        self._begin()
        await required(self._group).committer.commit(offsets, self.config.default_api_timeout_ms)

    def group_metadata(self) -> GroupMetadata:
        """Return the consumer's group, generation and member id, for `Producer.send_offsets`.

        Raises UnknownMemberId, or the error that ended the membership, if the consumer is subscribed but not in its
        group: another member may have read the same records.
        """
        return required(self._group).metadata()

    def commit_async(self, offsets: Offsets | None = None, callback: Callback | None = None) -> None:
        """Commit as `commit` does, without waiting and without a second attempt.

        A later `poll`, or `close`, calls `callback(offsets, error)`.
        """
        self._begin()
        required(self._group).committer.commit_async(offsets, callback)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition; None for a partition without one."""
        self._begin()
        return await required(self._group).committed_until(list(partitions))

    # Descriptions of partitions.

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """Return the topic's partitions; raises UnknownTopicOrPartition."""
        await self.start()
        self._cluster.outdated(topic)
        metadata = await self._cluster.topic(topic, self.config.default_api_timeout_ms)
        return [TopicPartition(topic, number) for number in range(len(metadata.leaders))]

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        return await self._list_offsets(dict.fromkeys(partitions, EARLIEST))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of the readable part of each partition.

        This is the last stable offset or, with isolation_level "read_uncommitted", the high watermark.
        """
        return await self._list_offsets(dict.fromkeys(partitions, LATEST))

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Return each partition's first record with that timestamp (ms) or a later one; None if there is none."""
        await self.start()
        found = await list_offsets(
            self._cluster, timestamps_ms, self.config.default_api_timeout_ms, self.config.isolation_level
        )
        return {partition: listed if listed.offset >= 0 else None for partition, listed in found.items()}

    async def close(self) -> None:
        """Release all resources. May be called more than once.

        With a group: commit the positions if enable_auto_commit, call the listener's on_revoked, and leave the group. A
        consumer with a group_instance_id stays a member, so that it can come back.
        """
        if self._closed:
            return
        try:
            if self._group and self._loop is not None:
                await self._leave("close")
        finally:
            await self.release()

    async def release(self) -> None:
        """Release the resources of this process without leaving the group."""
        if self._closed:
            return
        self._closed = True
        if self._group:
            await self._group.stop()
        if self._loop is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
            await self._fetcher.stop()
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def _wait_for_rows(self, timeout_ms: int) -> None:
        """Wait for records or an error, at most `timeout_ms`; make the pending calls."""
        deadline = await self.deadline(timeout_ms)
        while call := await self.next_call(deadline):
            await call.run()

    async def begin_to_leave(self, reason: str) -> asyncio.Task[None]:
        """Begin to leave the group. The caller then repeats `next_call_of` until it returns None."""
        return required(self._group).begin_to_leave(reason)

    async def next_call_of(self, leaving: asyncio.Task[None]) -> UserCall | None:
        """Return the next call that the user must make while the consumer leaves its group; None at the end."""
        return await required(self._group).next_call_of(leaving, self._signal.wait)

    async def _leave(self, reason: str) -> None:
        leaving = await self.begin_to_leave(reason)
        failures: list[Exception] = []
        try:
            while call := await self.next_call_of(leaving):
                try:
                    await call.run()
                except Exception as error:  # noqa: BLE001 - the group waits for the calls that follow
                    failures.append(error)
        finally:
            await self.end_leaving(leaving)
        if failures:
            raise failures[0]

    async def end_leaving(self, leaving: asyncio.Task[None]) -> None:
        """End the task that leaves the group, and raise its error.

        A task that still waits for calls is cancelled: an interrupted caller makes no more of them.
        """
        leaving.cancel()  # no effect once it is done
        await asyncio.wait([leaving])
        if not leaving.cancelled():
            leaving.result()

    def _take_rows(self, most: int) -> Rows:
        if self._closed:
            raise ClosedError("the consumer is closed")
        if self._group:
            self._group.touch()
            if self._group.callbacks.holds_back:
                return []
        taken: Rows = []
        with self._assignment.lock:
            begun = bool(self._assignment.unread)
            self._assignment.put_back()
            if not len(self._assignment) and not (self._group and self._group.is_subscribed):
                raise InvalidRequest("nothing is assigned to this consumer: call assign or assign_topic first")
            for state in list(self._assignment):
                if most <= 0:
                    break
                queued_bytes = state.queued_bytes
                try:
                    rows = None if state.paused else state.take(most, check_crc=self.config.check_crcs)
                except SparklogError:
                    if taken:
                        break  # the next poll raises it
                    raise
                begun = begun or state.queued_bytes < queued_bytes
                if rows is not None:
                    taken.append((state.partition, rows))
                    most -= rows.num_rows
                    self._assignment.to_the_end(state)
                elif not taken:
                    self._positions.raise_error(state)
        if begun:
            self._wake()
        return taken

    async def _list_offsets(self, wanted: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        await self.start()
        found = await list_offsets(
            self._cluster, wanted, self.config.default_api_timeout_ms, self.config.isolation_level
        )
        return {partition: listed.offset for partition, listed in found.items()}

    def _wake(self) -> None:
        """Wake the fetcher, from any thread."""
        if self._loop is not None and not self._closed:
            self._loop.call_soon_threadsafe(self._fetcher.wake)
