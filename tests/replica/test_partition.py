"""The rules of a partition one by one; test_partition_model.py tests them together under any order of events."""

from __future__ import annotations

from uuid import UUID

import pytest

from sparklog.base.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
)
from sparklog.base.ids import TopicPartition
from sparklog.replica.messages import NO_LEADER, AlterIsr, AlterIsrResult, LeaderAndIsrPartitionState
from sparklog.replica.partition import ALL_IN_SYNC, COMMITTED, NOTHING, Effects, Partition, Role

LAG_MS = 10_000


def state(
    *, leader: int = 1, leader_epoch: int = 5, isr: tuple[int, ...] = (1, 2, 3), partition_epoch: int = 7
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        name=TopicPartition("t", 0), topic_id=UUID(int=1), leader=leader, leader_epoch=leader_epoch, isr=isr,
        replicas=(1, 2, 3), partition_epoch=partition_epoch,
    )  # fmt: skip


def partition(*, end: int = 100, high_watermark: int = 90) -> Partition:
    return Partition(TopicPartition("t", 0), broker_id=1, log_end_offset=end, high_watermark=high_watermark)


def leader(isr: tuple[int, ...] = (1, 2, 3), *, end: int = 100, high_watermark: int = 90) -> Partition:
    led = partition(end=end, high_watermark=high_watermark)
    led.become_leader(state(isr=isr), 1, log_end_offset=end, now_ms=0)
    return led


def fetch(led: Partition, broker_id: int, offset: int, now_ms: int = 0, log_start_offset: int = 0) -> Effects:
    return led.follower_fetched(
        broker_id, broker_epoch=40 + broker_id, fetch_offset=offset, log_start_offset=log_start_offset, now_ms=now_ms
    )


def alteration(effects: Effects) -> AlterIsr:
    assert effects.alter
    return effects.alter


# The high watermark


def test_everything_in_the_log_of_a_lone_leader_is_committed() -> None:
    led = leader((1,))
    assert led.high_watermark == 100
    assert led.log_appended(103)
    assert led.is_committed(102)
    assert not led.is_committed(103)


def test_unflushed_records_count_at_the_leader_once_they_are_flushed() -> None:
    alone = leader((1,))
    assert not alone.log_appended(103, counts=False)
    assert alone.high_watermark == 100
    assert alone.log_counts(102)
    assert alone.high_watermark == 102
    assert not alone.log_counts(101)  # a flush that began earlier ends later
    assert alone.log_counts(103)

    led = leader()
    assert not led.log_appended(103, counts=False)
    assert fetch(led, 2, 103) == NOTHING
    assert fetch(led, 3, 103) == COMMITTED
    assert led.high_watermark == 100
    assert led.log_counts(103)
    assert led.high_watermark == 103


def test_a_new_leader_counts_what_is_flushed() -> None:
    led = partition()
    led.become_leader(state(isr=(1,)), 1, log_end_offset=100, counted_end_offset=95, now_ms=0)
    assert led.high_watermark == 95
    assert led.log_counts(100)
    assert led.high_watermark == 100


def test_a_record_is_committed_once_every_replica_in_sync_has_it() -> None:
    led = leader()
    assert not led.log_appended(103)
    assert fetch(led, 2, 103) == NOTHING
    assert fetch(led, 3, 101) == COMMITTED
    assert led.high_watermark == 101
    assert fetch(led, 3, 103) == COMMITTED
    assert led.is_committed(102)


def test_the_high_watermark_of_a_leader_never_moves_back() -> None:
    led = leader()
    assert fetch(led, 2, 100) == NOTHING
    assert fetch(led, 3, 20) == NOTHING
    assert led.high_watermark == 90


def test_a_new_leader_epoch_forgets_how_far_the_followers_were() -> None:
    led = leader()
    fetch(led, 2, 100)
    led.become_leader(state(leader_epoch=6, partition_epoch=8), 1, log_end_offset=100, now_ms=0)
    assert fetch(led, 3, 100) == NOTHING
    assert led.high_watermark == 90
    assert fetch(led, 2, 100) == COMMITTED


def test_the_same_state_again_changes_nothing() -> None:
    led = leader()
    fetch(led, 2, 100)
    assert led.become_leader(state(), 1, log_end_offset=100, now_ms=0) == NOTHING
    assert fetch(led, 3, 100) == COMMITTED


def test_a_follower_has_its_leaders_high_watermark_as_far_as_its_log_goes() -> None:
    followed = partition(end=100, high_watermark=80)
    assert followed.become_follower(state(leader=2), 1)
    assert followed.followed(105, 200)
    assert followed.high_watermark == 105
    assert not followed.followed(110, 90)  # a new leader that knows less than the one before
    assert followed.high_watermark == 105
    followed.truncated(103)
    assert followed.high_watermark == 103


