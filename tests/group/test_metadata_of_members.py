"""The metadata of a classic group's members is kept while they are members, within limits."""

from __future__ import annotations

import asyncio

import pytest

from sparklog.base.errors import GroupMaxSizeReached
from sparklog.group.classic_group import ClassicGroup
from sparklog.group.requests import JoinGroup, JoinGroupResponse
from support.groups.coordinator import GroupWorld

MEGABYTE = 1_000_000


@pytest.fixture
async def world() -> GroupWorld:
    return GroupWorld(group_initial_rebalance_delay_ms=60_000)


def join(world: GroupWorld, name: str, size: int, member_id: str = "") -> asyncio.Task[JoinGroupResponse]:
    request = JoinGroup(
        group_id="g", member_id=member_id, client_id=name, client_host="/", protocol_type="p",
        protocols=[("x", bytes(size // 2)), ("y", bytes(size // 2))], session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000, requires_known_member_id=False,
    )  # fmt: skip
    return asyncio.ensure_future(world.host.ask(lambda ticket, now: world.host.shard.join(request, ticket, now)))


async def test_the_metadata_of_members_is_limited(world: GroupWorld) -> None:
    tasks = [join(world, f"m{number}", MEGABYTE) for number in range(20)]
    await world.settle()
    refused = [task for task in tasks if task.done()]
    group = world.host.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert (len(group.members), len(refused)) == (16, 4)
    for task in refused:
        with pytest.raises(GroupMaxSizeReached, match="bytes of metadata"):
            await task

    one, other, *_ = group.members
    with pytest.raises(GroupMaxSizeReached):
        await join(world, "m0", 2 * MEGABYTE, one)
    assert one in group.members
    tasks.append(join(world, "m0", MEGABYTE // 2, one))
    tasks.append(join(world, "m1", MEGABYTE + MEGABYTE // 2, other))
    await world.settle()
    assert not tasks[-1].done()
    group.remove(other)
    tasks.append(join(world, "again", MEGABYTE))
    await world.settle()
    assert len(group.members) == 16
    for task in tasks:
        task.cancel()
