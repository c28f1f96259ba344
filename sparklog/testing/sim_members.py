"""Members of consumer groups in a simulation. They join, get partitions, commit offsets, leave, and come back.

    SimClassicMember     uses JoinGroup, SyncGroup and Heartbeat. The group's leader assigns the partitions
    SimConsumerMember    uses ConsumerGroupHeartbeat (KIP-848). For each newly assigned partition, it fetches the
                         committed offset with its member id and epoch. Only the current coordinator can answer such a
                         request, so the answer is the current offset
    Guest                a SimConsumerMember in a group of real clients, which are classic members. The group migrates
                         to the new protocol when the guest joins, and back when it leaves. A guest neither fetches
                         nor commits offsets

Each commit for a partition has a new number, greater than all numbers before it. Once all faults are over, every
partition must belong to exactly one member of each group.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import count

from sparklog.base.errors import (
    FencedMemberEpoch,
    IllegalGeneration,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
)
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import (
    group_apis,
    offset_commit,
)
from sparklog.group import requests
from sparklog.testing.sim_client import SimClient
from sparklog.testing.sim_history import Commit, History, OperationOutcome, ReadCommit

SESSION_TIMEOUT_MS = 3_000
REBALANCE_TIMEOUT_MS = 3_000
JOIN_TIMEOUT_MS = 8_000
HEARTBEAT_S = 0.4
REFUSED = (IllegalGeneration, StaleMemberEpoch, FencedMemberEpoch, UnknownMemberId, RebalanceInProgress)
"""Errors that refuse a commit: the member is unknown or behind, or a rebalance runs. Nothing is written."""
CHANCE_TO_LEAVE = 0.03
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": "400",
    "group.consumer.assignment.interval.ms": "200",
}


class MemberGroup:
    """The state that the members of a group share: its name, its partitions, and the next number to commit for each."""

    def __init__(self, name: str, history: History, partitions: Sequence[TopicPartition]) -> None:
        self.name = name
        self.history = history
        self.partitions = list(partitions)
        self.numbers = {partition: count(1) for partition in partitions}


class SimMember(ABC):
    """The base of both kinds of members. `owned` lists the partitions that the member has at the moment."""

    def __init__(self, client: SimClient, group: MemberGroup) -> None:
        self.owned: list[TopicPartition] = []
        self.client = client
        self.group = group
        self.member_id = ""
        self.epoch = -1
        """The generation of a classic member, or the member epoch of a KIP-848 member."""
        self._coordinator: str | None = None
        self._may_leave = True

    async def run(self, is_over: asyncio.Event) -> None:
        """Be a member that commits, and at times leaves, until `is_over` is set."""
        while not is_over.is_set():
            await self.step()
            await self._commit_one()

    async def settle(self) -> None:
        """Stay a member until cancelled, without commits and without leaving."""
        self._may_leave = False
        while True:
            await self.step()

    async def step(self) -> None:
        """Wait for about HEARTBEAT_S seconds, then leave the group, join it, or send a heartbeat."""
        await asyncio.sleep(HEARTBEAT_S * self.client.chance.uniform(0.5, 1.5))
        try:
            if self._may_leave and self.owned and self.client.chance.random() < CHANCE_TO_LEAVE:
                await self._leave()
            else:
                await self._stay()
        except (IllegalGeneration, FencedMemberEpoch, UnknownMemberId, StaleMemberEpoch):
            self._begin_anew()
        except KafkaError:
            self._coordinator = None
            await self.client.back_off()

    async def coordinator(self) -> str:
        """Return the address of the group's coordinator. Raises KafkaError."""
        if self._coordinator is None:
            self._coordinator = await self.client.coordinator(self.group.name)
        return self._coordinator

    @abstractmethod
    async def _stay(self) -> None:
        """Join the group, or send a heartbeat."""

    @abstractmethod
    async def _leave(self) -> None:
        """Leave the group, and forget the assignment and the epoch."""

    def _begin_anew(self) -> None:
        self.owned, self.epoch = [], -1

    async def _commit_one(self) -> None:
        if not self.owned or self.client.chance.random() < 0.3:
            return
        partition = self.client.chance.choice(self.owned)
        offset = next(self.group.numbers[partition])
        action = Commit(group=self.group.name, partition=partition, offset=offset)
        operation = self.group.history.begin(self.client.name, action)
        request = requests.OffsetCommit(
            group_id=self.group.name, generation_or_epoch=self.epoch, member_id=self.member_id,
            offsets=[requests.OffsetToCommit(partition=partition, offset=offset)],
        )  # fmt: skip
        try:
            answer = await self.client.ask(await self.coordinator(), offset_commit.API, request, 6_000)
            if error := answer.errors[partition]:
                raise error
        except KafkaError as error:
            is_refused = isinstance(error, REFUSED)
            self.group.history.end(
                operation, OperationOutcome.FAIL if is_refused else OperationOutcome.INFO, str(error)
            )
            self._coordinator = None
        else:
            self.group.history.end(operation, OperationOutcome.OK)


