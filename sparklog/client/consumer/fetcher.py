"""The consumer's fetcher: looks up positions, and fetches from brokers ahead of `poll`.

One task, `run`, selects the partitions to fetch: assigned, not paused, with a known position, and with less than
`max_partition_fetch_bytes` queued, while less than `prefetch_max_bytes` are queued in all. It groups them by leader and
sends one long poll per group. A partition is in at most one request at a time; a partition that becomes ready during
the long poll of others gets a request of its own. So at most `prefetch_max_bytes` plus one answer are queued for
`poll`.

    no error               the records are queued for `poll`, and the next fetch continues after them
    read replica           the leader has named a nearer replica (client_rack): fetches go to that replica until
                           metadata_max_age_ms have passed or the replica returns an error, then to the leader
    OffsetOutOfRange       the position is looked up again as auto_offset_reset says; "none": `poll` raises
    diverging log          an unclean election has lost records that were read (KIP-320): the position goes back to
                           where the leader's log diverges from them; with auto_offset_reset "none" `poll` raises
                           LogTruncation until a `seek`. Queued records are dropped
    InconsistentTopicId    fetched again after a lookup, as the last one may have asked a broker that is behind. If that
                           finds another topic too, the position is looked up in it: the group's committed offset, or
                           as auto_offset_reset says; "none": `poll` raises
    deleted topic          `poll` raises, unless a group has assigned the partition: the group revokes it
    other retriable error  fetched again after a pause and a lookup of the leader: `poll` only waits while a broker is
                           away
    any other error        `poll` raises

A fetch contains the known leader epoch and the epoch of the last record. A broker refuses the fetch if its own epoch is
older or newer; the fetcher then looks the leader up again. A leader whose epoch is older than that of the last record,
or of a commit, gets no fetch. So an answer of a replaced leader never puts a position out of range.

A partition without a position begins at the group's committed offset, if there is one; otherwise as auto_offset_reset
says. A commit contains the leader epoch of the last record, so that a consumer that continues there also detects the
loss of these records.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from sparklog.base.errors import (
    InconsistentTopicId,
    KafkaError,
    LogTruncation,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import read_error
from sparklog.client.cluster import Cluster
from sparklog.client.config import ConsumerConfig
from sparklog.client.connection import Connection
from sparklog.client.consumer.subscription_state import COMMITTED, FetchPosition, SubscriptionState, TopicPartitionState
from sparklog.client.loop_thread import background
from sparklog.client.offsets import EARLIEST, ISOLATION_LEVELS, LATEST, OffsetSpec, list_offsets
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges
from sparklog.v1 import log_pb2

logger = logging.getLogger(__name__)

_RESETS: dict[str, OffsetSpec | None] = {"earliest": EARLIEST, "latest": LATEST, "none": None}

CommittedLookup = Callable[[list[TopicPartition]], Awaitable[Mapping[TopicPartition, FetchPosition | None]]]
"""Returns the group's committed positions; None for a partition without one."""

Generations = dict[TopicPartitionState, int]
"""The partitions of a request, and their generations at its start."""


