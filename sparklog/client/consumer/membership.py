"""A consumer's membership in its group: JoinGroup, SyncGroup, heartbeats, LeaveGroup.

    join        repeated until the group has rebalanced. A broker that is away, is loading the group or no longer
                coordinates it is asked again after a pause, without a time limit
    heartbeat   sent by a task of its own from the end of `sync` to the next `join`, also while the user works
    due         the group must rebalance, because the coordinator or `rejoin` requests it
    lost        the group continues without this member, for one of three reasons: the coordinator has reported it; no
                heartbeat was answered for session.timeout.ms, counted from the sending of the last answered one, so not
                later than the coordinator expels the member; or the user has not polled for max.poll.interval.ms and
                the member has left

`join`, `sync`, `until_due` and `check` raise errors that no retry can resolve. Used on one event loop only.
(org.apache.kafka.clients.consumer.internals.AbstractCoordinator)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparklog.base.consumer_protocol import NO_GENERATION, PROTOCOL_TYPE
from sparklog.base.errors import (
    IllegalGeneration,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    RequestTimedOut,
    RetriableError,
    UnknownMemberId,
)
from sparklog.base.message_mapping import read_error
from sparklog.client.config import ConsumerConfig
from sparklog.client.connection import raise_error_of
from sparklog.client.coordinator import Coordinator
from sparklog.client.loop_thread import background
from sparklog.v1 import groups_pb2

JOIN_MARGIN_MS = 5_000
"""Time after the group's rebalance time-out at which a join is given up."""

LEAVE_TIMEOUT_MS = 5_000
"""Time-out of each of the last calls of a leaving member."""

HEARTBEATS_IN_A_SESSION = 3
"""Number of heartbeats in a row that may time out within one session time-out."""

logger = logging.getLogger(__name__)