class SimClassicMember(SimMember):
    """A member that uses the classic protocol."""

    async def _stay(self) -> None:
        if self.epoch < 0:
            await self._join()
            return
        request = requests.Heartbeat(group_id=self.group.name, generation=self.epoch, member_id=self.member_id)
        answer = await self.client.ask(await self.coordinator(), group_apis.HEARTBEAT, request)
        if isinstance(answer.error, RebalanceInProgress):
            await self._join()
        elif answer.error:
            raise answer.error

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self.member_id = ""

    async def _join(self) -> None:
        self.owned, self.epoch = [], -1
        request = requests.JoinGroup(
            group_id=self.group.name, member_id=self.member_id, client_id=self.client.name, client_host="sim",
            protocol_type="consumer", protocols=[("deal", b"")],
            session_timeout_ms=SESSION_TIMEOUT_MS, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        )  # fmt: skip
        joined = await self.client.ask(await self.coordinator(), group_apis.JOIN_GROUP, request, JOIN_TIMEOUT_MS)
        if isinstance(joined.error, MemberIdRequired):
            self.member_id = joined.member_id
            return
        if joined.error:
            raise joined.error
        self.member_id = joined.member_id
        is_leader = joined.leader == joined.member_id
        dealt = self._deal([each.member_id for each in joined.members]) if is_leader else {}
        sync = requests.SyncGroup(
            group_id=self.group.name, generation=joined.generation, member_id=self.member_id,
            protocol_type="consumer", protocol="deal", assignments=dealt,
        )  # fmt: skip
        answer = await self.client.ask(await self.coordinator(), group_apis.SYNC_GROUP, sync, JOIN_TIMEOUT_MS)
        if isinstance(answer.error, RebalanceInProgress):
            return  # the next step joins again
        if answer.error:
            raise answer.error
        self.epoch = joined.generation
        self.owned = [self.group.partitions[number] for number in json.loads(answer.assignment or b"[]")]

    def _deal(self, members: Sequence[str]) -> Mapping[str, bytes]:
        numbers = range(len(self.group.partitions))
        return {
            member: json.dumps([number for number in numbers if number % len(members) == turn]).encode()
            for turn, member in enumerate(sorted(members))
        }

    async def _leave(self) -> None:
        leaving = requests.LeavingMember(member_id=self.member_id)
        self._begin_anew()
        request = requests.LeaveGroup(group_id=self.group.name, members=[leaving])
        await self.client.ask(await self.coordinator(), group_apis.LEAVE_GROUP, request)


class SimConsumerMember(SimMember):
    """A member that uses the protocol of KIP-848."""

    def __init__(self, client: SimClient, group: MemberGroup) -> None:
        super().__init__(client, group)
        self.member_id = str(client.chance.getrandbits(64))
        self.epoch = 0

    def _begin_anew(self) -> None:
        self.owned, self.epoch = [], 0

    async def _stay(self) -> None:
        answer = await self._heartbeat(self.epoch)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            given = [each for each in answer.assignment if each not in self.owned]
            self.owned = list(answer.assignment)
            for partition in given:
                await self._read(partition)

    async def _leave(self) -> None:
        self._begin_anew()
        await self._heartbeat(-1)

    async def _heartbeat(self, epoch: int) -> requests.ConsumerGroupHeartbeatResponse:
        """Send a heartbeat and return the response. Raises KafkaError.

        Each request has all fields: the coordinator or the member may have missed the last message.
        """
        request = requests.ConsumerGroupHeartbeat(
            group_id=self.group.name, member_id=self.member_id, member_epoch=epoch,
            client_id=self.client.name, client_host="sim", rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[self.group.partitions[0].topic], owned_partitions=list(self.owned),
        )  # fmt: skip
        answer: requests.ConsumerGroupHeartbeatResponse = await self.client.ask(
            await self.coordinator(), group_apis.CONSUMER_GROUP_HEARTBEAT, request
        )
        if answer.error:
            raise answer.error
        return answer

    async def _read(self, partition: TopicPartition) -> None:
        """Fetch the committed offset as a member, so that only the current coordinator can answer."""
        action = ReadCommit(group=self.group.name, partition=partition, is_current=True)
        operation = self.group.history.begin(self.client.name, action)
        request = requests.OffsetFetch(
            group_id=self.group.name, partitions=[partition], member_id=self.member_id, member_epoch=self.epoch
        )
        try:
            answer = await self.client.ask(await self.coordinator(), group_apis.OFFSET_FETCH, request)
            if error := answer.error or answer.offsets[0].error:
                raise error
        except KafkaError as error:
            self.group.history.end(operation, OperationOutcome.INFO, str(error))
            raise
        self.group.history.end(operation, OperationOutcome.OK, answer.offsets[0].offset)


class Guest(SimConsumerMember):
    """A member that joins, stays for a while, and then leaves, or just stops its heartbeats."""

    async def run(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await asyncio.sleep(self.client.chance.uniform(0.2, 2))
            stays_until = asyncio.get_running_loop().time() + self.client.chance.expovariate(0.5)
            while not is_over.is_set() and asyncio.get_running_loop().time() < stays_until:
                await self.step()
            if self.client.chance.random() < 0.8:
                await self._part()
            self._begin_anew()

    async def _part(self) -> None:
        try:
            await self._leave()
        except KafkaError:
            self._coordinator = None

    async def _read(self, partition: TopicPartition) -> None:
        """Skip the fetch: the real clients of the group look after the committed offsets."""


def is_together(members: Sequence[SimMember]) -> bool:
    """Return whether each of the group's partitions belongs to exactly one of `members`."""
    owned = sorted(partition for member in members for partition in member.owned)
    return owned == sorted(members[0].group.partitions)
