"""Whatever members and topics do, in any order: no partition is with two, all come to rest, the log is enough."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.base.errors import FencedMemberEpoch, UnknownMemberId
from support.groups.consumer_group import Client, FakeTopics, World, settle
from support.runs.seeds import examples

names = st.sampled_from("abcd")
topics = st.sampled_from(["orders", "payments", "ordinals"])


class AnyGroup(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.world = World(FakeTopics(orders=3))
        self.clients = {}

    @rule(name=names, wanted=st.sets(topics), regex=st.sampled_from(["", "ord.*", ".*"]))
    def join_or_subscribe_anew(self, name, wanted, regex):
        client = self.clients.get(name)
        described = {"subscribed_topic_names": sorted(wanted), "subscribed_topic_regex": regex}
        if client is None:
            client = self.clients[name] = Client(self.world, name, rebalance_timeout_ms=1_000)
            client.join(**described)
        else:
            self.beat_with(client, **described)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), silent=st.booleans())
    def beat(self, data, silent):
        self.beat_with(self.any(data), **({"owned_partitions": None} if silent else {}))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def lose_an_answer(self, data):
        client = self.any(data)
        with contextlib.suppress(FencedMemberEpoch):
            self.world.ask(client.request())
            client.says_all = True

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data):
        client = self.any(data)
        client.leave()
        del self.clients[client.member_id]

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def be_put_out(self, data):
        """The client learns of it with its next heartbeat; until then it reads on, as it may."""
        client = self.any(data)
        self.world.put_out(client.member_id)
        del self.clients[client.member_id]

    @rule(name=topics, count=st.integers(1, 6))
    def create_or_grow(self, name, count):
        old = self.world.topics.find(name)
        if old is None or len(old.partitions) < count:
            self.world.topics.put(name, count)

    @rule(name=topics)
    def delete_topic(self, name):
        if name in self.world.topics:
            self.world.topics.remove(name)
            for client in self.clients.values():
                client.owned = {partition for partition in client.owned if partition.topic != name}

    def any(self, data):
        return self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    def beat_with(self, client, **fields):
        try:
            client.beat(**fields)
        except (FencedMemberEpoch, UnknownMemberId):  # an answer was lost, and it owns what it no longer has
            described = self.world.group.members[client.member_id]
            client.join(
                subscribed_topic_names=sorted(described.subscribed_topic_names),
                subscribed_topic_regex=described.subscribed_topic_regex,
            )

    @invariant()
    def no_partition_is_read_by_two(self):
        owned = [partition for client in self.clients.values() for partition in client.owned]
        assert len(owned) == len(set(owned))

    @invariant()
    def what_a_client_reads_is_its_own_in_the_group(self):
        held = [p for m in self.world.group.members.values() for p in (*m.assigned, *m.revoking)]
        assert len(held) == len(set(held)) == len(self.world.group.owners)

    @invariant()
    def the_log_is_enough(self):
        assert self.world.reloaded() == self.world.group

    def teardown(self):
        for client in self.clients.values():
            self.beat_with(client)
        settle(*self.clients.values())
        if self.clients:
            assert self.world.group.state_name == "Stable"
            wanted = {
                (topic_id, number)
                for member in self.world.group.members.values()
                for topic_id, count in self.world.group.subscription(member).items()
                for number in range(count)
            }
            assert self.world.group.owners.keys() == wanted


AnyGroup.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)
TestAnyGroup = pytest.mark.slow(pytest.mark.soak(AnyGroup.TestCase))