def test_a_checkpoint_above_the_end_of_the_log_is_not_believed() -> None:
    assert partition(end=50, high_watermark=90).high_watermark == 50


def test_a_new_leader_whose_log_has_been_cut_takes_nothing_above_its_end_for_committed() -> None:
    led = partition(end=100, high_watermark=100)
    led.become_leader(state(isr=(1, 2)), 1, log_end_offset=95, now_ms=0)
    assert not led.log_appended(98)
    assert not led.is_committed(97)


def test_an_old_high_watermark_is_not_told_by_a_new_leader() -> None:
    led = leader()
    with pytest.raises(OffsetNotAvailable):
        led.check_offset_is_known()
    fetch(led, 2, 100)
    fetch(led, 3, 100)
    led.check_offset_is_known()


# The in-sync replicas


def test_a_lagging_follower_leaves_only_once_the_change_is_written() -> None:
    led = leader()
    led.log_appended(110)
    fetch(led, 2, 110, now_ms=LAG_MS)
    shrink = led.shrink_isr(LAG_MS + 1, LAG_MS)
    assert alteration(shrink).isr == (1, 2)
    assert (led.high_watermark, led.in_sync_replicas) == (90, (1, 2, 3))
    assert led.shrink_isr(LAG_MS + 2, LAG_MS).alter is None, "one change at a time"
    altered = AlterIsrResult(isr=(1, 2), partition_epoch=8)
    assert led.isr_altered(alteration(shrink), altered, LAG_MS + 2) == COMMITTED
    assert (led.high_watermark, led.in_sync_replicas, led.partition_epoch) == (110, (1, 2), 8)


def test_a_caught_up_follower_stays_however_long_it_is_silent() -> None:
    led = leader()
    fetch(led, 2, 100)
    fetch(led, 3, 100)
    assert led.shrink_isr(10 * LAG_MS, LAG_MS) == NOTHING


def test_under_steady_load_a_follower_that_keeps_up_stays() -> None:
    led = leader((1, 2))
    for second in range(30):
        led.log_appended(110 + 10 * second)
        fetch(led, 2, 100 + 10 * second, now_ms=1_000 * second)
        assert led.shrink_isr(1_000 * second, LAG_MS).alter is None


def test_a_follower_that_reaches_the_high_watermark_joins_and_counts() -> None:
    led = leader((1, 2))
    fetch(led, 2, 100)
    assert led.high_watermark == 100
    assert fetch(led, 3, 99).alter is None
    joining = alteration(fetch(led, 3, 100))
    assert (joining.isr, joining.joining, joining.partition_epoch) == ((1, 2, 3), {3: 43}, 7)
    led.log_appended(101)
    assert fetch(led, 2, 101) == NOTHING, "what is pending counts"
    with pytest.raises(NotEnoughReplicas):
        led.check_in_sync(ALL_IN_SYNC, 3)
    led.isr_altered(joining, AlterIsrResult(isr=(1, 2, 3), partition_epoch=8), 0)
    led.check_in_sync(ALL_IN_SYNC, 3)
    assert fetch(led, 3, 101) == COMMITTED


def test_no_follower_joins_below_the_start_of_the_leader_epoch() -> None:
    led = leader((1, 2), end=100, high_watermark=90)
    assert fetch(led, 3, 95).alter is None
    assert fetch(led, 3, 100).alter


def test_no_follower_joins_that_would_bring_back_deleted_records_as_leader() -> None:
    led = leader((1, 2), end=100, high_watermark=90)

    def fetch_from(log_start_offset: int) -> Effects:
        return led.follower_fetched(
            3,
            broker_epoch=43,
            fetch_offset=100,
            log_start_offset=log_start_offset,
            now_ms=0,
            leader_log_start_offset=50,
        )

    assert fetch_from(0).alter is None
    assert fetch_from(50).alter


def test_a_leader_alone_waits_for_a_follower_that_keeps_up_so_that_it_can_join() -> None:
    led = leader((1,))
    led.log_appended(110)
    assert led.high_watermark == 110
    fetch(led, 2, 110)
    led.log_appended(120)
    assert led.high_watermark == 110
    led.isr_altered(alteration(Effects(alter=led.pending)), AlterIsrResult(isr=(1,), partition_epoch=8), 0)
    assert led.high_watermark == 110, "whatever the store says: it can join with its next fetch"
    assert fetch(led, 2, 112).alter


def test_the_high_watermark_does_not_wait_for_a_replica_outside_the_isr() -> None:
    led = leader((1, 2))
    fetch(led, 2, 100)
    led.log_appended(110)
    assert led.become_leader(state(isr=(1,), partition_epoch=8), 1, log_end_offset=110, now_ms=1) == COMMITTED
    assert led.high_watermark == 110


