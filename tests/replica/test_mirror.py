"""Followers take over what a cleaner has replaced in their leader's log, so that all replicas are the same files."""

from __future__ import annotations

from collections.abc import Callable

from copying import World, run, until
from swap_values import clean, even

Keep = Callable[[int], bool]


async def three(world: World, records: int = 30) -> None:
    for broker_id in (1, 2, 3):
        world.start(broker_id)
    await world.lead(1, (1, 2, 3))
    write(world, 1, records)
    await world.settle()


def write(world: World, leader: int, records: int) -> None:
    for number in range(records):
        world.brokers[leader].append(1 + number % 3, size=number)


def compact(world: World, leader: int, first: int, count: int, keep: Keep = even) -> None:
    broker = world.brokers[leader]
    clean(broker.fs, broker.log(), first, count, keep)


async def until_equal(world: World, *, limit_s: float = 60) -> None:
    def are_equal() -> bool:
        found = [each.files() for each in world.brokers.values()]
        return all(files == found[0] for files in found)

    await world.settle()
    await until(are_equal, limit_s)
    for broker in world.brokers.values():
        assert not [name for name in broker.fs.list(broker.log().folder) if name.endswith((".cleaned", ".swap"))]


def test_one_segment_of_the_leaders_takes_the_place_of_several_of_the_followers() -> None:
    async def test(world: World) -> None:
        await three(world)
        before = len(world.brokers[1].files())
        compact(world, 1, 0, 3)
        await until_equal(world)
        assert len(world.brokers[2].files()) == before - 2

    run(test)
