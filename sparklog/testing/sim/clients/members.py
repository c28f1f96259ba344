"""Members of consumer groups in a simulation. They join, get partitions, commit offsets, leave, and come back.

    SimClassicMember     uses JoinGroup, SyncGroup and Heartbeat. The group's leader assigns the partitions
    SimConsumerMember    uses ConsumerGroupHeartbeat (KIP-848). For each newly assigned partition, it fetches the
                         committed offset with its member id and epoch. Only the current coordinator can answer such a
                         request, so the answer is the current offset. Some members subscribe to a regular expression
    GuestMember          a SimConsumerMember in a group of real clients, which are classic members. The group migrates
                         to the new protocol when the guest joins, and back when it leaves. A guest neither fetches
                         nor commits offsets

Members with an instance id are static. At times they are killed and come back, leave for a while, or another process
joins with their instance id. checks/owners.py checks the answers to members.

Each commit for a partition has a new number, greater than all numbers before it. Once all faults are over, every
partition must belong to exactly one member of each group.
"""

from __future__ import annotations

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count

from sparklog.base.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
)
from sparklog.base.ids import TopicPartition
from sparklog.group import requests
from sparklog.testing.sim.checks.history import Commit, History, OperationOutcome, ReadCommit
from sparklog.testing.sim.checks.owners import JOINS, LEAVES, LEAVES_FOR_A_WHILE, MemberAnswer, MemberRequest
from sparklog.testing.sim.clients.group_clients import GroupClient

SESSION_TIMEOUT_MS = 3_000
REBALANCE_TIMEOUT_MS = 3_000
STATIC_REBALANCE_TIMEOUT_MS = 60_000
"""So long that a static member of KIP-848 is removed only when its session ends, as checks/owners.py expects."""
JOIN_TIMEOUT_MS = 8_000
HEARTBEAT_S = 0.4
REFUSED = (
    IllegalGeneration, StaleMemberEpoch, FencedMemberEpoch, FencedInstanceId, UnknownMemberId, RebalanceInProgress,
)  # fmt: skip
"""Errors that refuse a commit: the member is unknown or behind, or a rebalance runs. Nothing is written."""
CHANCE_TO_LEAVE = 0.03
CHANCE_OF_ANOTHER_LIFE = 0.08
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": "400",
    "group.consumer.assignment.interval.ms": "200",
}


