"""A consumer's part in its group's rebalances: which partitions it reads, and how they are assigned and revoked.

One task, `_run`, loops: revoke what may not be kept, join, synchronize, take over what was assigned, wait until the
group must rebalance. It changes the user's partitions only in a turn of `CallbackInvoker`.

    eager         (range, roundrobin, sticky) everything is committed, revoked and dropped before joining
    cooperative   (cooperative-sticky alone) reading continues; what was assigned elsewhere is committed, revoked and
                  dropped afterwards, and the group rebalances again so that other members get it
    lost          everything is dropped, nothing can be committed, and the member joins anew

Dropping a partition discards what was fetched for it and not yet returned; its next owner begins at the committed
offset. So records of a key stay in order over any number of rebalances, and only records between the last commit and a
crash may come twice.

A member joins again when the coordinator says so, when `subscribe` has changed the selection, when topics that a
pattern matches come or go, and, as the leader, when a topic's number of partitions changes. Topics are checked every
metadata_max_age_ms, and by the leader every second while a topic that the group wants does not exist.
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
    """The group of one consumer, from `subscribe` on."""

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
        self._had: tuple[Sequence[TopicPartition], int] = ((), NO_GENERATION)
        self._led: dict[str, int] | None = None  # as leader: partitions of every topic that the group wants
        self._joining = False
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, selection: TopicSelection, listener: Any) -> None:
        """Read these topics from now on; a selection other than the one before makes the group rebalance."""
        changed = selection != self._selection
        self._selection, self._listener = selection, listener
        if self._task is None:
            self._task = background(self._run(), "sparklog group")
        elif changed:
            self.membership.rejoin("another subscription")

    def check(self) -> None:
        """Raise the exception that ended the group's task: only a user's own assignor causes one."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    async def leave(self, reason: str) -> None:
        """Commit, revoke everything and leave. The user has to make the calls that this asks for.

        A turn that has begun ends first, so that the listener is called for every partition. A join under way continues
        meanwhile, because the coordinator accepts no commit before it ends.
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
            await self._lose()
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
        """Run until cancelled, when the consumer ends; each round waits for the coordinator or the user."""
        while True:
            try:
                await self._revoke_before_joining()
                self._joining = True
                assigned = await self._come_together()
                self._joining = False
                async with self._callbacks.turn():
                    self.membership.check()
                    await self._take_up(assigned)
                await self._stay()
            except RetriableError as error:  # no broker has listed the topics
                logger.info("group %s: joining again in a while: %s", self._config.group_id, error)
                await asyncio.sleep(self._config.retry_backoff_max_ms / 1000)
            except KafkaError as error:
                logger.warning("group %s: %s: %s", self._config.group_id, type(error).__name__, error)
                self.membership.reset()
                self._joining = False
                async with self._callbacks.turn():
                    await self._lose()
                if not is_loss(error):
                    await self._callbacks.call(_raise, error)

    async def _revoke_before_joining(self) -> None:
        """Revoke partitions before joining: all or, if cooperative, those of topics no longer wanted."""
        existing = await self._existing() if self._selection.allow else {}
        self._topics = self._selection.topics(existing)
        going = [
            item for item in self._assignment.partitions() if not (self._cooperative and item.topic in self._topics)
        ]
        if going:
            async with self._callbacks.turn():
                self.membership.check()
                await self._revoke(going)

    async def _come_together(self) -> list[TopicPartition]:
        """Join and synchronize, as often as necessary; return the assigned partitions."""
        while True:
            joined = await self.membership.join(self._protocols)
            assignments: Mapping[str, bytes] = {}
            self._led = None
            if joined.leader == joined.member_id:
                assignments = await self._lead(joined)
            try:
                data = await self.membership.sync(joined.protocol, assignments)
            except RebalanceInProgress as error:
                logger.info("group %s: %s", self._config.group_id, error)
                continue
            return list(_read_assignment(data).partitions)

    async def _take_up(self, assigned: Iterable[TopicPartition]) -> None:
        """Revoke and read partitions as assigned, within a turn."""
        wanted = {item for item in assigned if item.topic in self._topics}
        owned = self._assignment.partitions()
        revoked = [item for item in owned if item not in wanted]
        if revoked:
            await self._revoke(revoked)
        self._assign(wanted)
        self._had = sorted(wanted), self.membership.generation
        await self._call("on_assigned", sorted(wanted.difference(owned)))
        if revoked:
            self.membership.rejoin("partitions are free for others")

    async def _stay(self) -> None:
        """Wait until the group must rebalance; check the topics meanwhile."""
        while True:
            try:
                async with asyncio.timeout(self._look_again_ms() / 1000):
                    return await self.membership.until_due()
            except TimeoutError:
                await self._look()

    async def _look(self) -> None:
        """Join again if topics or partitions have changed since the last rebalance."""
        try:
            existing = await self._existing()
        except KafkaError as error:
            logger.info("group %s: topics were not to be had: %s", self._config.group_id, error)
            return
        if self._selection.topics(existing) != self._topics:
            self.membership.rejoin("topics were created or deleted")
        elif self._led is not None and {topic: existing.get(topic, 0) for topic in self._led} != self._led:
            self.membership.rejoin("a topic has other partitions than before")

    def _look_again_ms(self) -> int:
        """Return after how many ms to check the topics; sooner if a wanted one has 0 partitions: it does not exist."""
        missing = self._led is not None and 0 in self._led.values()
        most_ms = max(self._config.metadata_max_age_ms, 1)
        return min(most_ms, MISSING_TOPIC_MS) if missing else most_ms

    async def _revoke(self, partitions: Sequence[TopicPartition], timeout_ms: int | None = None) -> None:
        """Commit what was read, call on_revoked, drop the partitions."""
        if not partitions:
            return
        await self._committer.before_giving_up(timeout_ms or self._config.request_timeout_ms)
        await self._call("on_revoked", partitions)
        self._assign(set(self._assignment.partitions()).difference(partitions))

    async def _lose(self) -> None:
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
        """Return this member's assignors with the subscription for each."""
        had, generation = self._had
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

    async def _lead(self, joined: Any) -> dict[str, bytes]:
        """Return every member's assignment, as the group's leader; empty if the group keeps its assignment."""
        members = [
            Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id if member.HasField("group_instance_id") else None,
                subscription=_read_subscription(member.metadata),
            )
            for member in joined.members
        ]
        existing = await self._existing()
        wanted = {topic for member in members for topic in member.subscription.topics}
        self._led = {topic: existing.get(topic, 0) for topic in wanted}
        if joined.skip_assignment:
            return {}
        assigned = self._assignors[joined.protocol].assign(self._led, members)
        return {
            member_id: write_assignment(Assigned(partitions=partitions)) for member_id, partitions in assigned.items()
        }

    async def _existing(self) -> dict[str, int]:
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
