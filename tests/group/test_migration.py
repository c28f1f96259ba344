"""Groups that change their protocol while their members go on, in both directions; one shard with a simulated clock."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from sparklog.base.consumer_protocol import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from sparklog.base.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    NotEnoughReplicas,
    RebalanceInProgress,
    UnknownMemberId,
)
from sparklog.base.ids import TopicPartition
from sparklog.group.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetToCommit,
    SyncGroup,
)
from support.groups.coordinator import GroupWorld

TOPIC = "orders"  # has 8 partitions
ALL = {TopicPartition(TOPIC, number) for number in range(8)}
SESSION_MS, REBALANCE_MS = 10_000, 30_000


class Group:
    """The group `g`, with its members' requests."""

    def __init__(self, **config):
        self.world = GroupWorld(
            group_initial_rebalance_delay_ms=0, **{"group_consumer_assignment_interval_ms": 0, **config}
        )

    async def ask(self, decide):
        return await self.world.host.ask(lambda ticket, now: decide(self.world.host.shard, ticket, now))

    @property
    def now(self):
        return self.world.host.shard.groups["g"]

    def target_of(self, member_id):
        described = self.world.host.shard.consumers.describe(ConsumerGroupDescribe(group_ids=["g"])).groups[0]
        return next(set(each.assignment) for each in described.members if each.member_id == member_id)


class Classic:
    """A member of the classic protocol with a cooperative range assignor; it reports its partitions and keeps them."""

    def __init__(self, group, name, *, user_data=None, protocol="range", static=None):
        self.group, self.name = group, name
        self.member_id, self.generation, self.owned = "", -1, set()
        self.user_data, self.protocol, self.static = user_data, protocol, static

    def join_request(self):
        subscription = Subscription(topics=[TOPIC], owned=sorted(self.owned), generation=self.generation)
        return JoinGroup(
            group_id="g",
            member_id=self.member_id,
            group_instance_id=self.static,
            client_id=self.name,
            client_host="/h",
            protocol_type="consumer",
            protocols=[(self.protocol, write_subscription(subscription))],
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            requires_known_member_id=False,
        )

    async def join_only(self):
        joined = await self.group.ask(lambda shard, ticket, now: shard.join(self.join_request(), ticket, now))
        self.member_id = joined.member_id
        return joined

    async def join(self):
        joined = await self.join_only()
        if joined.error is not None:
            return joined
        self.generation = joined.generation
        assignments = {}
        if joined.leader == self.member_id:
            assignments = self.assign([member.member_id for member in joined.members])
            assert all(read_subscription(member.metadata).topics for member in joined.members)
        sync = SyncGroup(
            group_id="g",
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self.static,
            assignments=assignments,
        )
        synced = await self.group.ask(lambda shard, ticket, now: shard.sync(sync, ticket, now))
        self.owned = set(read_assignment(synced.assignment).partitions)
        return joined

    def assign(self, member_ids):
        shares = {
            member_id: sorted(ALL)[place :: len(member_ids)] for place, member_id in enumerate(sorted(member_ids))
        }
        return {m: write_assignment(Assignment(partitions=p, user_data=self.user_data)) for m, p in shares.items()}

    async def beat(self):
        request = Heartbeat(
            group_id="g", generation=self.generation, member_id=self.member_id, group_instance_id=self.static
        )
        return (await self.group.ask(lambda shard, _, now: shard.heartbeat(request, now))).error

    async def beat_and_follow(self):
        if isinstance(await self.beat(), RebalanceInProgress):
            await self.join()

    async def leave(self):
        request = LeaveGroup(group_id="g", members=[LeavingMember(member_id=self.member_id)])
        return await self.group.ask(lambda shard, _, now: shard.leave(request, now))


