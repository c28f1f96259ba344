"""Followers take over segments that a cleaner has replaced in their leader's log: all replicas have the same files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sparklog.log.log import Log
from sparklog.replica.messages import DescribeFiles, ReadReplicaFile
from support.logs.builders import batch
from support.logs.replacements import clean, even
from support.replicas.replicating_brokers import World, run, until

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


def test_new_records_are_copied_during_a_segment_sync() -> None:
    async def test(world: World) -> None:
        await three(world)
        compact(world, 1, 0, 3)
        write(world, 1, 30)
        await until_equal(world)
        compact(world, 1, 0, 2)
        compact(world, 1, 2, 4)
        await until_equal(world)

    run(test)


def test_a_follower_that_was_away_takes_over_what_it_has_missed() -> None:
    async def test(world: World) -> None:
        await three(world)
        fs = await world.kill(3, power_cut=True)
        await world.lead(1, (1, 2))
        compact(world, 1, 0, 3)
        write(world, 1, 20)
        compact(world, 1, 2, 3)
        await until_equal(world)
        world.start(3, fs)
        await world.tell(3)
        await until_equal(world)

    run(test)


def test_a_follower_that_falls_behind_compares_once_it_has_caught_up() -> None:
    """The follower's log end lies inside a merged segment of the leader; the rest goes into the follower's segment."""

    async def test(world: World) -> None:
        await three(world, records=4)
        fs = await world.kill(3)
        await world.lead(1, (1, 2))
        write(world, 1, 30)
        await world.settle()
        compact(world, 1, 0, 5)
        world.start(3, fs)
        await world.tell(3)
        await until_equal(world)

    run(test)


def test_a_compacted_follower_takes_back_the_files_of_an_uncompacted_leader() -> None:
    async def test(world: World) -> None:
        await three(world)
        world.unreachable = {1}
        compact(world, 1, 0, 2)
        compact(world, 1, 1, 3)
        await world.lead(2, (2, 3), told=(2, 3))
        write(world, 2, 10)
        world.unreachable = set()
        await world.tell(1)
        await until_equal(world)
        assert world.brokers[1].log().compacted_to == 0

    run(test)


def test_a_compacted_segment_that_is_written_again_goes_back_once_the_leader_has_closed_its_own() -> None:
    """The former leader had begun an empty segment: the follower continues in the one before."""

    async def test(world: World) -> None:
        await three(world)
        world.unreachable = {1}
        log = world.brokers[1].log()
        log.roll()
        closed = len(log.segments) - 1
        compact(world, 1, closed - 1, 1)
        await world.lead(2, (2, 3), told=(2, 3))
        write(world, 2, 1)
        world.unreachable = set()
        await world.tell(1)
        await world.settle()
        write(world, 2, 20)
        await until_equal(world)

    run(test)


def test_two_that_were_compacted_in_different_ways_become_as_the_leader_is() -> None:
    async def test(world: World) -> None:
        await three(world, records=60)
        world.unreachable = {1, 2, 3}
        compact(world, 1, 0, 2)
        compact(world, 1, 1, 3)
        compact(world, 2, 1, 2, lambda base: base % 3 == 0)
        compact(world, 2, 2, 4, lambda base: base % 3 == 0)
        await world.lead(2, (1, 2, 3))
        world.unreachable = set()
        write(world, 2, 10)
        await until_equal(world)

    run(test)


@pytest.mark.slow
def test_another_leader_comes_while_segments_are_copied() -> None:
    """At each moment of a sync: it is given up, and the new leader's segments are taken over."""

    async def test(world: World, moment: int) -> None:
        await three(world, records=40)
        compact(world, 1, 0, 4)
        asked = len(world.asked_for_files)
        await until(lambda: len(world.asked_for_files) >= asked + moment)
        await world.lead(2, (1, 2, 3))
        write(world, 2, 10)
        await until_equal(world)

    for moment in range(5):
        run(lambda world, moment=moment: test(world, moment), seed=moment)  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("power_cut", [False, True])
