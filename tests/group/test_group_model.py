"""Classic groups under whatever clients, clocks and disks may do: what must hold all the same.

one generation     members get what the leader of their generation gave them, and who is told of an assignment or of
                   a commit is in the newest generation that anybody has been told of
commits survive    what has been acknowledged is there, after any failover, unless something newer is
one truth          a coordinator that reads the log finds what the one that wrote it has in memory
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparklog.base.errors import KafkaError, MemberIdRequired, NotEnoughReplicas
from sparklog.base.ids import TopicPartition
from sparklog.group.classic_group import ClassicGroup
from sparklog.group.requests import (
    NO_GENERATION,
    NO_MEMBER,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetToCommit,
    SyncGroup,
    SyncGroupResponse,
)
from sparklog.group.shard import GroupShard
from sparklog.group.states import EMPTY, PREPARING_REBALANCE, STABLE
from support.groups.coordinator import GroupWorld
from support.runs.seeds import examples

GROUP = "g"
clients = st.sampled_from(["a", "b", "c", "static-d", "static-e"])
partitions = st.sampled_from([TopicPartition("t", 0), TopicPartition("t", 1)])


@dataclass
class Client:
    name: str
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    led: tuple[str, ...] = ()
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def instance_id(self) -> str | None:
        return self.name if self.name.startswith("static") else None

    def forget(self) -> None:
        self.member_id, self.generation, self.led = NO_MEMBER, NO_GENERATION, ()


class GroupModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = self._run(self._make())
        self.clients = {name: Client(name) for name in ("a", "b", "c", "static-d", "static-e")}
        self.newest_generation = NO_GENERATION
        self.acknowledged: dict[TopicPartition, int] = {}
        self.attempted: dict[TopicPartition, set[int]] = {}
        self.next_offset = 0
        self.held_steps = self.broken_steps = 0
        self.has_been_broken = False
        """Since the coordinator moved: the group may have ended in its memory, but not in the log."""

    async def _make(self) -> GroupWorld:
        return GroupWorld(group_max_size=4)

    def teardown(self) -> None:
        for client in self.clients.values():
            for task in client.tasks:
                task.cancel()
        self.world.log.release()
        self._run(self.world.settle())
        self.loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def _start(self, client: Client, work: Coroutine[Any, Any, None]) -> None:
        async def start() -> None:
            client.tasks.append(self.loop.create_task(work))
            await self.world.settle()

        self._run(start())

    # What clients do

    @rule(name=clients, session_s=st.sampled_from([6, 30]), protocols=st.sampled_from([("x",), ("x", "y"), ("y", "x")]))
    def join(self, name: str, session_s: int, protocols: tuple[str, ...]) -> None:
        client = self.clients[name]
        self._start(client, self._join(client, session_s * 1000, protocols))

    async def _join(self, client: Client, session_ms: int, protocols: tuple[str, ...]) -> None:
        request = JoinGroup(
            group_id=GROUP,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            client_id=client.name,
            client_host="/",
            protocol_type="p",
            protocols=[(protocol, b"") for protocol in protocols],
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=20_000,
        )
        try:
            response: JoinGroupResponse = await self.world.host.ask(
                lambda ticket, now: self.world.host.shard.join(request, ticket, now)
            )
        except KafkaError:
            client.forget()
            return
        if isinstance(response.error, MemberIdRequired):
            client.member_id = response.member_id
        elif response.error is not None:
            client.forget()
        else:
            assert response.generation >= self.newest_generation
            self.newest_generation = response.generation
            client.member_id, client.generation = response.member_id, response.generation
            client.led = tuple(member.member_id for member in response.members)
            assert not client.led or client.member_id in client.led

    @rule(names=st.sets(clients, min_size=1), seconds=st.sampled_from([3, 7]))
    def join_together(self, names: set[str], seconds: int) -> None:
        for name in sorted(names) * 2:
            self.join(name=name, session_s=30, protocols=("x",))
        self._run(self.world.advance(seconds * 1000))

    @rule()
    def sync_together(self) -> None:
        for name in self.clients:
            self.sync(name=name)

    @rule(name=clients)
    def sync(self, name: str) -> None:
        client = self.clients[name]
        self._start(client, self._sync(client, client.generation, client.member_id, client.led))

    async def _sync(self, client: Client, generation: int, member_id: str, led: tuple[str, ...]) -> None:
        assignments = {each: f"{generation} {each}".encode() for each in led}
        request = SyncGroup(group_id=GROUP, generation=generation, member_id=member_id, assignments=assignments)
        try:
            response: SyncGroupResponse = await self.world.host.ask(
                lambda ticket, now: self.world.host.shard.sync(request, ticket, now)
            )
        except KafkaError:
            return
        if response.error is None:
            assert generation == self.newest_generation
            assert response.assignment.split()[:1] in ([], [str(generation).encode()])

    @rule(name=clients)
    def heartbeat(self, name: str) -> None:
        client = self.clients[name]
        request = Heartbeat(group_id=GROUP, generation=client.generation, member_id=client.member_id)
        self._start(client, self._ignore(lambda _, now: self.world.host.shard.heartbeat(request, now)))

    @rule(name=clients)
    def leave(self, name: str) -> None:
        client = self.clients[name]
        leaving = LeavingMember(member_id=client.member_id, group_instance_id=client.instance_id)
        request = LeaveGroup(group_id=GROUP, members=[leaving])
        self._start(client, self._ignore(lambda _, now: self.world.host.shard.leave(request, now)))

    @rule(name=clients)
    def crash(self, name: str) -> None:
        client = self.clients[name]
        for task in client.tasks:
            task.cancel()
        client.tasks.clear()
        client.forget()
        self._run(self.world.settle())

    async def _ignore(self, decide: Any) -> None:
        try:
            await self.world.host.ask(decide)
        except KafkaError:
            return

    @rule(name=clients, partition=partitions)
    def commit(self, name: str, partition: TopicPartition) -> None:
        client = self.clients[name]
        self.next_offset += 1
        self.attempted.setdefault(partition, set()).add(self.next_offset)
        self._start(client, self._commit(client, partition, self.next_offset))

    async def _commit(self, client: Client, partition: TopicPartition, offset: int) -> None:
        generation, newest = client.generation, self.newest_generation
        request = OffsetCommit(
            group_id=GROUP,
            generation_or_epoch=generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id if client.member_id else None,
            offsets=[OffsetToCommit(partition=partition, offset=offset)],
        )
        try:
            response: OffsetCommitResponse = await self.world.host.ask(
                lambda _, now: self.world.host.shard.commit(request, now)
            )
        except KafkaError:
            return
        if response.errors[partition] is None:
            assert generation in (newest, NO_GENERATION)
            self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, 0))

    # What happens to the coordinator

    @rule(seconds=st.sampled_from([1, 3, 7, 20, 60]))
    def advance(self, seconds: int) -> None:
        self._run(self.world.advance(seconds * 1000))

    @rule()
    def move(self) -> None:
        async def move() -> None:
            self.world.move()
            self.has_been_broken = self.world.log.refuse_with is not None
            group = _group(self.world.host.shard)
            # A generation without an assignment is not in the log: the next coordinator may use its number again.
            self.newest_generation = NO_GENERATION if group is None else group.generation
            await self.world.settle()

        self._run(move())

    @rule(steps=st.integers(1, 3))
    def hold_commits(self, steps: int) -> None:
        self.world.log.hold()
        self.held_steps = steps

    @rule(steps=st.integers(1, 3))
    def break_disk(self, steps: int) -> None:
        self.world.log.refuse_with = NotEnoughReplicas("broken")
        self.has_been_broken = True
        self.broken_steps = steps

    @invariant()
    def troubles_end(self) -> None:
        self.held_steps, self.broken_steps = self.held_steps - 1, self.broken_steps - 1
        if self.held_steps < 0:
            self.world.log.release()
            self._run(self.world.settle())
        if self.broken_steps < 0:
            self.world.log.refuse_with = None

    # What holds

    @invariant()
    def clients_found_nothing_wrong(self) -> None:
        for client in self.clients.values():
            for task in client.tasks:
                if task.done() and not task.cancelled():
                    task.result()

    @invariant()
    def offsets_survive(self) -> None:
        found = self.world.load().offsets.of(GROUP)
        for partition, offset in self.acknowledged.items():
            assert found[partition].offset >= offset
            assert found[partition].offset in self.attempted[partition]

    @invariant()
    def the_log_has_what_memory_has(self) -> None:
        shard, loaded = self.world.host.shard, self.world.load()
        assert shard.offsets.of(GROUP) == loaded.offsets.of(GROUP)
        group = _group(shard)
        if group is not None and group.state in (EMPTY, STABLE) and not self.has_been_broken:
            kept = _group(loaded)
            assert kept is not None
            assert (kept.generation, kept.state) == (group.generation, group.state)
            assert {each.member_id: each.assignment for each in kept.members.values()} == {
                each.member_id: each.assignment for each in group.members.values()
            }

    @invariant()
    def a_group_is_whole(self) -> None:
        group = _group(self.world.host.shard)
        if group is None:
            return
        assert (group.leader in group.members) if group.members else group.leader is None
        assert set(group.static_members.values()) <= set(group.members)
        assert group.members or group.state in (EMPTY, PREPARING_REBALANCE)
        assert not group.members or group.state is not EMPTY
        joined = [member for member in group.members.values() if not member.is_static]
        # As in Kafka, static members that have not come back do not count against those that come.
        assert len(joined) <= 4 or group.state is PREPARING_REBALANCE


def _group(shard: GroupShard) -> ClassicGroup | None:
    group = shard.groups.get(GROUP)
    return group if isinstance(group, ClassicGroup) else None


TestGroups = pytest.mark.slow(pytest.mark.soak(GroupModel.TestCase))
TestGroups.settings = settings(max_examples=examples(25), stateful_step_count=25, deadline=None)