class New:
    """A member of the new protocol."""

    def __init__(self, group, name, *, static=None):
        self.group, self.name, self.static = group, name, static
        self.epoch, self.owned = 0, set()

    async def beat(self, **fields):
        request = ConsumerGroupHeartbeat(
            group_id="g",
            member_id=self.name,
            member_epoch=self.epoch,
            group_instance_id=self.static,
            client_id=self.name,
            client_host="/h",
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[TOPIC],
            owned_partitions=sorted(self.owned),
        )
        request = structs.replace(request, **fields)
        response = await self.group.ask(lambda shard, _, now: shard.consumer_heartbeat(request, now))
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = set(response.assignment)
        return response

    beat_and_follow = beat

    async def leave(self):
        return await self.beat(member_epoch=-1)


async def settle(*members):
    for _ in range(8):
        for member in members:
            await member.beat_and_follow()
    owned = [partition for member in members for partition in member.owned]
    assert sorted(owned) == sorted(ALL), {member.name: member.owned for member in members}


@pytest.fixture
async def group():
    return Group()


async def join_first(group, member):
    group.world.topics.find(TOPIC)
    joining = asyncio.create_task(member.join())
    await group.world.advance(1)
    await joining


async def two_classic(group, **static):
    a, b = (Classic(group, name, static=static.get(name)) for name in "ab")
    await join_first(group, a)
    second = asyncio.create_task(b.join())
    await group.world.advance(1)
    assert isinstance(await a.beat(), RebalanceInProgress)
    await asyncio.gather(a.join(), second)
    assert group.now.state_name == "Stable"
    return a, b


async def test_a_classic_group_is_upgraded_by_a_consumer_without_a_stop(group):
    a, b = await two_classic(group)
    had = {*a.owned, *b.owned}
    assert had == ALL
    c = New(group, "c")
    await c.beat()
    assert (group.now.group_type, c.owned) == ("consumer", set())
    assert group.now.epoch == a.generation + 1
    assert group.target_of(a.member_id) == a.owned
    await settle(a, b, c)
    assert sorted(len(member.owned) for member in (a, b, c)) == [2, 3, 3]
    assert group.now.state_name == "Stable"
    assert await a.beat() is None


async def test_the_group_is_classic_again_when_the_last_new_member_leaves(group):
    a, b = await two_classic(group)
    c = New(group, "c")
    await settle(a, b, c)
    await c.leave()
    await group.world.settle()
    assert (group.now.group_type, group.now.state_name) == ("classic", "PreparingRebalance")
    assert isinstance(await a.beat(), RebalanceInProgress)
    await asyncio.gather(a.join(), b.join())
    assert group.now.state_name == "Stable"
    assert {*a.owned, *b.owned} == ALL
    assert await a.beat() is None


async def test_all_members_can_be_migrated_one_by_one(group):
    a, b = await two_classic(group)
    c, d = New(group, "c"), New(group, "d")
    await settle(a, b, c)
    await a.leave()
    await settle(b, c, d)
    await b.leave()
    await settle(c, d)
    assert (group.now.group_type, group.now.state_name) == ("consumer", "Stable")


async def test_another_coordinator_finds_the_migrated_group_in_the_log(group):
    a, b = await two_classic(group)
    c = New(group, "c")
    await settle(a, b, c)
    before = group.now
    group.world.move()
    assert group.now == before
    assert await a.beat() is None
    await c.leave()
    assert group.world.load().groups["g"].group_type == "classic"


async def test_another_coordinator_shares_out_what_the_last_new_member_had(group):
    a, b = await two_classic(group)
    c = New(group, "c")
    await settle(a, b, c)
    assert c.owned
    await c.leave()
    group.world.move()
    assert isinstance(await a.beat(), RebalanceInProgress)
    await asyncio.gather(a.join(), b.join())
    assert {*a.owned, *b.owned} == ALL


async def test_members_that_wait_for_a_rebalance_must_join_again(group):
    a, b = await two_classic(group)
    late = Classic(group, "late")
    waiting = asyncio.create_task(late.join())
    await group.world.settle()
    c = New(group, "c")
    await c.beat()
    assert isinstance((await waiting).error, RebalanceInProgress)
    await late.join()
    await settle(a, b, c, late)


