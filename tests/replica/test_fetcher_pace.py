"""The rate and size of fetches: back-off, quiet sessions, throttles."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.replica.state_changes import InitialFetchState
from sparklog.replica.throttle import ReplicationThrottle
from sparklog.testing.memory_fs import MemoryFs
from support.replicas.replicating_brokers import NAME, TOPIC_ID, World, run, three, until


def test_a_leader_that_cannot_be_reached_is_asked_less_and_less_often() -> None:
    async def test(world: World) -> None:
        world.start(2)
        await world.lead(1, (1, 2))
        await asyncio.sleep(10)
        assert 50 <= len(world.asked) <= 60

    run(test)


def test_a_partition_that_is_not_led_yet_is_asked_for_again() -> None:
    async def test(world: World) -> None:
        world.start(1)
        world.start(2)
        world.start(3)
        await world.lead(1, (1, 2, 3), told=(2, 3))
        await asyncio.sleep(5)
        assert len(world.asked) < 80
        await world.tell(1)
        world.brokers[1].append(3)
        await world.settle()
        world.check_equal()

    run(test)


def test_a_quiet_session_names_nothing_and_is_asked_once_in_a_while() -> None:
    async def test(world: World) -> None:
        await three(world)
        world.brokers[1].append(3)
        await world.settle()
        await asyncio.sleep(2)
        world.asked.clear()
        await asyncio.sleep(10)
        assert 36 <= len(world.asked) <= 44  # two followers, half a second each
        assert all(request.session_epoch > 0 and not request.partitions for request in world.asked)

    run(test)


def test_the_first_record_of_a_new_partition_does_not_wait_for_another_ones_poll() -> None:
    async def test(world: World) -> None:
        await three(world)
        await asyncio.sleep(1.2)
        name = NAME._replace(partition=1)
        await world.lead(1, (1, 2, 3), name=name)
        world.brokers[1].append(1, name=name)
        began = asyncio.get_running_loop().time()
        await world.settle(name)
        assert asyncio.get_running_loop().time() - began < 0.1

    run(test)


@pytest.mark.slow
def test_a_throttled_follower_keeps_to_its_rate_which_may_change() -> None:
    async def test(world: World) -> None:
        world.start(1)
        await world.lead(1)
        for _ in range(100):
            world.brokers[1].append(1, size=130)  # 200 bytes each
        world.start(2, MemoryFs(), replica_fetch_max_bytes=400).follower_rate = 1000
        await world.tell(2)
        await asyncio.sleep(10)
        assert 9_000 <= world.bytes_copied <= 11_000
        world.brokers[2].follower_rate = 5000
        await until(lambda: world.brokers[2].log().log_end_offset == 100, 4)

    run(test, follower_replication_throttled_replicas=("0:2",))


def test_a_throttled_follower_goes_on_though_its_pause_ends_between_two_looks_at_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses = iter((0.001, 0.001))
    monkeypatch.setattr(ReplicationThrottle, "pause", lambda *_: next(pauses, 0.0))

    async def test(world: World) -> None:
        """Each look takes 3 ms."""
        world.start(1)
        await world.lead(1)
        world.brokers[1].append(3)
        world.start(2)
        loop = asyncio.get_running_loop()
        time, looks = loop.time, itertools.count()
        monkeypatch.setattr(loop, "time", lambda: time() + next(looks) * 0.003)
        await world.tell(2)
        await until(lambda: world.brokers[2].log().log_end_offset == 3, 1)

    run(test, follower_replication_throttled_replicas=("0:2",))


@pytest.mark.slow
def test_a_throttled_leader_sends_no_faster_to_followers_out_of_sync() -> None:
    async def test(world: World) -> None:
        world.start(1)
        world.start(3)
        await world.lead(1, (1, 3))
        world.brokers[1].leader_rate = 1000
        for _ in range(100):
            world.brokers[1].append(1, size=130)
        await world.settle(limit_s=1)
        world.start(2, MemoryFs(), replica_fetch_max_bytes=400)
        await world.tell(2)
        await asyncio.sleep(9)
        assert 30 <= world.brokers[2].log().log_end_offset <= 60
        world.brokers[1].leader_rate = 10_000
        await world.settle(limit_s=5)

    run(test, leader_replication_throttled_replicas=("*",))


def test_partitions_that_come_one_after_the_other_do_not_hold_up_those_that_are_copied() -> None:
    async def test(world: World) -> None:
        """Another partition is added each time before the response to the last request."""
        world.start(1)
        follower = world.start(2)
        await world.lead(1, (1, 2))
        await world.settle()
        end = world.brokers[1].append(3)
        for number in range(300):
            other = InitialFetchState(leader=1, leader_epoch=1, topic_id=TOPIC_ID)
            follower.fetchers.follow({TopicPartition("other", number): other})
            await asyncio.sleep(0.0002)
        assert follower.log().log_end_offset == end

    run(test)
