"""Followers copy their leaders' logs, byte for byte, from any state of their own logs."""

from __future__ import annotations

import asyncio
import errno

import pytest
from msgspec.structs import replace

from sparklog.base.errors import StaleBrokerEpoch
from sparklog.replica.messages import ReplicaFetchResponse
from support.replicas.replicating_brokers import NAME, World, run, three, until


def test_followers_get_what_the_leader_appends_in_the_same_files() -> None:
    async def test(world: World) -> None:
        await three(world)
        for number in range(30):
            world.brokers[1].append(1 + number % 3, size=number)
        await world.settle()
        assert len(world.brokers[1].files()) > 3
        world.check_equal()

    run(test)


def test_a_batch_that_was_damaged_on_the_way_is_fetched_again() -> None:
    spoilt = 0

    def spoil(response: ReplicaFetchResponse) -> ReplicaFetchResponse:
        nonlocal spoilt
        if spoilt == 3 or not any(part.records for part in response.partitions):
            return response
        spoilt += 1
        parts = [
            replace(part, records=part.records[:-1] + bytes([part.records[-1] ^ 1])) if part.records else part
            for part in response.partitions
        ]
        return replace(response, partitions=tuple(parts))

    async def test(world: World) -> None:
        world.spoil = spoil
        await three(world)
        for _ in range(5):
            world.brokers[1].append(2)
        await world.settle()
        assert spoilt == 3
        world.check_equal()

    run(test)


def test_a_follower_that_restarts_copies_only_what_it_has_not() -> None:
    async def test(world: World) -> None:
        await three(world)
        for _ in range(20):
            world.brokers[1].append(3)
        await world.settle()
        fs = await world.kill(3)
        world.brokers[1].append(1)
        await until(lambda: world.brokers[2].log().log_end_offset == 61)
        world.answers.clear()
        world.start(3, fs)
        await world.tell(3)
        await world.settle()
        assert 0 < world.bytes_copied < 100
        world.check_equal()

    run(test)


def test_a_follower_whose_disk_is_full_goes_on_copying_when_there_is_room() -> None:
    async def test(world: World) -> None:
        await three(world)
        follower = world.brokers[3]
        await world.settle()
        follower.fs.fail_under("/data", errno.ENOSPC)
        for number in range(30):
            world.brokers[1].append(3, size=100)
            if number % 10 == 9:
                await asyncio.sleep(2)
                follower.logs.tasks.check_free_space()
        assert (follower.logs.full_dirs, follower.logs.failed_dirs) == (("/data",), {})
        follower.fs.repair("/data")
        follower.logs.tasks.check_free_space()
        await world.settle()
        world.check_equal()

    run(test)


def test_nothing_is_done_to_a_log_any_more_once_it_is_not_followed() -> None:
    """The leader changes at every moment of a truncation in turn."""

    async def test(world: World) -> None:
        await three(world)
        for pause_ms in range(12):
            world.brokers[1].append(2)
            await world.settle()
            world.unreachable = {1}
            world.brokers[1].append(2)
            await world.lead(2, (2, 3), told=(2, 3))
            world.unreachable = set()
            await world.tell(1)
            await asyncio.sleep(pause_ms / 2000)
            await world.lead(1, (1, 2, 3))
            end = world.brokers[1].log().log_end_offset
            await asyncio.sleep(0.01)
            assert world.brokers[1].log().log_end_offset == end
            assert world.brokers[1].replica().partition.log_end_offset == end
            await world.settle()

    run(test)


def test_a_follower_of_another_life_is_refused() -> None:
    async def test(world: World) -> None:
        await three(world)
        await asyncio.sleep(1)
        request = replace(world.asked[-1], replica_id=2, broker_epoch=1, session_epoch=0)
        with pytest.raises(StaleBrokerEpoch):
            await world.ask(world.brokers[2], 1, request)

    run(test)


def test_no_partition_is_followed_after_the_stop() -> None:
    async def test(world: World) -> None:
        """The controller's request is being carried out, in a thread, when the broker stops."""
        world.start(1)
        follower = world.start(2)
        told = asyncio.ensure_future(world.lead(1, (1, 2)))
        while NAME not in (log.partition for log in follower.logs):  # noqa: ASYNC110 - it is made in a thread, for a moment of virtual time
            await asyncio.sleep(0.000_01)
        await follower.fetchers.stop()
        await told
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("copying")]
        assert not len(follower.fetchers)

    run(test)