def test_an_answer_to_a_change_that_something_newer_has_overtaken_is_ignored() -> None:
    led = leader()
    led.log_appended(110)
    shrink = alteration(led.shrink_isr(LAG_MS + 1, LAG_MS))
    led.become_leader(state(partition_epoch=9, isr=(1, 2)), 1, log_end_offset=110, now_ms=LAG_MS + 1)
    assert led.isr_altered(shrink, AlterIsrResult(isr=(1,), partition_epoch=8), LAG_MS + 1) == NOTHING
    assert (led.in_sync_replicas, led.partition_epoch) == ((1, 2), 9)


def test_a_broker_that_died_on_its_way_into_the_isr_counts_until_that_is_undone() -> None:
    led = leader((1, 2))
    fetch(led, 2, 100)
    joining = alteration(fetch(led, 3, 100))
    undone = alteration(led.isr_refused(joining))
    assert undone.isr == (1, 2)
    assert 3 in led.maximal_isr
    led.log_appended(110)
    assert fetch(led, 2, 110) == NOTHING
    assert led.isr_altered(undone, AlterIsrResult(isr=(1, 2), partition_epoch=8), 0) == COMMITTED
    assert (led.high_watermark, 3 in led.maximal_isr) == (110, False)


def test_a_fetch_of_a_broker_without_a_replica_is_refused() -> None:
    with pytest.raises(NotLeaderOrFollower):
        fetch(leader(), 4, 100)


# acks=all


def test_acks_all_needs_the_replicas_that_the_topic_wants() -> None:
    led = leader((1,))
    led.check_in_sync(ALL_IN_SYNC, 1)
    led.check_in_sync(1, 2)
    with pytest.raises(NotEnoughReplicas, match=r"min\.insync\.replicas is 2"):
        led.check_in_sync(ALL_IN_SYNC, 2)


def test_a_record_is_not_acknowledged_by_fewer_than_the_topic_wants() -> None:
    led = leader((1, 2))
    led.log_appended(101)
    assert not led.is_replicated(100, led.led_since, 2)
    led.become_leader(state(isr=(1,), partition_epoch=8), 1, log_end_offset=101, now_ms=0)
    with pytest.raises(NotEnoughReplicasAfterAppend):
        led.is_replicated(100, led.led_since, 2)
    assert led.is_replicated(100, led.led_since, 1)


def test_a_record_is_not_acknowledged_by_a_leader_that_has_been_none_meanwhile() -> None:
    led = leader((1,))
    since = led.led_since
    led.become_follower(state(leader=2, leader_epoch=6), 1)
    with pytest.raises(NotLeaderOrFollower):
        led.is_replicated(99, since, 1)
    led.become_leader(state(isr=(1,), leader_epoch=7, partition_epoch=9), 1, log_end_offset=100, now_ms=0)
    with pytest.raises(NotLeaderOrFollower):
        led.is_replicated(99, since, 1)
    assert led.is_replicated(99, led.led_since, 1)


def test_a_leader_that_stays_through_an_election_acknowledges_what_it_has_appended() -> None:
    led = leader((1,))
    since = led.led_since
    led.become_leader(state(isr=(1,), leader_epoch=6, partition_epoch=8), 1, log_end_offset=100, now_ms=0)
    assert led.is_replicated(99, since, 1)


# Roles


@pytest.mark.parametrize("known", [None, 5])
def test_a_client_that_knows_the_epoch_or_claims_none_is_served(known: int | None) -> None:
    leader().check_leader_epoch(known)


def test_a_client_behind_is_fenced_and_one_ahead_told_to_wait() -> None:
    with pytest.raises(FencedLeaderEpoch, match="leader epoch 4"):
        leader().check_leader_epoch(4)
    with pytest.raises(UnknownLeaderEpoch, match="leader epoch 6"):
        leader().check_leader_epoch(6)


def test_fetching_begins_anew_with_each_leader_epoch_and_only_then() -> None:
    followed = partition()
    assert followed.become_follower(state(leader=2), 1)
    assert not followed.become_follower(state(leader=2), 1)
    assert not followed.become_follower(state(leader=2, partition_epoch=8), 1)
    assert followed.become_follower(state(leader=2, leader_epoch=6), 1)
    followed.stop(6)
    assert (followed.role, followed.leader) == (Role.FOLLOWER, NO_LEADER)
    assert followed.become_follower(state(leader=2, leader_epoch=6), 1)


def test_the_low_watermark_is_that_of_the_replicas_that_live() -> None:
    led = leader()
    fetch(led, 2, 100, log_start_offset=30)
    assert led.low_watermark(50, {1, 2}) == 30
    assert led.low_watermark(50, {1, 2, 3}) == -1, "nothing is known of 3 yet"
    assert led.low_watermark(50, {1}) == 50
