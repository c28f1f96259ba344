"""The group of one consumer: its membership, rebalances and commits, behind one class for consumer.py.

`subscribe` only stores the selection; the next `poll` starts the group's task on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sparklog.base.errors import InvalidRequest, UnknownMemberId
from sparklog.base.ids import TopicPartition
from sparklog.client.cluster import Cluster
from sparklog.client.commits import GroupMetadata, GroupOffsets, OffsetAndMetadata
from sparklog.client.config import ConsumerConfig
from sparklog.client.consumer.callback_invoker import CallbackInvoker, UserCall
from sparklog.client.consumer.committer import Committer
from sparklog.client.consumer.membership import LEAVE_TIMEOUT_MS, Membership
from sparklog.client.consumer.rebalancer import GroupRebalancer
from sparklog.client.consumer.subscription import TopicSelection
from sparklog.client.consumer.subscription_state import FetchPosition, SubscriptionState
from sparklog.client.coordinator import Coordinator
from sparklog.client.loop_thread import background
from sparklog.client.retry import retrying


class ConsumerCoordinator:
    """Membership, rebalances and commits of a consumer with a group_id."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        assignment: SubscriptionState,
        *,
        notify: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        """`notify` wakes a waiting `poll`, `wake` the fetcher."""
        assert config.group_id is not None  # a consumer without one has no ConsumerCoordinator
        self._cluster = cluster
        self._config = config
        self._assignment = assignment
        self._notify = notify
        coordinator = Coordinator(cluster, config.group_id)
        self.callbacks = CallbackInvoker(notify)
        membership = Membership(coordinator, config, self._idle_ms)
        self.committer = Committer(
            GroupOffsets(coordinator, config), membership, assignment, self.callbacks, config, cluster.clock
        )
        self._group = GroupRebalancer(cluster, config, assignment, membership, self.callbacks, self.committer, wake)
        self._pending_subscription: tuple[TopicSelection, Any] | None = None
        self._polling = False
        self._polled_ms = cluster.clock.monotonic_ms()

    # For any thread.

    @property
    def is_subscribed(self) -> bool:
        """Whether the group assigns the partitions, and not `assign`."""
        return self._assignment.from_group

    @property
    def needs_poll(self) -> bool:
        """Whether there is work on the event loop before records may be returned."""
        return self._pending_subscription is not None or self.callbacks.holds_back or self.committer.is_due

    def subscribe(self, selection: TopicSelection, listener: Any) -> None:
        """Store the subscription for the next `poll`."""
        self._pending_subscription = selection, listener
        self._assignment.set_from_group(True)

    def metadata(self) -> GroupMetadata:
        """Return the group and this consumer's member id and generation; without these after `assign`.

        Raises UnknownMemberId or another error if the consumer is subscribed but no member: coordinators do not check
        commits without a member.
        """
        assert self._config.group_id is not None
        if not self.is_subscribed:
            return GroupMetadata(self._config.group_id)
        member = self._group.membership
        member.check()
        if not member.is_member:
            raise UnknownMemberId(f"the consumer is not in group {self._config.group_id} at the moment: poll first")
        return GroupMetadata(self._config.group_id, member.generation, member.member_id, self._config.group_instance_id)

    def touch(self) -> None:
        """Note that the user has polled."""
        self._polled_ms = self._cluster.clock.monotonic_ms()

    # On the event loop.

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Mark the block as part of a `poll`."""
        if self._pending_subscription is not None:
            selection, listener = self._pending_subscription
            self._pending_subscription = None
            self._group.subscribe(selection, listener)
        self._polling = True
        self.committer.start_if_due()
        try:
            yield
        finally:
            self._polling = False
            self.touch()

    def next_call(self) -> UserCall | None:
        """Begin the turn that the group has requested, and return the next call that the user must make."""
        self._group.check()
        self.callbacks.grant()
        return self.callbacks.next_call()

    async def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, FetchPosition | None]:
        """Return the group's committed positions, None for a partition without one; one attempt."""
        found = await self.committer.committed(partitions)
        return {
            partition: FetchPosition(each.at.offset, each.at.leader_epoch, each.topic_id) if each else None
            for partition, each in found.items()
        }

    async def committed_until(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets for the user; retries for default_api_timeout_ms."""
        found = await retrying(
            lambda: self.committer.committed(partitions),
            timeout_ms=self._config.default_api_timeout_ms,
            backoff=self._cluster.backoff,
            clock=self._cluster.clock,
        )
        return {partition: each.at if each else None for partition, each in found.items()}

    def begin_to_leave(self, reason: str) -> asyncio.Task[None]:
        """Start the task that commits, revokes and leaves, and return it.

        The user must meanwhile make the calls of `next_call_of`.
        """
        self._polling = True
        task = background(self._leave_group(reason), "sparklog group's end")
        task.add_done_callback(lambda _: self._notify())
        return task

    async def next_call_of(self, ending: asyncio.Task[None], wait_for_change: Callable[[], Any]) -> UserCall | None:
        """Return the next call that the user must make; None at the end of the task `ending`."""
        while True:
            if call := self.callbacks.next_call():
                return call
            if ending.done():
                return None
            await wait_for_change()

    async def _leave_group(self, reason: str) -> None:
        try:
            if self.is_subscribed:
                await self.committer.settle(LEAVE_TIMEOUT_MS)  # no commit is accepted after leaving
                await self._group.leave(reason)
            else:
                await self.committer.before_giving_up(LEAVE_TIMEOUT_MS)
            await self.committer.finish(LEAVE_TIMEOUT_MS)
        finally:
            self._polling = False
            self.touch()
        self._pending_subscription = None
        self._assignment.set_from_group(False)

    async def stop(self) -> None:
        """Stop everything without leaving the group."""
        await self._group.stop()
        await self.committer.stop()

    def _idle_ms(self) -> int:
        return 0 if self._polling else self._cluster.clock.monotonic_ms() - self._polled_ms


def required(group: ConsumerCoordinator | None) -> ConsumerCoordinator:
    """Return the group; raises InvalidRequest if there is none."""
    if group is None:
        raise InvalidRequest("this consumer has no group: give it a group_id")
    return group
