"""A follower's log that differs from its leader's is truncated to the divergence, or starts again."""

from __future__ import annotations

import asyncio

from support.replicas.replicating_brokers import World, run, three, until


def test_a_deposed_leader_truncates_records_that_only_it_had() -> None:
    async def test(world: World) -> None:
        await three(world)
        world.brokers[1].append(3)
        await world.settle()
        world.unreachable = {1}
        for _ in range(20):
            world.brokers[1].append(2)
        await world.lead(2, (2, 3), told=(2, 3))
        for _ in range(10):
            world.brokers[2].append(3, size=50)
        world.unreachable = set()
        await world.tell(1)
        await world.settle()
        assert world.brokers[1].log().log_end_offset == 33
        world.check_equal()

    run(test)


def test_logs_that_differ_in_several_epochs_agree_after_as_many_questions() -> None:
    async def test(world: World) -> None:
        """Brokers 1 and 2 lead in epochs 1 to 6 in turn, and neither gets the other's records."""
        await three(world)
        world.brokers[1].append(4)
        await world.settle()
        world.unreachable = {1, 2, 3}
        for _ in range(3):
            for leader in (1, 2):
                await world.lead(leader, told=(leader,))
                world.brokers[leader].append(3)
        world.unreachable = set()
        await world.lead(3, (3,))
        world.brokers[3].append(2, size=30)
        await world.settle()
        assert world.brokers[1].log().log_end_offset == 6
        world.check_equal()

    run(test)


def test_a_log_that_goes_on_where_the_new_leader_has_not_rolled_has_the_same_files() -> None:
    async def test(world: World) -> None:
        await three(world)
        world.brokers[1].append(2)
        await world.settle()
        world.unreachable = {1}
        world.brokers[1].log().roll()
        world.brokers[1].append(2)
        await world.lead(2, (2, 3), told=(2, 3))
        world.unreachable = set()
        await world.tell(1)
        await world.settle()
        world.brokers[2].append(3)
        await world.settle()
        assert [segment.base_offset for segment in world.brokers[1].log().segments] == [0]
        world.check_equal()

    run(test)


def test_an_empty_follower_begins_where_the_leaders_oldest_segment_does() -> None:
    async def test(world: World) -> None:
        world.start(1)
        world.start(2)
        await world.lead(1, (1, 2))
        leader = world.brokers[1]
        for _ in range(20):
            leader.append(3)
        await world.settle()
        leader.log().advance_log_start(25)
        leader.log().delete_old_segments(world.clock.time_ms(), high_watermark=60)
        assert 0 < leader.log().first_base_offset < 25
        world.start(3)
        await world.tell(3)
        await world.settle()
        follower = world.brokers[3]
        assert follower.files() == leader.files()
        assert follower.log().log_start_offset == 25

    run(test)


def test_a_follower_whose_next_record_is_gone_at_the_leader_begins_anew() -> None:
    async def test(world: World) -> None:
        await three(world)
        leader = world.brokers[1]
        leader.append(3)
        await world.settle()
        world.unreachable = {3}
        for _ in range(20):
            leader.append(3)
        leader.replicas.shrink_isr()
        await asyncio.sleep(11)
        leader.replicas.shrink_isr()
        await until(lambda: world.isr == (1, 2))
        leader.log().advance_log_start(30)
        leader.log().delete_old_segments(world.clock.time_ms(), high_watermark=63)
        world.unreachable = set()
        await world.settle()
        assert world.brokers[3].files() == leader.files()
        assert world.brokers[3].log().log_start_offset == 30

    run(test)


def test_followers_of_a_shorter_unclean_leader_truncate_their_logs() -> None:
    async def test(world: World) -> None:
        await three(world)
        world.brokers[1].append(3)
        await world.settle()
        world.unreachable = {3}
        for _ in range(10):
            world.brokers[1].append(1)
        await asyncio.sleep(1)
        world.unreachable = set()
        world.loss = 1.0
        await world.lead(3)
        world.brokers[3].append(1)
        world.loss = 0.0
        await world.settle()
        assert world.brokers[1].log().log_end_offset == 4
        world.check_equal()

    run(test)


def test_an_unclean_leader_without_a_record_is_followed_too() -> None:
    async def test(world: World) -> None:
        world.start(1)
        world.start(2)
        await world.lead(1, (1, 2))
        world.brokers[1].append(3)
        await world.settle()
        world.start(3)
        world.loss = 1.0
        await world.lead(3)
        world.loss = 0.0
        await world.settle()
        assert world.brokers[1].log().log_end_offset == 0
        world.brokers[3].append(2)
        await world.settle()
        world.check_equal()

    run(test)


def test_the_log_start_follows_the_leaders() -> None:
    async def test(world: World) -> None:
        await three(world)
        for _ in range(5):
            world.brokers[1].append(2)
        await world.settle()
        world.brokers[1].log().advance_log_start(7)
        await until(lambda: world.brokers[2].log().log_start_offset == 7)

    run(test)