async def test_a_silent_classic_member_is_removed(group):
    a, b = await two_classic(group)
    c = New(group, "c")
    await settle(a, b, c)
    for _ in range(3):
        await group.world.advance(SESSION_MS // 2)
        await a.beat_and_follow()
        await c.beat()
    with pytest.raises(UnknownMemberId):
        await b.beat()
    await settle(a, c)


async def test_a_classic_member_that_does_not_join_again_is_removed(group):
    a, b = await two_classic(group)
    c = New(group, "c")
    await c.beat()
    for _ in range(8):
        await group.world.advance(SESSION_MS // 2)
        await b.beat_and_follow()
        await c.beat()
        if a.member_id in group.now.members:
            assert isinstance(await a.beat(), RebalanceInProgress)
    with pytest.raises(UnknownMemberId):
        await a.beat()
    await settle(b, c)


async def test_classic_members_commit_with_their_generation(group):
    a, b = await two_classic(group)
    c = New(group, "c")
    await settle(a, b, c)

    async def commit(generation):
        request = OffsetCommit(
            group_id="g",
            member_id=a.member_id,
            generation_or_epoch=generation,
            offsets=[OffsetToCommit(partition=min(a.owned), offset=5)],
        )
        return await group.ask(lambda shard, _, now: shard.commit(request, now))

    assert set((await commit(a.generation)).errors.values()) == {None}
    with pytest.raises(IllegalGeneration):
        await commit(a.generation - 1)


async def test_a_classic_member_needs_a_protocol_in_common(group):
    a, b = await two_classic(group)
    c = New(group, "c")
    await settle(a, b, c)
    with pytest.raises(InconsistentGroupProtocol, match=r"no protocol in common with 'consumer' sticky$"):
        await Classic(group, "x", protocol="sticky").join()


@pytest.mark.parametrize(
    ("policy", "up", "down"), [("upgrade", True, False), ("downgrade", False, True), ("disabled", False, False)]
)
async def test_the_policy_allows_upgrades_and_downgrades(policy, up, down):
    group = Group(group_consumer_migration_policy=policy)
    a, b = await two_classic(group)
    c = New(group, "c")
    if not up:
        with pytest.raises(GroupIdNotFound):
            await c.beat()
        assert group.now.group_type == "classic"
        assert await a.beat() is None
        return
    await settle(a, b, c)
    await c.leave()
    assert (group.now.group_type == "classic") == down
    await settle(a, b)


async def test_a_group_that_a_custom_assignor_has_left_its_mark_on_stays_classic(group):
    a = Classic(group, "a", user_data=b"mine", protocol="mine")
    await join_first(group, a)
    with pytest.raises(GroupIdNotFound):
        await New(group, "c").beat()
    assert await a.beat() is None


async def test_what_librdkafka_adds_to_an_assignment_keeps_no_group_back(group):
    a = Classic(group, "a", user_data=b"owned", protocol="cooperative-sticky")
    await join_first(group, a)
    c = New(group, "c")
    await c.beat()
    await settle(a, c)
    assert group.now.group_type == "consumer"
    assert a.owned
    assert c.owned


async def test_an_empty_group_is_replaced_by_one_of_the_other_protocol(group):
    group.world.topics.find(TOPIC)
    c = New(group, "c")
    await c.beat()
    await c.leave()
    a = Classic(group, "a")
    await join_first(group, a)
    assert (group.now.group_type, a.owned) == ("classic", ALL)
    await a.leave()
    await group.world.advance(1)
    d = New(group, "d")
    await d.beat()
    assert (group.now.group_type, d.owned) == ("consumer", ALL)
    assert group.world.load().groups["g"] == group.now


async def test_an_empty_group_stays_what_it_is_where_its_successor_cannot_be_written(group):
    new = New(group, "n")
    await new.beat()
    await new.leave()
    epoch = group.now.epoch
    group.world.log.refuse_with = NotEnoughReplicas("for a while")

    with pytest.raises(CoordinatorNotAvailable):
        await Classic(group, "a").join_only()

    assert (group.now.group_type, group.now.epoch) == ("consumer", epoch)


async def test_a_group_that_could_not_go_over_still_loses_silent_members(group):
    await two_classic(group)
    group.world.log.refuse_with = NotEnoughReplicas("for a while")
    with pytest.raises(CoordinatorNotAvailable):
        await New(group, "n").beat()
    group.world.log.refuse_with = None

    await group.world.advance(SESSION_MS)
    await group.world.advance(REBALANCE_MS)

    assert group.now.state_name == "Empty"


async def test_a_member_of_the_new_protocol_does_not_leave_as_those_of_the_classic_one_do(group):
    new = New(group, "n", static="one")
    await new.beat()
    by_id, by_instance = LeavingMember(member_id="n"), LeavingMember(member_id="", group_instance_id="one")
    request = LeaveGroup(group_id="g", members=[by_id, by_instance])

    response = await group.ask(lambda shard, _, now: shard.leave(request, now))

    assert [type(each.error) for each in response.members] == [UnknownMemberId, UnknownMemberId]
    assert not group.now.is_empty


async def test_members_that_left_need_not_join_again(group):
    a, _ = await two_classic(group)
    new = New(group, "n")
    await new.beat()
    assert isinstance(await a.beat(), RebalanceInProgress)
    assert group.now.rejoining == {a.member_id}

    await a.leave()

    assert not group.now.rejoining


async def test_a_classic_member_has_a_session_timeout_that_the_broker_allows(group):
    await New(group, "n").beat()
    request = structs.replace(Classic(group, "a").join_request(), session_timeout_ms=1)

    with pytest.raises(InvalidSessionTimeout):
        await group.ask(lambda shard, ticket, now: shard.join(request, ticket, now))


async def test_a_late_sync_must_join_again_or_the_member_is_removed(group):
    a, _ = await two_classic(group)
    await New(group, "n").beat()
    a.owned = set()
    a.generation = (await a.join_only()).generation
    await New(group, "another").beat()
    sync = SyncGroup(group_id="g", generation=a.generation, member_id=a.member_id, assignments={})

    response = await group.ask(lambda shard, ticket, now: shard.sync(sync, ticket, now))

    assert isinstance(response.error, RebalanceInProgress)
    for _ in range(REBALANCE_MS // 5_000):
        assert isinstance(await a.beat(), RebalanceInProgress)
        await group.world.advance(5_000)
    with pytest.raises(UnknownMemberId):
        await a.beat()


async def test_a_static_member_changes_its_protocol_and_keeps_its_partitions(group):
    a, b = await two_classic(group, a="i-a", b="i-b")
    had = set(b.owned)
    new_b = New(group, "new-b", static="i-b")  # b has stopped, as static members do: without a word
    await new_b.beat()
    assert new_b.owned == had
    await settle(a, new_b)
    assert new_b.owned == had
    await new_b.beat(member_epoch=-2)
    back = Classic(group, "back", static="i-b")
    assert (await back.join_only()).error is None
    await group.world.settle()
    assert group.now.group_type == "classic"
    await asyncio.gather(a.join(), back.join())
    assert {*a.owned, *back.owned} == ALL
    assert len(group.now.members) == 2


async def test_only_the_newest_process_of_a_static_member_continues(group):
    _, b = await two_classic(group, a="i-a", b="i-b")
    await New(group, "new-b", static="i-b").beat()
    with pytest.raises(FencedInstanceId):
        await b.beat()


async def test_a_classic_member_joins_once_the_assignment_that_was_put_off_is_made():
    group = Group(group_consumer_assignment_interval_ms=1_000)
    a = Classic(group, "a")
    await join_first(group, a)
    c = New(group, "c")
    await c.beat()
    await settle(a, c)
    b = Classic(group, "b")
    await b.join()
    assert (b.owned, group.now.state_name) == (set(), "Assigning")
    assert await b.beat() is None
    await group.world.advance(1_000)
    assert isinstance(await b.beat(), RebalanceInProgress)
    await settle(a, b, c)
