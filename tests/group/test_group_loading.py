"""The state that a coordinator loads from the records of a classic group."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from sparklog.base.consumer_protocol import Subscription, write_subscription
from sparklog.group.classic_group import ClassicGroup
from sparklog.group.requests import NO_MEMBER, JoinGroup, JoinGroupResponse
from sparklog.group.shard import GroupShard
from sparklog.offsets_topic.records import CoordinatorRecord, GroupKey, GroupValue, MemberMetadata
from sparklog.runtime.state_machine import Decision
from support.groups.coordinator import GroupWorld

SUBSCRIPTION = write_subscription(Subscription(topics=["orders"]))


def generation(number: int, *, topic: str, protocol: str = "range", session_ms: int = 10_000) -> GroupValue:
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=session_ms,
        subscription=write_subscription(Subscription(topics=[topic])),
        assignment=b"",
    )
    return GroupValue(protocol_type="consumer", generation=number, protocol=protocol, leader="m", members=[member])


def test_a_loaded_member_has_its_last_description() -> None:
    group = ClassicGroup(group_id="g")

    group.restore(generation(1, topic="orders"))
    group.restore(generation(2, topic="payments", protocol="roundrobin", session_ms=30_000))

    assert group.is_subscribed_to("payments")
    assert not group.is_subscribed_to("orders")
    assert group.choose_protocol() == "roundrobin"
    assert group.members["m"].session_timeout_ms == 30_000


async def loading(monkeypatch: pytest.MonkeyPatch, value: GroupValue, group_max_size: int = 9) -> GroupWorld:
    """A coordinator that has read the group's record, and has not begun its timers."""
    world = GroupWorld(group_max_size=group_max_size)
    world.log.append([CoordinatorRecord(GroupKey(group_id="g"), value)], now_ms=0)
    with monkeypatch.context() as patched:
        patched.setattr(GroupShard, "loaded", lambda *_: Decision())
        world.move()
    return world


async def begin_join(world: GroupWorld, member_id: str) -> asyncio.Task[JoinGroupResponse]:
    request = JoinGroup(
        group_id="g", member_id=member_id, client_id="c", client_host="/h", protocol_type="consumer",
        protocols=[("range", SUBSCRIPTION), ("sticky", b"")], session_timeout_ms=10_000, rebalance_timeout_ms=60_000,
        requires_known_member_id=False,
    )  # fmt: skip
    shard = world.host.shard
    joining = asyncio.ensure_future(world.host.ask(lambda ticket, now_ms: shard.join(request, ticket, now_ms)))
    await world.settle()
    return joining


@pytest.mark.parametrize(("most", "leader"), [(1, "m"), (9, None)], ids=["too large", "just a classic one"])
async def test_a_group_may_be_rebalanced_before_its_timers_begin(
    monkeypatch: pytest.MonkeyPatch, most: int, leader: str | None
) -> None:
    """With many groups, timers begin in slices, and members are served in between."""
    value = generation(1, topic="orders")
    silent = replace(value.members[0], member_id="silent", session_timeout_ms=300_000)
    world = await loading(monkeypatch, replace(value, leader=leader, members=[*value.members, silent]), most)
    joining = await begin_join(world, "m")

    world.host.decide(world.host.shard.loaded)
    await world.advance(60_000)

    assert (await joining).generation == 2
    assert list(world.host.shard.groups["g"].members) == ["m"]


async def test_a_member_that_joins_before_the_timers_begin_waits_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It sends no heartbeats while it waits, which may be longer than its session."""
    value = generation(1, topic="orders", session_ms=300_000)
    world = await loading(monkeypatch, value)
    joining = await begin_join(world, NO_MEMBER)

    world.host.decide(world.host.shard.loaded)
    await world.advance(60_000)

    assert (await joining).generation == 2
