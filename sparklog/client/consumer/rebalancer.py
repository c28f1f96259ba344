"""Rebalances of a consumer's group: joining, and the revocation and assignment of its partitions.

One task, `_run`, repeats: revoke the partitions that may not be kept, join, synchronize, apply the new assignment, wait
until the group must rebalance. It changes the user's partitions only in a turn of `CallbackInvoker`.

    eager         (range, roundrobin, sticky) all partitions are committed, revoked and dropped before joining
    cooperative   (cooperative-sticky only) reading continues; partitions that move to another member are committed,
                  revoked and dropped after joining, and the group rebalances again to assign them
    lost          all partitions are dropped without a commit, and the member joins again

Dropping a partition discards its queued records; the next owner begins at the committed offset. So the records of a key
stay in order over any number of rebalances, and only records between the last commit and a crash may come twice.

A member joins again when the coordinator requests a rebalance, after a `subscribe` with another selection, and when the
topics that match its pattern change. The leader also joins again when the number of partitions of a topic changes.
Topics are checked every metadata_max_age_ms, by the leader every second while a subscribed topic does not exist.
(org.apache.kafka.clients.consumer.internals.ConsumerCoordinator)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sparklog.base.consumer_protocol import (
    NO_GENERATION,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from sparklog.base.consumer_protocol import Assignment as Assigned
from sparklog.base.errors import KafkaError, RebalanceInProgress, RetriableError
from sparklog.base.ids import TopicPartition
from sparklog.client.assignors import Assignor, Member
from sparklog.client.cluster import Cluster
from sparklog.client.config import ConsumerConfig
from sparklog.client.consumer.callback_invoker import CallbackInvoker
from sparklog.client.consumer.committer import Committer
from sparklog.client.consumer.membership import LEAVE_TIMEOUT_MS, Membership, is_loss
from sparklog.client.consumer.subscription import TopicSelection
from sparklog.client.consumer.subscription_state import SubscriptionState
from sparklog.client.listeners import method
from sparklog.client.loop_thread import background
from sparklog.v1 import admin_pb2

MISSING_TOPIC_MS = 1_000

logger = logging.getLogger(__name__)


class GroupRebalancer:
    """The rebalances of one consumer's group, from `subscribe` on."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        assignment: SubscriptionState,
        membership: Membership,
        callbacks: CallbackInvoker,
        committer: Committer,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called when the assignment has changed."""
        self.membership = membership
        self._cluster = cluster
        self._config = config
        self._assignment = assignment
        self._callbacks = callbacks
        self._committer = committer
        self._wake = wake
        self._assignors: dict[str, Assignor] = {
            assignor.name: assignor for assignor in config.partition_assignment_strategy
        }
        self._cooperative = all(assignor.cooperative for assignor in config.partition_assignment_strategy)
        self._selection = TopicSelection()
        self._listener: Any = None
        self._topics: frozenset[str] = frozenset()
        self._last_assignment: tuple[Sequence[TopicPartition], int] = ((), NO_GENERATION)
        self._led_partition_counts: dict[str, int] | None = (
            None  # as leader: partitions of every topic that the group wants
        )
        self._joining = False
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, selection: TopicSelection, listener: Any) -> None:
        """Read these topics from now on; a changed selection makes the group rebalance."""
        changed = selection != self._selection
        self._selection, self._listener = selection, listener
        if self._task is None:
            self._task = background(self._run(), "sparklog group")
        elif changed:
            self.membership.rejoin("another subscription")

    def check(self) -> None:
        """Raise the exception that ended the group's task, such as one of a user's own assignor."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    async def leave(self, reason: str) -> None:
        """Commit, revoke all partitions, and leave. The user must meanwhile make the requested calls.

        A turn that has begun ends first, so that the listener is called for every partition. A join under way
        continues, because the coordinator accepts no commit before its end.
        """
        if self._task is None:
            return
        await self._callbacks.until_free()
        if not self._joining:
            await self._end_task()
        try:
            self.membership.check()
            await self._revoke(self._assignment.partitions(), LEAVE_TIMEOUT_MS)
        except KafkaError:
            await self._drop_lost_partitions()
        await self._end_task()
        await self.membership.leave(reason)

    async def stop(self) -> None:
        """End the task and the heartbeats without leaving the group."""
        await self._end_task()
        self.membership.stop()

    async def _end_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task, self._joining = None, False

    async def _run(self) -> None:
        """Repeat rebalances until cancelled; each round waits for the coordinator or the user."""
        while True:
            try:
                await self._revoke_before_joining()
                self._joining = True
                assigned = await self._join_group()
                self._joining = False
                async with self._callbacks.turn():
                    self.membership.check()
                    await self._apply_assignment(assigned)
                await self._wait_for_rebalance()
            except RetriableError as error:  # no broker has listed the topics
                logger.info("group %s: joining again in a while: %s", self._config.group_id, error)
                await asyncio.sleep(self._config.retry_backoff_max_ms / 1000)
            except KafkaError as error:
                logger.warning("group %s: %s: %s", self._config.group_id, type(error).__name__, error)
                self.membership.reset()
                self._joining = False
                async with self._callbacks.turn():
                    await self._drop_lost_partitions()
                if not is_loss(error):
                    await self._callbacks.call(_raise, error)

    async def _revoke_before_joining(self) -> None:
        """Revoke partitions before joining: all or, if cooperative, those of topics outside the subscription."""
        existing = await self._partition_counts() if self._selection.allow else {}
        self._topics = self._selection.topics(existing)
        going = [
            item for item in self._assignment.partitions() if not (self._cooperative and item.topic in self._topics)
        ]
        if going:
            async with self._callbacks.turn():
                self.membership.check()
                await self._revoke(going)

    async def _join_group(self) -> list[TopicPartition]:
        """Join and synchronize, until both succeed; return the assigned partitions."""
        while True:
            joined = await self.membership.join(self._protocols)
            assignments: Mapping[str, bytes] = {}
            self._led_partition_counts = None
            if joined.leader == joined.member_id:
                assignments = await self._assign_as_leader(joined)
            try:
                data = await self.membership.sync(joined.protocol, assignments)
            except RebalanceInProgress as error:
                logger.info("group %s: %s", self._config.group_id, error)
                continue
            return list(_read_assignment(data).partitions)

    async def _apply_assignment(self, assigned: Iterable[TopicPartition]) -> None:
        """Revoke and add partitions according to the assignment, within a turn."""
        wanted = {item for item in assigned if item.topic in self._topics}
        owned = self._assignment.partitions()
        revoked = [item for item in owned if item not in wanted]
        if revoked:
            await self._revoke(revoked)
        self._assign(wanted)
        self._last_assignment = sorted(wanted), self.membership.generation
        await self._call("on_assigned", sorted(wanted.difference(owned)))
        if revoked:
            self.membership.rejoin("partitions are free for others")

    async def _wait_for_rebalance(self) -> None:
        """Wait until the group must rebalance; check the topics meanwhile."""
        while True:
            try:
                async with asyncio.timeout(self._topic_check_interval_ms() / 1000):
                    return await self.membership.until_due()
            except TimeoutError:
                await self._check_topics()

    async def _check_topics(self) -> None:
        """Join again if topics or partitions have changed since the last rebalance."""
        try:
            existing = await self._partition_counts()
        except KafkaError as error:
            logger.info("group %s: topics were not to be had: %s", self._config.group_id, error)
            return
        if self._selection.topics(existing) != self._topics:
            self.membership.rejoin("topics were created or deleted")
        elif (
            self._led_partition_counts is not None
            and {topic: existing.get(topic, 0) for topic in self._led_partition_counts} != self._led_partition_counts
        ):
            self.membership.rejoin("a topic has other partitions than before")

    def _topic_check_interval_ms(self) -> int:
        """Return the time until the next check of the topics in ms; shorter if a subscribed topic does not exist."""
        missing = self._led_partition_counts is not None and 0 in self._led_partition_counts.values()
        most_ms = max(self._config.metadata_max_age_ms, 1)
        return min(most_ms, MISSING_TOPIC_MS) if missing else most_ms

    async def _revoke(self, partitions: Sequence[TopicPartition], timeout_ms: int | None = None) -> None:
        """Commit the positions, call on_revoked, drop the partitions."""
        if not partitions:
            return
        await self._committer.before_giving_up(timeout_ms or self._config.request_timeout_ms)
        await self._call("on_revoked", partitions)
        self._assign(set(self._assignment.partitions()).difference(partitions))

    async def _drop_lost_partitions(self) -> None:
        if partitions := self._assignment.partitions():
            await self._call("on_lost", partitions)
            self._assign(set())

    def _assign(self, partitions: set[TopicPartition]) -> None:
        with self._assignment.lock:
            self._assignment.assign(sorted(partitions))
        self._wake()

    async def _call(self, name: str, partitions: Sequence[TopicPartition]) -> None:
        logger.info("group %s: %s %s", self._config.group_id, name, ", ".join(map(str, partitions)))
        if call := method(self._listener, name):
            await self._callbacks.call(call, partitions)

    def _protocols(self) -> list[tuple[str, bytes]]:
        """Return the name and the subscription for each of this member's assignors."""
        had, generation = self._last_assignment
        return [
            (
                assignor.name,
                write_subscription(
                    Subscription(
                        topics=sorted(self._topics),
                        user_data=assignor.user_data(had, generation),
                        owned=self._assignment.partitions(),
                        generation=generation,
                    )
                ),
            )
            for assignor in self._assignors.values()
        ]

    async def _assign_as_leader(self, joined: Any) -> dict[str, bytes]:
        """Return the assignment of every member, as the leader; empty if the group keeps its assignment."""
        members = [
            Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id if member.HasField("group_instance_id") else None,
                subscription=_read_subscription(member.metadata),
            )
            for member in joined.members
        ]
        existing = await self._partition_counts()
        wanted = {topic for member in members for topic in member.subscription.topics}
        self._led_partition_counts = {topic: existing.get(topic, 0) for topic in wanted}
        if joined.skip_assignment:
            return {}
        assigned = self._assignors[joined.protocol].assign(self._led_partition_counts, members)
        return {
            member_id: write_assignment(Assigned(partitions=partitions)) for member_id, partitions in assigned.items()
        }

    async def _partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic in the cluster."""
        request = admin_pb2.ListTopicsRequest(include_internal=True)
        answer = await self._cluster.ask_admin("ListTopics", request, self._config.request_timeout_ms)
        return {topic.name: topic.partitions for topic in answer.topics}


def _raise(error: KafkaError) -> None:
    raise error


def _read_subscription(metadata: bytes) -> Subscription:
    """Return another member's subscription; empty if it cannot be read."""
    try:
        return read_subscription(metadata)
    except ValueError as error:
        logger.warning("the metadata of a member cannot be read, it gets nothing: %s", error)
        return Subscription(topics=())


def _read_assignment(data: bytes) -> Assigned:
    """Return the leader's assignment; empty if it cannot be read."""
    try:
        return read_assignment(data)
    except ValueError as error:
        logger.warning("the leader's assignment cannot be read: %s", error)
        return Assigned(partitions=())
