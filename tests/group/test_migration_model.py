"""Members of both protocols in one group, in any order of events: no partition is with two, all come to rest."""

from __future__ import annotations

import contextlib
from itertools import count
from uuid import UUID

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.base.config import BrokerConfig
from sparklog.base.consumer_protocol import (
    Assignment,
    Subscription,
    read_assignment,
    write_assignment,
    write_subscription,
)
from sparklog.base.errors import FencedMemberEpoch, KafkaError, MemberIdRequired, NotCoordinator, UnknownMemberId
from sparklog.base.ids import TopicPartition
from sparklog.group.consumer_heartbeat import SessionTimer
from sparklog.group.rebalance import JOIN, SESSION, SYNC, ClassicTimer
from sparklog.group.requests import (
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
    SyncGroupResponse,
)
from sparklog.group.shard import GroupShard
from sparklog.offsets_topic.records import decode, encode
from sparklog.runtime.state_machine import SetTimer
from support.groups.consumer_group import FakeTopics
from support.runs.seeds import examples

ALL = [TopicPartition("orders", number) for number in range(5)]
CONFIG = BrokerConfig(group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0)


class Coordinator:
    """A shard whose records are encoded, decoded and committed at once; the test fires the timers."""

    def __init__(self):
        self.topics = FakeTopics(orders=len(ALL))
        self.ids = count(1)
        self.log = []
        self.timers = set()
        self.waiting = {}
        self.shard = self.loaded()

    def loaded(self):
        shard = GroupShard(CONFIG, self.topics, lambda: UUID(int=next(self.ids)))
        for record in self.log:
            shard.replay(decode(*record))
        return shard

    def move(self):
        """Another broker coordinates the group from now on; waiting requests are refused."""
        self.shard = self.loaded()
        self.timers.clear()
        waiting, self.waiting = self.waiting, {}
        self.carry_out(self.shard.loaded(0))
        for answer in waiting.values():
            answer(SyncGroupResponse(error=NotCoordinator("moved")))

    def ask(self, decide, answer):
        """`answer` is called with the response, now or when its reply comes; raises KafkaError."""
        ticket = object()
        decision = decide(ticket)
        if decision.response is None:
            self.waiting[ticket] = answer
        self.carry_out(decision)
        if decision.response is not None:
            answer(decision.response)

    def carry_out(self, decision):
        for record in decision.records:
            self.log.append(encode(record))
            self.shard.replay(decode(*self.log[-1]))
        for timer in decision.timers:
            (self.timers.add if isinstance(timer, SetTimer) else self.timers.discard)(timer.key)
        for reply in decision.replies:
            if answer := self.waiting.pop(reply.ticket, None):
                answer(reply.response)
        if decision.then is not None:
            self.carry_out(self.shard.written(decision.then, None, 0))

    def fire(self, key):
        if key in self.timers:
            self.timers.discard(key)
            self.carry_out(self.shard.timer_fired(key, 0))


class ClassicClient:
    """Eager: it revokes all its partitions before it joins."""

    def __init__(self, coordinator, name):
        self.coordinator, self.name, self.is_dead = coordinator, name, False
        self.begin()

    def begin(self):
        self.member_id, self.generation, self.owned, self.is_busy, self.must_join = "", -1, set(), False, True

    def act(self):
        if self.is_busy:
            return
        try:
            self.join() if self.must_join else self.beat()
        except KafkaError as error:
            self.refused(error)

    def refused(self, error):
        self.is_busy, self.must_join, self.owned = False, True, set()
        if isinstance(error, UnknownMemberId):
            self.begin()

    def join(self):
        self.owned, self.is_busy = set(), True
        request = JoinGroup(
            group_id="g",
            member_id=self.member_id,
            client_id=self.name,
            client_host="/h",
            protocol_type="consumer",
            protocols=[("range", write_subscription(Subscription(topics=["orders"])))],
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
        )
        self.coordinator.ask(lambda ticket: self.coordinator.shard.join(request, ticket, 0), self.joined)

    def joined(self, response):
        if self.is_dead:
            return
        self.is_busy = False
        if response.error is not None:
            self.refused(response.error)
            if isinstance(response.error, MemberIdRequired):
                self.member_id = response.member_id
            return
        self.member_id, self.generation = response.member_id, response.generation
        members = sorted(member.member_id for member in response.members)
        shares = {m: Assignment(partitions=ALL[at :: len(members)]) for at, m in enumerate(members)}
        assignments = {member_id: write_assignment(share) for member_id, share in shares.items()}
        request = SyncGroup(group_id="g", generation=self.generation, member_id=self.member_id, assignments=assignments)
        self.is_busy = True
        try:
            self.coordinator.ask(lambda ticket: self.coordinator.shard.sync(request, ticket, 0), self.synced)
        except KafkaError as error:
            self.refused(error)

    def synced(self, response):
        self.is_busy = False
        if response.error is not None:
            self.refused(response.error)
            return
        self.owned, self.must_join = set(read_assignment(response.assignment).partitions), False

    def beat(self):
        request = Heartbeat(group_id="g", generation=self.generation, member_id=self.member_id)
        answers = []
        self.coordinator.ask(lambda _: self.coordinator.shard.heartbeat(request, 0), answers.append)
        if answers[0].error is not None:
            self.refused(answers[0].error)

    def leave(self):
        leaving = [LeavingMember(member_id=self.member_id)]
        request = LeaveGroup(group_id="g", members=leaving)
        with contextlib.suppress(UnknownMemberId):
            self.coordinator.ask(lambda _: self.coordinator.shard.leave(request, 0), lambda _: None)

    def is_settled(self):
        return not self.is_busy and not self.must_join

    def session(self, is_classic_group):
        return ClassicTimer(SESSION, "g", self.member_id) if is_classic_group else SessionTimer("g", self.member_id)