def test_the_leader_dies_while_its_segments_are_copied(*, power_cut: bool) -> None:
    async def test(world: World, moment: int) -> None:
        await three(world, records=40)
        compact(world, 1, 0, 4)
        asked = len(world.asked_for_files)
        await until(lambda: len(world.asked_for_files) >= asked + moment)
        fs = await world.kill(1, power_cut=power_cut)
        await world.lead(2, (2, 3))
        write(world, 2, 10)
        await until_equal(world)
        world.start(1, fs)
        await world.tell(1)
        await until_equal(world)

    for moment in range(1, 5):
        run(lambda world, moment=moment: test(world, moment), seed=moment)  # type: ignore[misc]


@pytest.mark.slow
def test_a_follower_dies_at_every_change_of_its_disk_while_it_takes_segments_over() -> None:
    async def test(world: World, changes: int) -> None:
        await three(world, records=40)
        follower = world.brokers[3]
        follower.fs.cut_power_after(changes, world.chance)
        compact(world, 1, 1, 3)
        await asyncio.sleep(1)
        fs = await world.kill(3, power_cut=True)
        world.start(3, fs)
        await world.tell(3)
        await until_equal(world)

    for changes in range(0, 60, 3):
        run(lambda world, changes=changes: test(world, changes), seed=changes)  # type: ignore[misc]


def test_the_offset_that_was_compacted_to_is_the_leaders() -> None:
    async def test(world: World) -> None:
        await three(world)
        compact(world, 1, 0, 3)
        log = world.brokers[1].log()
        offset = log.segments[1].base_offset
        log.replacer.set_cleaned_offset(offset, log.replacer.describe()[:1])
        await until_equal(world)
        await until(lambda: all(each.log().compacted_to == offset for each in world.brokers.values()))

    run(test)


def test_the_newest_snapshot_is_copied_and_outlives_its_leader() -> None:
    def install(log: Log, end_offset: int) -> None:
        writer = log.offset_snapshots.begin(end_offset)
        writer.append(batch(3))
        log.offset_snapshots.install(writer)

    def newest(world: World) -> set[tuple[int, int] | None]:
        return {each.log().offset_snapshots.newest_id() for each in world.brokers.values()}

    async def test(world: World) -> None:
        await three(world)
        install(world.brokers[1].log(), 20)
        await until(lambda: newest(world) == {(20, 1)})
        fs = await world.kill(1)
        await world.lead(2, (2, 3))
        write(world, 2, 10)
        await world.settle()
        install(world.brokers[2].log(), world.brokers[2].log().log_end_offset)
        end = world.brokers[2].log().log_end_offset
        world.start(1, fs)
        await world.tell(1)
        await until(lambda: newest(world) == {(end, 2)})
        found = world.brokers[1].log().offset_snapshots.newest(lambda _: "")
        assert found
        assert found.records == 3

    run(test)


def test_retention_beside() -> None:
    async def test(world: World) -> None:
        await three(world, records=60)
        log = world.brokers[1].log()
        ends = [each.next_offset for each in log.replacer.describe()]
        compact(world, 1, 2, 3)
        for start in (ends[2] + 1, ends[4], ends[5]):
            log.advance_log_start(start)
            write(world, 1, 5)
            for each in world.brokers.values():
                each.log().delete_old_segments(0, is_led=False)
            await world.settle()
        for each in world.brokers.values():
            each.log().delete_old_segments(0, is_led=False)
        compact(world, 1, 0, 3)
        await until_equal(world)

    run(test)


def test_nothing_is_copied_where_the_segments_are_the_same() -> None:
    async def test(world: World) -> None:
        await three(world)
        await world.lead(2, (1, 2, 3))
        write(world, 2, 10)
        await until_equal(world)
        assert [each for each in world.asked_for_files if isinstance(each, DescribeFiles)]
        assert not [each for each in world.asked_for_files if isinstance(each, ReadReplicaFile)]

    run(test)


def test_the_leaders_throttle_holds_for_segments_too() -> None:
    async def test(world: World) -> None:
        await three(world, records=40)
        world.brokers[1].leader_rate = 1_000
        compact(world, 1, 0, 2)
        await until_equal(world)
        before, size = world.clock.monotonic_ms(), world.brokers[1].log().segments[0].size_bytes
        compact(world, 1, 1, 2)
        await until_equal(world)
        assert world.clock.monotonic_ms() - before >= size / 2

    run(test, leader_replication_throttled_replicas=("*",))
