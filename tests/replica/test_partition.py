import pytest

from sparklog.base.errors import FencedLeaderEpoch, NotEnoughReplicas, UnknownLeaderEpoch
from sparklog.base.ids import TopicPartition
from sparklog.replica.partition import ALL_IN_SYNC, Partition


def partition() -> Partition:
    return Partition(TopicPartition("t", 0), leader_epoch=5, in_sync_replicas=(0,), log_end_offset=100)


def test_everything_in_the_log_of_a_lone_leader_is_committed() -> None:
    assert (partition().high_watermark, partition().last_stable_offset) == (100, 100)


def test_an_append_to_a_lone_leader_is_committed_at_once() -> None:
    led = partition()
    assert not led.is_committed(100)
    assert led.log_appended(103)
    assert led.is_committed(102)
    assert not led.is_committed(103)


def test_the_high_watermark_never_moves_back() -> None:
    led = partition()
    assert not led.log_appended(100)
    assert led.high_watermark == 100


@pytest.mark.parametrize("known", [None, 5])
def test_a_client_that_knows_the_epoch_or_claims_none_is_served(known: int | None) -> None:
    partition().check_leader_epoch(known)


def test_a_client_behind_is_fenced_and_one_ahead_told_to_wait() -> None:
    with pytest.raises(FencedLeaderEpoch, match="leader epoch 4"):
        partition().check_leader_epoch(4)
    with pytest.raises(UnknownLeaderEpoch, match="leader epoch 6"):
        partition().check_leader_epoch(6)


def test_acks_all_needs_the_replicas_that_the_topic_wants() -> None:
    led = partition()
    led.check_in_sync(ALL_IN_SYNC, 1)
    led.check_in_sync(1, 2)
    with pytest.raises(NotEnoughReplicas, match=r"min\.insync\.replicas is 2"):
        led.check_in_sync(ALL_IN_SYNC, 2)
