"""Followers copy their leaders' logs, byte for byte, whatever their own logs hold when they begin."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from copying import NAME, TOPIC_ID, World, run, until
from swap_values import clean

from sparklog.base.errors import StaleBrokerEpoch
from sparklog.base.ids import TopicPartition
from sparklog.records.records import Record, write_records
from sparklog.replica.following import FetchState
from sparklog.replica.messages import ReplicaFetchResponse
from sparklog.testing.memory_fs import MemoryFs


async def three(world: World) -> None:
    for broker_id in (1, 2, 3):
        world.start(broker_id)
    await world.lead(1, (1, 2, 3))


def test_followers_get_what_the_leader_appends_in_the_same_files() -> None:
    async def test(world: World) -> None:
        await three(world)
        for number in range(30):
            world.brokers[1].append(1 + number % 3, size=number)
        await world.settle()
        assert len(world.brokers[1].files()) > 3
        world.check_equal()

    run(test)


def test_what_the_leader_alone_had_is_cut_from_its_log_when_another_leads() -> None:
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
        """Epochs 1 to 6 are led by 1 and by 2 in turn, and neither hears of what the other writes."""
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


def test_where_an_unclean_leader_has_less_the_others_cut_their_logs() -> None:
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


def test_a_log_with_gaps_that_a_cleaner_has_left_is_copied_and_survives_a_kill() -> None:
    async def test(world: World) -> None:
        world.start(1)
        await world.lead(1)
        leader = world.brokers[1]
        leader.append(2)
        gapped = leader.log()
        for offset in (5, 9, 20):
            gapped.append_as_follower(batch_at(offset))
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


@pytest.mark.slow
def test_a_throttled_leader_sends_no_faster_to_those_who_are_not_in_sync() -> None:
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


def test_a_follower_of_another_life_is_refused() -> None:
    async def test(world: World) -> None:
        await three(world)
        await asyncio.sleep(1)
        request = replace(world.asked[-1], replica_id=2, broker_epoch=1, session_epoch=0)
        with pytest.raises(StaleBrokerEpoch):
            await world.ask(world.brokers[2], 1, request)

    run(test)


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
        end = world.brokers[1].log().describe()[count - 1].next_offset
        for broker_id in (1, 2):
            broker = world.brokers[broker_id]
            await until(lambda broker=broker: broker.log().log_end_offset == 40)
            clean(broker.fs, broker.log(), 0, count, keep=lambda offset: offset % 3 == 0)
        assert 0 < world.brokers[3].log().log_end_offset < end
        world.unreachable = set()
        await world.settle()
        behind = world.brokers[3]
        own = [each.next_offset for each in behind.log().describe()]
        clean(behind.fs, behind.log(), 0, own.index(end) + 1, keep=lambda offset: offset % 3 == 0)
        world.check_equal()

    run(test)


def test_a_follower_gets_over_what_a_cleaner_has_left_nothing_of() -> None:
    """Between two of the leader's segments, and before the one that is written, which is empty."""

    async def test(world: World) -> None:
        world.start(1)
        await world.lead(1)
        leader = world.brokers[1]
        leader.append(2)
        leader.log().follow_segment(10)
        leader.append(2)
        leader.log().follow_segment(30)
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


def test_what_is_to_be_followed_after_the_stop_is_not() -> None:
    async def test(world: World) -> None:
        """The controller's request is under way, in a thread, when the broker stops."""
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


def test_partitions_that_come_one_after_the_other_do_not_hold_up_those_that_are_copied() -> None:
    async def test(world: World) -> None:
        """Another comes each time before an answer to the last request can be there."""
        world.start(1)
        follower = world.start(2)
        await world.lead(1, (1, 2))
        await world.settle()
        end = world.brokers[1].append(3)
        for number in range(300):
            other = FetchState(leader=1, leader_epoch=1, topic_id=TOPIC_ID)
            follower.fetchers.follow({TopicPartition("other", number): other})
            await asyncio.sleep(0.0002)
        assert follower.log().log_end_offset == end

    run(test)