class Membership:
    """One member of one group."""

    def __init__(self, coordinator: Coordinator, config: ConsumerConfig, idle_ms: Callable[[], int]) -> None:
        """`idle_ms` returns the time since the end of the last poll."""
        self.member_id = ""
        self.generation = NO_GENERATION
        self._coordinator = coordinator
        self._config = config
        self._idle_ms = idle_ms
        self._clock = coordinator.cluster.clock
        self._backoff = coordinator.cluster.backoff
        self._due = asyncio.Event()
        self._lost: KafkaError | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None

    @property
    def is_member(self) -> bool:
        """Whether the member has a generation: from the end of `join` until it leaves, or its membership is lost."""
        return self.generation != NO_GENERATION and self._lost is None

    def check(self) -> None:
        """Raise the error that ended the membership, if it is lost."""
        if self._lost is not None:
            raise self._lost

    async def until_due(self) -> None:
        """Wait until the group must rebalance; raises the error if the membership is lost."""
        await self._due.wait()
        self.check()

    def rejoin(self, reason: str) -> None:
        """Make the group rebalance."""
        logger.info("group %s: joining again: %s", self._config.group_id, reason)
        self._due.set()

    def reset(self) -> None:
        """End the membership; keep the member id unless the coordinator does not know it."""
        self._stop_heartbeats()
        if isinstance(self._lost, UnknownMemberId):
            self.member_id = ""
        self.generation = NO_GENERATION
        self._lost = None

    async def join(self, protocols: Callable[[], Sequence[tuple[str, bytes]]]) -> groups_pb2.JoinGroupResponse:
        """Join the group; `protocols` returns the assignors' names and metadata for each attempt."""
        self._stop_heartbeats()
        self._due.clear()
        limit_ms = max(self._config.request_timeout_ms, self._config.rebalance_ms + JOIN_MARGIN_MS)
        failures = 0
        while True:
            try:
                answer = await self._coordinator.ask("JoinGroup", self._join_request(protocols()), limit_ms)
                error = read_error(answer)
                if isinstance(error, MemberIdRequired):
                    self.member_id = answer.member_id
                    continue
                if error is None:
                    self.member_id, self.generation = answer.member_id, answer.generation
                    logger.info("group %s: member %s, generation %d", *self._names)
                    joined: groups_pb2.JoinGroupResponse = answer
                    return joined
                self._raise_group_error(error)
            except RetriableError as failure:
                failures += 1
                await self._pause(failures, failure)

    async def sync(self, protocol: str, assignments: Mapping[str, bytes]) -> bytes:
        """Send SyncGroup, and return the member's own assignment.

        Raises RebalanceInProgress if the group must rebalance again.
        """
        request = groups_pb2.SyncGroupRequest(
            group_id=self._config.group_id,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol=protocol,
            assignments=[
                groups_pb2.MemberAssignment(member_id=member_id, assignment=data)
                for member_id, data in assignments.items()
            ],
        )
        limit_ms = max(self._config.request_timeout_ms, self._config.rebalance_ms + JOIN_MARGIN_MS)
        sent_ms = self._clock.monotonic_ms()
        try:
            answer = await self._coordinator.ask("SyncGroup", request, limit_ms)
            if error := read_error(answer):
                self._raise_group_error(error)
        except RetriableError as error:
            raise RebalanceInProgress(str(error)) from None  # joining again is always right
        self._heartbeat_task = background(self._send_heartbeats(sent_ms), "sparklog heartbeat")
        data: bytes = answer.assignment
        return data

    async def leave(self, reason: str) -> None:
        """Leave the group; a static member only stops its heartbeats, so that it can come back. Failures are logged."""
        self._stop_heartbeats()
        self._lost = None
        await self._send_leave(reason)

    async def _send_leave(self, reason: str) -> None:
        member_id, self.generation = self.member_id, NO_GENERATION
        if not member_id or self._config.group_instance_id is not None:
            return
        self.member_id = ""
        member = groups_pb2.LeavingMember(member_id=member_id, reason=reason)
        request = groups_pb2.LeaveGroupRequest(group_id=self._config.group_id, members=[member])
        try:
            raise_error_of(await self._coordinator.ask("LeaveGroup", request, LEAVE_TIMEOUT_MS))
        except KafkaError as error:
            logger.info("group %s: leaving failed, the session will end by itself: %s", self._config.group_id, error)

    def stop(self) -> None:
        """Stop the heartbeats."""
        self._stop_heartbeats()

    @property
    def _names(self) -> tuple[str | None, str, int]:
        return self._config.group_id, self.member_id, self.generation

    def _join_request(self, protocols: Sequence[tuple[str, bytes]]) -> groups_pb2.JoinGroupRequest:
        return groups_pb2.JoinGroupRequest(
            group_id=self._config.group_id,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[groups_pb2.GroupProtocol(name=name, metadata=metadata) for name, metadata in protocols],
            session_timeout_ms=self._config.session_timeout_ms,
            rebalance_timeout_ms=self._config.rebalance_ms,
        )

    def _raise_group_error(self, error: KafkaError) -> None:
        """Raise an error of the group; an error that ends the membership is kept for `reset`."""
        if isinstance(error, UnknownMemberId | IllegalGeneration):
            self._lost = error
        raise error

    async def _pause(self, failures: int, failure: KafkaError) -> None:
        logger.info("group %s: asking again, attempt %d: %s", self._config.group_id, failures, failure)
        await asyncio.sleep(self._backoff.pause_ms(failures) / 1000)

    async def _send_heartbeats(self, alive_ms: int) -> None:
        """Send heartbeats until the membership is lost; the coordinator knew this member at `alive_ms`."""
        failures = 0
        pause_ms = self._config.heartbeat_interval_ms
        while True:
            await asyncio.sleep(self._until_next(pause_ms) / 1000)
            if self._idle_ms() >= self._config.max_poll_interval_ms:
                await self._leave_for_idleness()
                return
            sent_ms = self._clock.monotonic_ms()
            session_ms = alive_ms + self._config.session_timeout_ms - sent_ms
            if session_ms <= 0:
                self._lose_membership(
                    IllegalGeneration(f"no heartbeat was answered for {self._config.session_timeout_ms} ms")
                )
                return
            pause_ms = self._config.heartbeat_interval_ms
            try:
                await self._send_heartbeat(min(session_ms, self._answer_ms))
            except RetriableError as error:
                failures += 1
                pause_ms = min(self._backoff.pause_ms(failures), pause_ms)
                logger.info("group %s: heartbeat, attempt %d: %s", self._config.group_id, failures, error)
                continue
            except KafkaError as error:
                self._lose_membership(error)
                return
            alive_ms, failures = sent_ms, 0

    @property
    def _answer_ms(self) -> int:
        """Time-out of a heartbeat; leaves time in the session to find another coordinator."""
        return min(self._config.request_timeout_ms, self._config.session_timeout_ms // HEARTBEATS_IN_A_SESSION)

    async def _send_heartbeat(self, limit_ms: int) -> None:
        request = groups_pb2.HeartbeatRequest(
            group_id=self._config.group_id,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        try:
            async with asyncio.timeout(limit_ms / 1000):  # finding the coordinator included
                answer = await self._coordinator.ask("Heartbeat", request, limit_ms)
        except TimeoutError:
            silent = RequestTimedOut(f"no coordinator of group {self._config.group_id} answers")
            self._coordinator.forget_if_wrong(silent)  # its call was cancelled, so it saw no error
            raise silent from None
        try:
            raise_error_of(answer)
        except RebalanceInProgress:
            self._due.set()

    def _until_next(self, pause_ms: int) -> int:
        """Return the time until the next heartbeat or the end of max.poll.interval.ms, in ms."""
        return max(min(pause_ms, self._config.max_poll_interval_ms - self._idle_ms()), 1)

    async def _leave_for_idleness(self) -> None:
        why = f"no poll for {self._config.max_poll_interval_ms} ms: poll more often, or raise max_poll_interval_ms"
        logger.warning("group %s: %s", self._config.group_id, why)
        self._heartbeat_task = None  # this task, which must run to its end
        self._lose_membership(UnknownMemberId(why))
        await self._send_leave("max.poll.interval.ms is over")

    def _lose_membership(self, error: KafkaError) -> None:
        self._lost = error
        self._due.set()

    def _stop_heartbeats(self) -> None:
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            self._heartbeat_task = None


def is_loss(error: Any) -> bool:
    """Return whether the error means that the membership is lost."""
    return isinstance(error, UnknownMemberId | IllegalGeneration)
