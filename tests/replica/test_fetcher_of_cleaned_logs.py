"""Followers of logs from which a cleaner has removed records."""

from __future__ import annotations

import asyncio

import pytest

from sparklog.records.records import Record, write_records
from support.logs.replacements import clean
from support.replicas.replicating_brokers import World, run, three, until


def test_a_log_with_gaps_that_a_cleaner_has_left_is_copied_and_survives_a_kill() -> None:
    async def test(world: World) -> None:
        world.start(1)
        await world.lead(1)
        leader = world.brokers[1]
        leader.append(2)
        gapped = leader.log()
        for offset in (5, 9, 20):
            gapped.as_follower.append(batch_at(offset))
        leader.replica().partition.log_appended(gapped.log_end_offset)
        world.start(2)
        world.start(3)
        await world.tell(2, 3)
        await world.settle()
        world.check_equal()
        fs = await world.kill(2)
        world.answers.clear()
        world.start(2, fs)
        await world.tell(2)
        await world.settle()
        assert world.bytes_copied == 0
        world.check_equal()

    run(test, internal_segment_bytes=150)


def batch_at(offset: int) -> bytes:
    return bytes(write_records([Record(offset=offset, timestamp_ms=1_700_000_000_000)], leader_epoch=1))


def test_segments_that_a_cleaner_has_made_are_copied_as_they_are() -> None:
    async def test(world: World) -> None:
        world.start(1)
        world.start(2)
        await world.lead(1, (1, 2))
        for number in range(20):
            world.brokers[1].append(1 + number % 4, size=40)
        await world.settle()
        for broker in world.brokers.values():
            clean(broker.fs, broker.log(), 0, 3)
            clean(broker.fs, broker.log(), 1, 2)
        world.check_equal()
        world.start(3)
        await world.tell(3)
        await world.settle()
        world.check_equal()
        await world.lead(2, (1, 2, 3))
        world.brokers[2].append(3, size=40)
        await world.settle()
        world.check_equal()

    run(test)


@pytest.mark.slow
def test_a_follower_that_is_in_the_middle_of_what_a_cleaner_replaces_ends_with_the_same_once_it_has_that_too() -> None:
    async def test(world: World) -> None:
        await three(world)
        for _ in range(4):
            world.brokers[1].append(2, size=40)
        await world.settle()
        world.unreachable = {3}
        for _ in range(16):
            world.brokers[1].append(2, size=40)
        await asyncio.sleep(1)
        count = 4
        end = world.brokers[1].log().replacer.describe()[count - 1].next_offset
        for broker_id in (1, 2):
            broker = world.brokers[broker_id]
            await until(lambda broker=broker: broker.log().log_end_offset == 40)
            clean(broker.fs, broker.log(), 0, count, keep=lambda offset: offset % 3 == 0)
        assert 0 < world.brokers[3].log().log_end_offset < end
        world.unreachable = set()
        await world.settle()
        behind = world.brokers[3]
        own = [each.next_offset for each in behind.log().replacer.describe()]
        clean(behind.fs, behind.log(), 0, own.index(end) + 1, keep=lambda offset: offset % 3 == 0)
        world.check_equal()

    run(test)


def test_a_follower_gets_over_what_a_cleaner_has_left_nothing_of() -> None:
    """Gaps between two of the leader's segments, and before the active one, which is empty."""

    async def test(world: World) -> None:
        world.start(1)
        await world.lead(1)
        leader = world.brokers[1]
        leader.append(2)
        leader.log().as_follower.follow_segment(10)
        leader.append(2)
        leader.log().as_follower.follow_segment(30)
        leader.replica().partition.log_appended(30)
        world.start(2)
        await world.tell(2)
        await world.settle()
        world.check_equal()
        await world.lead(2, (1, 2))
        assert world.brokers[2].append(1) == 31
        await world.settle()
        world.check_equal()

    run(test)


def test_a_log_of_which_nothing_is_closed_is_not_compared_with_the_leaders() -> None:
    async def test(world: World) -> None:
        await three(world)
        world.brokers[1].append(1)
        await world.settle()
        await asyncio.sleep(1)
        assert not world.asked_for_files
        world.brokers[1].log().roll()
        world.brokers[1].append(1)
        await until(lambda: len({request.replica_id for request in world.asked_for_files}) == 2)

    run(test)
