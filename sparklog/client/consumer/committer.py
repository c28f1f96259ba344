"""The commits of a consumer: of offsets that the user gives, or of its positions.

A position is the offset after the last record that `poll`, or an iteration over the consumer, has returned. With
enable_auto_commit, `poll` commits the positions every auto_commit_interval_ms, before it returns more records: the user
has then processed the earlier ones. Positions are also committed before partitions are revoked, and by `close`.

Automatic commits contain only positions that have moved since their last commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sparklog.base.clock import Clock
from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import IllegalGeneration, KafkaError, RequestTimedOut, UnknownMemberId
from sparklog.base.ids import TopicPartition
from sparklog.client.commits import CommittedPosition, GroupOffsets, OffsetAndMetadata, Offsets, with_metadata
from sparklog.client.config import ConsumerConfig
from sparklog.client.consumer.callback_invoker import CallbackInvoker
from sparklog.client.consumer.membership import Membership
from sparklog.client.consumer.subscription_state import FetchPosition, SubscriptionState, TopicPartitionState
from sparklog.client.interceptors import ConsumerInterceptors
from sparklog.client.loop_thread import background

Callback = Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], Any]

logger = logging.getLogger(__name__)


class _RequestedCommit(NamedTuple):
    """Offsets to commit, and the topic ids of the moment of `commit`: a topic may be recreated before the request."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    topic_ids: dict[TopicPartition, str]
    """Ids of the offsets' topics, where known."""
    states: dict[TopicPartition, TopicPartitionState]
    """States of the partitions that were assigned."""


class Committer:
    """The commits of one consumer. Used on its event loop, except `is_due`."""

    def __init__(
        self,
        commits: GroupOffsets,
        membership: Membership,
        assignment: SubscriptionState,
        callbacks: CallbackInvoker,
        config: ConsumerConfig,
        clock: Clock,
    ) -> None:
        self._commits = commits
        self._membership = membership
        self._assignment = assignment
        self._callbacks = callbacks
        self._config = config
        self._clock = clock
        self._interceptors = ConsumerInterceptors(config.interceptors)
        self._committed: dict[TopicPartition, tuple[int, str]] = {}
        """Offset and topic id of each partition's last commit: a recreated topic may be read to the same offset."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._due_ms = clock.monotonic_ms() + config.auto_commit_interval_ms if config.enable_auto_commit else MAX_LONG

    @property
    def is_due(self) -> bool:
        """Whether the next `poll` commits; for any thread."""
        return self._clock.monotonic_ms() >= self._due_ms

    async def commit(self, offsets: Offsets | None, timeout_ms: int | None) -> None:
        """Commit `offsets`, or the positions if None; retry for `timeout_ms`, not at all if None."""
        await self._commit(self._requested_commit(offsets), timeout_ms)

    def commit_async(self, offsets: Offsets | None, callback: Callback | None) -> None:
        """Commit without waiting; a later `poll`, or `close`, calls `callback(offsets, error)`."""
        self._start(self._commit_and_report(self._requested_commit(offsets), callback))

    def start_if_due(self) -> None:
        """Commit the positions in the background if auto_commit_interval_ms is over.

        Skipped while other commits are under way, so that commits do not pile up.
        """
        if self.is_due:
            self._due_ms = self._clock.monotonic_ms() + self._config.auto_commit_interval_ms
            if not self._tasks and (moved := self._uncommitted_positions()):
                self._start(self._commit_and_report(self._commit_of_positions(moved), None))

    async def before_giving_up(self, timeout_ms: int) -> None:
        """Commit the positions, for at most `timeout_ms`, if enable_auto_commit; a failure is logged."""
        if self._config.enable_auto_commit and (moved := self._uncommitted_positions()):
            try:
                async with asyncio.timeout(timeout_ms / 1000):  # with the wait for earlier commits
                    await self._commit(self._commit_of_positions(moved), timeout_ms)
            except (KafkaError, TimeoutError) as error:
                logger.warning("group %s: not committed: %s", self._config.group_id, error or f"{timeout_ms} ms passed")

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedPosition | None]:
        """Return each partition's committed offset; one attempt."""
        return await self._commits.committed(partitions)

    async def settle(self, timeout_ms: int) -> None:
        """Wait for the commits under way, for at most `timeout_ms`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_ms / 1000)

    async def finish(self, timeout_ms: int) -> None:
        """Wait for the commits under way, for at most `timeout_ms`, then cancel them."""
        await self.settle(timeout_ms)
        await self.stop()

    async def stop(self) -> None:
        """Cancel the commits under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _commit_and_report(self, wanted: _RequestedCommit, callback: Callback | None) -> None:
        failure: KafkaError | None = None
        try:
            await self._commit(wanted, None)
        except KafkaError as error:
            failure = error
            logger.info("group %s: not committed: %s", self._config.group_id, error)
        except asyncio.CancelledError:
            failure = RequestTimedOut("the consumer was closed before an answer came")
        if callback is not None:
            self._callbacks.post(callback, wanted.offsets, failure)

    async def _commit(self, wanted: _RequestedCommit, timeout_ms: int | None) -> None:
        await self._commits.commit(
            wanted.offsets, self._member_holding(wanted.states), topic_ids=wanted.topic_ids, timeout_ms=timeout_ms
        )
        for partition, at in wanted.offsets.items():
            self._committed[partition] = at.offset, wanted.topic_ids.get(partition, "")
        self._interceptors.on_commit(wanted.offsets)

    def _requested_commit(self, offsets: Offsets | None) -> _RequestedCommit:
        """Return the commit of `offsets`, or of the current positions if None."""
        if offsets is None:
            return self._commit_of_positions(self._assignment.positions())
        return _RequestedCommit(
            with_metadata(offsets), self._assignment.topic_ids(offsets), self._assignment.held(offsets)
        )

    def _commit_of_positions(self, positions: Mapping[TopicPartition, FetchPosition]) -> _RequestedCommit:
        offsets = {item: OffsetAndMetadata(at.offset, leader_epoch=at.leader_epoch) for item, at in positions.items()}
        ids = {item: at.topic_id for item, at in positions.items() if at.topic_id}
        return _RequestedCommit(offsets, ids, self._assignment.held(offsets))

    def _start(self, work: Any) -> None:
        task = background(work, "sparklog commit")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _uncommitted_positions(self) -> dict[TopicPartition, FetchPosition]:
        """Return the positions that are not committed yet."""
        positions = self._assignment.positions()
        self._committed = {item: last for item, last in self._committed.items() if item in positions}
        return {item: at for item, at in positions.items() if self._committed.get(item) != (at.offset, at.topic_id)}

    def _member_holding(self, had: Mapping[TopicPartition, TopicPartitionState]) -> Callable[[], Membership | None]:
        """Return a function for the committing member; it raises once the member has lost one of these partitions."""

        def member() -> Membership | None:
            if not self._assignment.from_group:
                return None
            self._membership.check()
            if not self._membership.is_member:
                raise UnknownMemberId(
                    f"group {self._config.group_id} has removed this consumer, which is joining again: "
                    "others may read what it read"
                )
            if self._assignment.held(had) != had:
                raise IllegalGeneration(f"given up before it was committed: one of {', '.join(map(str, had))}")
            return self._membership

        return member