class NewClient:
    def __init__(self, coordinator, name):
        self.coordinator, self.member_id = coordinator, name
        self.epoch, self.owned = 0, set()

    def act(self):
        try:
            self.beat()
        except (FencedMemberEpoch, UnknownMemberId):
            self.epoch, self.owned = 0, set()

    def beat(self, **fields):
        request = ConsumerGroupHeartbeat(
            **{
                "group_id": "g",
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "client_id": self.member_id,
                "client_host": "/h",
                "rebalance_timeout_ms": 10_000,
                "subscribed_topic_names": ["orders"],
                "owned_partitions": sorted(self.owned),
                **fields,
            }
        )
        self.coordinator.ask(lambda _: self.coordinator.shard.consumer_heartbeat(request, 0), self.answered)

    def answered(self, response):
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = set(response.assignment)

    def leave(self):
        if self.epoch > 0:
            self.beat(member_epoch=-1)

    def is_settled(self):
        return self.epoch > 0

    def session(self, _):
        return SessionTimer("g", self.member_id)


class MixedGroup(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.coordinator = Coordinator()
        self.clients = []
        self.dead = []
        self.names = count()

    @rule(kind=st.sampled_from([ClassicClient, NewClient]))
    def come(self, kind):
        if len(self.clients) < 4:
            self.clients.append(kind(self.coordinator, f"{kind.__name__}-{next(self.names)}"))
            self.clients[-1].act()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def act(self, data):
        data.draw(st.sampled_from(self.clients)).act()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data):
        client = self.clients.pop(data.draw(st.integers(0, len(self.clients) - 1)))
        client.leave()
        self.dead.append(client)  # during a rebalance, no record tells the next coordinator that it has left

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def die(self, data):
        """Stop a client; its session expires. A waiting member has no session: its connection closes instead."""
        settled = [client for client in self.clients if client.is_settled()]
        if not settled:
            return
        client = settled[data.draw(st.integers(0, len(settled) - 1))]
        self.clients.remove(client)
        client.is_dead = True
        self.dead.append(client)
        self.end_sessions()

    @rule()
    def the_coordinator_moves(self):
        self.coordinator.move()

    def end_sessions(self):
        for client in self.dead:
            for is_classic_group in (True, False):
                self.coordinator.fire(client.session(is_classic_group))

    @rule()
    def end_of_join(self):
        """Only if all have rejoined: until its next heartbeat, a late member may read the partitions of others."""
        group = self.coordinator.shard.groups.get("g")
        if group is not None and group.group_type == "classic" and group.has_all_joined:
            self.coordinator.fire(ClassicTimer(JOIN, "g"))

    @invariant()
    def no_partition_is_read_by_two(self):
        owned = [partition for client in self.clients for partition in client.owned]
        assert len(owned) == len(set(owned))

    @invariant()
    def the_log_tells_of_the_same_kind_of_group(self):
        ours, read = self.coordinator.shard.groups.get("g"), self.coordinator.loaded().groups.get("g")
        assert type(ours) is type(read)
        if ours is not None and ours.group_type == "consumer":
            assert ours == read

    def teardown(self):
        for _ in range(30):
            for client in self.clients:
                client.act()
            self.end_of_join()
            self.coordinator.fire(ClassicTimer(SYNC, "g"))  # all that live have synced
            self.end_sessions()
        if self.clients:
            assert all(client.is_settled() for client in self.clients)
            members = len(self.coordinator.shard.groups["g"].members)
            assert members >= len(self.clients)
            if members == len(self.clients):
                assert sorted(p for client in self.clients for p in client.owned) == ALL


MixedGroup.TestCase.settings = settings(
    max_examples=examples(30),
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
TestMixedGroup = pytest.mark.slow(pytest.mark.soak(MixedGroup.TestCase))