class PollSignal:
    """Signal for a waiting `poll`: new records, an error, a known position, or a call to make."""

    def __init__(self) -> None:
        self._come = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next call of `notify`."""
        await self._come.wait()

    def notify(self) -> None:
        """Wake all waiters."""
        self._come.set()
        self._come = asyncio.Event()


class Fetcher:
    """The requests for one consumer's positions and records. Runs on one event loop."""

    def __init__(
        self,
        assignment: SubscriptionState,
        cluster: Cluster,
        config: ConsumerConfig,
        signal: PollSignal,
        committed: CommittedLookup | None = None,
    ) -> None:
        """`committed` is None without a group."""
        self._committed = committed
        self._signal = signal
        self._assignment = assignment
        self._cluster = cluster
        self._config = config
        self._clock = cluster.clock
        self._woken = asyncio.Event()
        self._under_way: dict[asyncio.Task[None], Generations] = {}

    def wake(self) -> None:
        """Make `run` select partitions again; called on the event loop."""
        self._woken.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            self._woken.clear()
            now_ms = self._clock.monotonic_ms()
            self._cancel_outdated()
            retry_at_ms = self._start_requests(now_ms)
            timeout = None if retry_at_ms is None else max(retry_at_ms - now_ms, 1) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._woken.wait()

    async def stop(self) -> None:
        """Cancel requests under way; `run` must be cancelled before."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cancel_outdated(self) -> None:
        """Cancel requests for partitions with a new position: it should not wait for the end of a long poll."""
        with self._assignment.lock:
            for task, generations in self._under_way.items():
                if not all(self._assignment.is_current(state, generation) for state, generation in generations.items()):
                    task.cancel()

    def _start_requests(self, now_ms: int) -> int | None:
        """Start all possible requests; return the end of the next pause after an error (monotonic ms), or None."""
        with self._assignment.lock:
            idle = [state for state in self._assignment if not state.fetching and state.error is None]
            due = [state for state in idle if state.retry_at_ms <= now_ms]
            later_ms = [state.retry_at_ms for state in idle if state.retry_at_ms > now_ms]
            room = self._config.prefetch_max_bytes - self._assignment.queued_bytes
            unknown: dict[Connection, Generations] = {}
            known: dict[Connection, Generations] = {}
            leaderless: Generations = {}
            for state in due:
                if state.position is None or (room > 0 and self._needs_records(state)):
                    broker = self._source(state, now_ms)
                    if broker is None:
                        leaderless[state] = state.generation
                    else:
                        group = unknown if state.position is None else known
                        group.setdefault(broker, {})[state] = state.generation
        if leaderless:
            self._start(self._find_leaders(leaderless), leaderless)
        for generations in unknown.values():
            self._start(self._look_up(generations), generations)
        for broker, generations in known.items():
            self._start(self._fetch(broker, generations, room), generations)
        return min(later_ms, default=None)

    def _source(self, state: TopicPartitionState, now_ms: int) -> Connection | None:
        """Return the broker for a request for the partition's position or records; None if it must be looked up."""
        if state.read_replica >= 0 and state.position is not None:
            nearer = self._cluster.known_broker(state.read_replica)
            if nearer and now_ms < state.read_replica_until_ms:
                return nearer
            state.read_from_leader()
        if state.position is not None and state.topic_id:
            self._cluster.saw_epoch(state.partition, state.last_epoch, state.topic_id)
        return self._cluster.known_leader(state.partition)

    def _needs_records(self, state: TopicPartitionState) -> bool:
        return (
            state.position is not None
            and not state.paused
            and state.queued_bytes < self._config.max_partition_fetch_bytes
        )

    def _start(self, work: Coroutine[Any, Any, None], generations: Generations) -> None:
        for state in generations:
            state.begin_fetch()
        task = background(work, "sparklog fetch")
        self._under_way[task] = generations
        task.add_done_callback(self._request_ended)

    def _request_ended(self, task: asyncio.Task[None]) -> None:
        for state in self._under_way.pop(task):
            state.end_fetch()
        self._woken.set()

    async def _look_up(self, generations: Generations) -> None:
        """Look up the positions of partitions without one."""
        try:
            committed = await self._move_to_committed(generations)
        except KafkaError as error:
            self._handle_failure(generations, error)
            return
        wanted: dict[TopicPartition, OffsetSpec] = {}
        for state in generations:
            if state.partition in committed:
                continue
            chosen = None if state.reset == COMMITTED else state.reset
            spec = chosen if chosen is not None else _RESETS[self._config.auto_offset_reset]
            if spec is not None:
                wanted[state.partition] = spec
            else:
                self._handle_failure(
                    {state: generations[state]}, OffsetOutOfRange(f"partition {state.partition} has no position")
                )
        try:
            found = await list_offsets(
                self._cluster, wanted, self._config.request_timeout_ms, self._config.isolation_level
            )
            after_all = {partition: LATEST for partition, listed in found.items() if listed.offset < 0}
            found |= await list_offsets(
                self._cluster, after_all, self._config.request_timeout_ms, self._config.isolation_level
            )
        except KafkaError as error:
            self._handle_failure(generations, error)
            return
        with self._assignment.lock:
            for state, generation in generations.items():
                if self._assignment.is_current(state, generation) and state.partition in found:
                    state.begin_at(found[state.partition].offset)
        self._signal.notify()

    async def _move_to_committed(self, generations: Generations) -> set[TopicPartition]:
        """Set positions to the group's committed offsets; return the partitions that have one."""
        asked = [state.partition for state in generations if state.reset == COMMITTED]
        if not asked or self._committed is None:
            return set()
        found = {item: place for item, place in (await self._committed(asked)).items() if place is not None}
        with self._assignment.lock:
            for state, generation in generations.items():
                if self._assignment.is_current(state, generation) and state.partition in found:
                    state.begin_at(*found[state.partition])
        self._signal.notify()
        return set(found)

    async def _find_leaders(self, generations: Generations) -> None:
        """Look up the leaders of these partitions. A partition without a leader does not delay the others."""
        of_topic: dict[str, Generations] = {}
        for state, generation in generations.items():
            of_topic.setdefault(state.partition.topic, {})[state] = generation
        for name, states in of_topic.items():
            try:
                topic = await self._cluster.topic(name, self._config.request_timeout_ms)
            except KafkaError as error:
                self._handle_failure(states, error)
                continue
            for state, generation in states.items():
                try:
                    self._cluster.connection_to_leader(topic, state.partition)
                except KafkaError as error:
                    self._handle_failure({state: generation}, error)

    async def _fetch(self, leader: Connection, generations: Generations, room: int) -> None:
        request = log_pb2.FetchRequest(
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=min(self._config.fetch_max_bytes, room),
            client_rack=self._config.client_rack,
            isolation_level=ISOLATION_LEVELS[self._config.isolation_level],
            partitions=[self._partition_fetch(state) for state in generations],
        )
        states = {state.partition: state for state in generations}
        limit_ms = self._config.fetch_max_wait_ms + self._config.request_timeout_ms
        try:
            answer = await leader.call(leader.log.Fetch, request, limit_ms)
        except KafkaError as error:
            self._handle_failure(generations, error)
            return
        for part in answer.partitions:
            state = states[TopicPartition(part.topic, part.partition)]
            if refused := read_error(part):
                self._handle_failure({state: generations[state]}, refused)
            else:
                self._handle_fetched(state, generations[state], part)
        self._signal.notify()

    def _partition_fetch(self, state: TopicPartitionState) -> log_pb2.PartitionFetch:
        """Return the fetch of one partition, with leader epochs if the broker surely knows them.

        Only a leader surely knows every epoch, so a fetch from a read replica has none. A fetch from a leader omits the
        last record's epoch if that is newer than the leader's own, which a commit can cause: the topic may have been
        recreated.
        """
        state.bind(self._cluster.known_topic_id(state.partition.topic))
        known_epoch = self._cluster.known_epoch(state.partition) if state.read_replica < 0 else None
        is_known = known_epoch is not None and 0 <= state.last_epoch <= known_epoch
        return log_pb2.PartitionFetch(
            topic=state.partition.topic,
            partition=state.partition.partition,
            fetch_offset=state.fetch_from,
            partition_max_bytes=self._config.max_partition_fetch_bytes,
            current_leader_epoch=known_epoch,
            last_fetched_epoch=state.last_epoch if is_known else None,
            topic_id=state.topic_id,
        )

    def _handle_fetched(self, state: TopicPartitionState, generation: int, part: log_pb2.PartitionFetched) -> None:
        with self._assignment.lock:
            if self._assignment.is_current(state, generation):
                state.note_answer(part.high_watermark)
                if part.HasField("diverging"):
                    self._handle_divergence(state, part.diverging.end_offset)
                elif part.HasField("preferred_read_replica"):
                    self._use_read_replica(state, part.preferred_read_replica)
                elif part.next_offset > state.fetch_from:
                    state.add(part.batches, part.next_offset, _aborted_ranges(part))

    def _handle_divergence(self, state: TopicPartitionState, end_offset: int) -> None:
        """Set the position back to `end_offset`, where the leader's log diverges from the records that were read.

        With the lock held.
        """
        if state.position is None or end_offset >= state.position:  # no lost record has been returned
            logger.info("%s: the records fetched from offset %d on no longer exist", state.partition, end_offset)
            state.move_to(end_offset if state.position is None else state.position)
            return
        text = (
            f"{state.partition}: records from offset {end_offset} to {state.position} were read, and the leader does "
            "not have them: an unclean election has lost them"
        )
        if self._config.auto_offset_reset == "none":
            state.drop_ahead()
            state.block(LogTruncation(f"{text}; seek to continue"))
        else:
            logger.warning("%s; continuing at offset %d", text, end_offset)
            state.move_to(end_offset)

    def _use_read_replica(self, state: TopicPartitionState, broker_id: int) -> None:
        """Fetch from this replica for metadata_max_age_ms. With the lock held."""
        now_ms = self._clock.monotonic_ms()
        if self._cluster.known_broker(broker_id):
            state.read_from(broker_id, now_ms + self._config.metadata_max_age_ms)
        else:
            self._cluster.lost_leader(state.partition)
            state.wait_until(now_ms + self._cluster.backoff.pause_ms(1))

    def _handle_failure(self, generations: Generations, error: KafkaError) -> None:
        with self._assignment.lock:
            for state, generation in generations.items():
                if self._assignment.is_current(state, generation):
                    self._handle_error(state, error)
        self._signal.notify()

    def _handle_error(self, state: TopicPartitionState, error: KafkaError) -> None:
        """Retry or block the partition after a failed request. With the lock held."""
        failures = state.note_failure()
        state.wait_until(self._clock.monotonic_ms() + self._cluster.backoff.pause_ms(failures))
        unknown = isinstance(error, UnknownTopicOrPartition) and self._cluster.known_leader(state.partition) is None
        gone = unknown and not self._assignment.from_group
        was_nearer = state.read_from_leader()
        if was_nearer and isinstance(error, OffsetOutOfRange | NotLeaderOrFollower):
            state.retry_at_once()  # the leader is asked at once: its answer decides
        elif self._is_made_again(state, error):
            self._begin_anew(state)
        elif isinstance(error, OffsetOutOfRange) and self._config.auto_offset_reset != "none":
            logger.warning("%s; continuing at the %s offset", error, self._config.auto_offset_reset)
            state.look_up(None)
            state.retry_at_once()
        elif error.retriable and not gone:
            logger.info("%s: fetching again, attempt %d: %s", state.partition, failures, error)
            self._cluster.lost_leader(state.partition)
        else:
            state.block(error)

    def _is_made_again(self, state: TopicPartitionState, error: KafkaError) -> bool:
        """Return whether the topic has been recreated. With the lock held.

        Two lookups in a row must say so: the first may have asked a broker that is behind, and knows an earlier topic.
        """
        known = self._cluster.known_topic_id(state.partition.topic)
        is_other = isinstance(error, InconsistentTopicId) and known not in ("", state.topic_id)
        return is_other and state.doubt_topic(known)

    def _begin_anew(self, state: TopicPartitionState) -> None:
        """Begin in the recreated topic at the group's committed offset, or as auto_offset_reset says.

        With the lock held.
        """
        text = f"{state.partition}: the topic was deleted, and another topic of its name is there"
        if self._config.auto_offset_reset == "none":
            state.block(OffsetOutOfRange(f"{text}; seek to continue"))
        else:
            logger.warning("%s; looking up a position in it", text)
            state.look_up(COMMITTED)
            state.retry_at_once()


def _aborted_ranges(part: log_pb2.PartitionFetched) -> AbortedRanges:
    if not part.aborted_transactions:
        return NONE_ABORTED
    return AbortedRanges((each.producer_id, each.first_offset, each.last_offset) for each in part.aborted_transactions)