class MemberGroup:
    """The state that the members of a group share: its name, its partitions, and the next number to commit for each.

    With a `pattern`, a regular expression, some members subscribe to it, and read other topics too. They commit nothing
    for these topics.
    """

    def __init__(
        self, name: str, history: History, partitions: Sequence[TopicPartition], pattern: str | None = None
    ) -> None:
        self.name = name
        self.history = history
        self.partitions = list(partitions)
        self.pattern = pattern
        self.numbers = {partition: count(1) for partition in partitions}

    def all_of(self, existing: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of the `existing` partitions that the group reads."""
        if self.pattern is None:
            return self.partitions
        return [name for name in existing if re.fullmatch(self.pattern, name.topic)]


class SimMember(ABC):
    """The base of both kinds of members. `owned` lists the partitions that the member has at the moment."""

    def __init__(self, client: GroupClient, group: MemberGroup, instance_id: str | None = None) -> None:
        self.owned: list[TopicPartition] = []
        self.client = client
        self.group = group
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = -1
        """The generation of a classic member, or the member epoch of a KIP-848 member."""
        self._may_leave = True

    async def run(self, is_over: asyncio.Event) -> None:
        """Be a member that commits, and at times leaves, until `is_over` is set."""
        while not is_over.is_set():
            await self._wait(HEARTBEAT_S / 2)
            await self._commit_one()
            await self._wait(HEARTBEAT_S / 2)
            await self.step()

    async def settle(self) -> None:
        """Stay a member until cancelled, without commits and without leaving."""
        self._may_leave = False
        while True:
            await self._wait(HEARTBEAT_S)
            await self.step()

    async def step(self) -> None:
        """Join the group, send a heartbeat, leave, or begin another life."""
        chance = self.client.chance
        may_leave = self._may_leave and self.owned
        try:
            if may_leave and chance.random() < CHANCE_TO_LEAVE:
                await self._leave()
            elif may_leave and self.instance_id and chance.random() < CHANCE_OF_ANOTHER_LIFE:
                await chance.choice((self._restart_after_kill, self._start_double, self._leave_for_a_while))()
            else:
                await self._stay()
        except FencedInstanceId:
            self._begin_another_life()
        except (IllegalGeneration, FencedMemberEpoch, UnknownMemberId, StaleMemberEpoch):
            self._begin_anew()
        except KafkaError:
            self.client.forget_coordinator()
            await self.client.back_off()

    async def _wait(self, mean_s: float) -> None:
        await asyncio.sleep(mean_s * self.client.chance.uniform(0.5, 1.5))

    @abstractmethod
    async def _stay(self) -> None:
        """Join the group, or send a heartbeat."""

    @abstractmethod
    async def _leave(self) -> None:
        """Leave the group, and forget the assignment and the epoch."""

    @abstractmethod
    async def _leave_for_a_while(self) -> None:
        """Stop for a while without losing the partitions, if the protocol has a request for it."""

    @abstractmethod
    async def _start_double(self) -> None:
        """Let a second process join with the same instance id."""

    async def _restart_after_kill(self) -> None:
        """Forget everything, and come back with the same instance id before the session ends or after that."""
        self._begin_another_life()
        await asyncio.sleep(self.client.chance.uniform(0, 1.3) * SESSION_TIMEOUT_MS / 1000)

    def _begin_anew(self) -> None:
        self.owned, self.epoch = [], -1

    def _begin_another_life(self) -> None:
        """Begin anew, with another member id."""
        self._begin_anew()

    async def _commit_one(self) -> None:
        own = [partition for partition in self.owned if partition in self.group.numbers]
        if not own or self.client.chance.random() < 0.3:
            return
        await self._commit(self.client.chance.choice(own))

    async def _commit(self, partition: TopicPartition) -> None:
        offset = next(self.group.numbers[partition])
        action = Commit(
            group=self.group.name, partition=partition, offset=offset, member_id=self.member_id,
            instance_id=self.instance_id, epoch=self.epoch,
        )  # fmt: skip
        operation = self.group.history.begin(self.client.name, action)
        request = requests.OffsetCommit(
            group_id=self.group.name, generation_or_epoch=self.epoch, member_id=self.member_id,
            group_instance_id=self.instance_id,
            offsets=[requests.OffsetToCommit(partition=partition, offset=offset)],
        )  # fmt: skip
        try:
            answer = await self.client.ask(request, 6_000)
            if error := answer.errors[partition]:
                raise error
        except KafkaError as error:
            is_refused = isinstance(error, REFUSED)
            self.group.history.end(
                operation, OperationOutcome.FAIL if is_refused else OperationOutcome.INFO, str(error)
            )
            self.client.forget_coordinator()
        else:
            self.group.history.end(operation, OperationOutcome.OK, self.client.address)


class SimClassicMember(SimMember):
    """A member that uses the classic protocol."""

    async def _stay(self) -> None:
        if self.epoch < 0:
            await self._join()
            return
        request = requests.Heartbeat(
            group_id=self.group.name, generation=self.epoch, member_id=self.member_id,
            group_instance_id=self.instance_id,
        )  # fmt: skip
        answer = await self.client.ask(request)
        if isinstance(answer.error, RebalanceInProgress):
            await self._join()
        elif answer.error:
            raise answer.error

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self.member_id = ""

    async def _join(self) -> None:
        self.owned, self.epoch = [], -1
        stay = MemberRequest(
            group=self.group.name, member_id=self.member_id, instance_id=self.instance_id, epoch=JOINS, is_classic=True
        )
        operation = self.group.history.begin(self.client.name, stay)
        request = requests.JoinGroup(
            group_id=self.group.name, member_id=self.member_id, group_instance_id=self.instance_id,
            client_id=self.client.name, client_host="sim", protocol_type="consumer", protocols=[("deal", b"")],
            session_timeout_ms=SESSION_TIMEOUT_MS, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        )  # fmt: skip
        joined = await self.client.ask(request, JOIN_TIMEOUT_MS)
        if isinstance(joined.error, MemberIdRequired):
            self.member_id = joined.member_id
            return
        if joined.error:
            raise joined.error
        self.member_id = joined.member_id
        is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        dealt = self._deal([each.member_id for each in joined.members]) if is_leader else {}
        sync = requests.SyncGroup(
            group_id=self.group.name, generation=joined.generation, member_id=self.member_id,
            group_instance_id=self.instance_id, protocol_type="consumer", protocol="deal", assignments=dealt,
        )  # fmt: skip
        answer = await self.client.ask(sync, JOIN_TIMEOUT_MS)
        if isinstance(answer.error, RebalanceInProgress):
            return  # the next step joins again
        if answer.error:
            raise answer.error
        self.epoch = joined.generation
        self.owned = [self.group.partitions[number] for number in json.loads(answer.assignment or b"[]")]
        told = MemberAnswer(self.member_id, self.epoch, tuple(self.owned), self.client.address or "")
        self.group.history.end(operation, OperationOutcome.OK, told)

    def _deal(self, members: Sequence[str]) -> Mapping[str, bytes]:
        numbers = range(len(self.group.partitions))
        return {
            member: json.dumps([number for number in numbers if number % len(members) == turn]).encode()
            for turn, member in enumerate(sorted(members))
        }

    async def _leave(self) -> None:
        leaving = requests.LeavingMember(member_id=self.member_id, group_instance_id=self.instance_id)
        self._begin_anew()
        await self.client.ask(requests.LeaveGroup(group_id=self.group.name, members=[leaving]))

    async def _leave_for_a_while(self) -> None:
        """Stop without a request: the protocol has none for it."""
        await self._restart_after_kill()

    async def _start_double(self) -> None:
        """Let a second process join. This member is fenced then, and fences the second one when it comes back."""
        second = SimClassicMember(self.client, self.group, self.instance_id)
        with suppress(KafkaError):
            await second._stay()


class SimConsumerMember(SimMember):
    """A member that uses the protocol of KIP-848."""

    def __init__(
        self, client: GroupClient, group: MemberGroup, instance_id: str | None = None, *, by_pattern: bool = False
    ) -> None:
        super().__init__(client, group, instance_id)
        self._topics = None if by_pattern else [group.partitions[0].topic]
        self._pattern = group.pattern if by_pattern else None
        self._begin_another_life()

    def _begin_anew(self) -> None:
        self.owned, self.epoch = [], JOINS

    def _begin_another_life(self) -> None:
        self._begin_anew()
        self.member_id = str(self.client.chance.getrandbits(64))

    async def _stay(self) -> None:
        answer = await self._heartbeat(self.epoch)
        if answer.assignment is not None:
            await self._give_up([each for each in self.owned if each not in answer.assignment])
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            given = [each for each in answer.assignment if each not in self.owned]
            self.owned = list(answer.assignment)
            for partition in given:
                if partition in self.group.numbers:
                    await self._read(partition)

    async def _give_up(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit for the partitions a last time, a little later. The member owns them until its next heartbeat."""
        for partition in partitions:
            if partition in self.group.numbers and self._may_leave:
                await self._wait(HEARTBEAT_S)
                await self._commit(partition)

    async def _leave(self) -> None:
        await self._leave_with(LEAVES)

    async def _leave_with(self, epoch: int) -> None:
        self._begin_anew()
        try:
            await self._heartbeat(epoch)
        finally:
            if self.instance_id:
                self._begin_another_life()

    async def _leave_for_a_while(self) -> None:
        await self._leave_with(LEAVES_FOR_A_WHILE)
        await asyncio.sleep(self.client.chance.uniform(0, 1.3) * SESSION_TIMEOUT_MS / 1000)

    async def _start_double(self) -> None:
        """Let a second process try to join. It must be refused, unless this member's session has ended."""
        second = SimConsumerMember(self.client, self.group, self.instance_id)
        with suppress(KafkaError):
            await second._stay()
            await second._leave_with(LEAVES_FOR_A_WHILE)

    async def _heartbeat(self, epoch: int) -> requests.ConsumerGroupHeartbeatResponse:
        """Send a heartbeat and return the response. Raises KafkaError.

        Each request has all fields: the coordinator or the member may have missed the last message.
        """
        stay = MemberRequest(group=self.group.name, member_id=self.member_id, instance_id=self.instance_id, epoch=epoch)
        operation = self.group.history.begin(self.client.name, stay)
        request = requests.ConsumerGroupHeartbeat(
            group_id=self.group.name, member_id=self.member_id, member_epoch=epoch,
            group_instance_id=self.instance_id, client_id=self.client.name, client_host="sim",
            rebalance_timeout_ms=STATIC_REBALANCE_TIMEOUT_MS if self.instance_id else REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=self._topics, subscribed_topic_regex=self._pattern,
            owned_partitions=list(self.owned),
        )  # fmt: skip
        answer: requests.ConsumerGroupHeartbeatResponse = await self.client.ask(request)
        if answer.error:
            raise answer.error
        told = MemberAnswer(
            self.member_id, answer.member_epoch, tuple(answer.assignment or ()), self.client.address or ""
        )
        self.group.history.end(operation, OperationOutcome.OK, told)
        return answer

    async def _read(self, partition: TopicPartition) -> None:
        """Fetch the committed offset as a member, so that only the current coordinator can answer."""
        action = ReadCommit(group=self.group.name, partition=partition, is_current=True)
        operation = self.group.history.begin(self.client.name, action)
        request = requests.OffsetFetch(
            group_id=self.group.name, partitions=[partition], member_id=self.member_id, member_epoch=self.epoch
        )
        try:
            answer = await self.client.ask(request)
            if error := answer.error or answer.offsets[0].error:
                raise error
        except KafkaError as error:
            self.group.history.end(operation, OperationOutcome.INFO, str(error))
            raise
        self.group.history.end(operation, OperationOutcome.OK, answer.offsets[0].offset)


class GuestMember(SimConsumerMember):
    """Joins, stays for a while, and then leaves, or just stops its heartbeats. Implements Worker."""

    async def run(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await asyncio.sleep(self.client.chance.uniform(0.2, 2))
            stays_until = asyncio.get_running_loop().time() + self.client.chance.expovariate(0.5)
            while not is_over.is_set() and asyncio.get_running_loop().time() < stays_until:
                await self._wait(HEARTBEAT_S)
                await self.step()
            if self.client.chance.random() < 0.8:
                await self._part()
            self._begin_anew()

    async def _part(self) -> None:
        try:
            await self._leave()
        except KafkaError:
            self.client.forget_coordinator()

    async def _give_up(self, partitions: Sequence[TopicPartition]) -> None:
        """Give up partitions without a commit."""

    async def _read(self, partition: TopicPartition) -> None:
        """Skip the fetch: the real clients of the group look after the committed offsets."""


def is_together(members: Sequence[SimMember], existing: Iterable[TopicPartition]) -> bool:
    """Return whether each of the `existing` partitions that the group reads belongs to exactly one of `members`."""
    owned = sorted(partition for member in members for partition in member.owned)
    return owned == sorted(members[0].group.all_of(existing))
