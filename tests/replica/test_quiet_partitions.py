"""A leader looks at quiet partitions only when they change, and decides as if it had looked at each fetch."""

from __future__ import annotations

import copy
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparklog.base.ids import TopicPartition
from sparklog.replica.messages import AlterIsrResult, LeaderAndIsrPartitionState
from sparklog.replica.partition import Effects, FetchClock, Partition

LAG_MS = 100
FOLLOWERS = (2, 3)
FOLLOWER = st.sampled_from(FOLLOWERS)


def led_partition() -> Partition:
    led = Partition(TopicPartition("t", 0), broker_id=1, log_end_offset=0, high_watermark=0)
    state = LeaderAndIsrPartitionState(
        name=led.name, topic_id=UUID(int=1), leader=1, leader_epoch=0, isr=(1, 2, 3), replicas=(1, 2, 3),
        partition_epoch=0,
    )  # fmt: skip
    led.become_leader(state, 1, log_end_offset=0, now_ms=0)
    return led


def fetch(led: Partition, follower: int, offset: int, now_ms: int) -> Effects:
    return led.follower_fetched(follower, broker_epoch=7, fetch_offset=offset, log_start_offset=0, now_ms=now_ms)


def test_a_follower_may_lag_for_as_long_since_the_last_quiet_fetch() -> None:
    led, clock = led_partition(), FetchClock()
    for follower in FOLLOWERS:
        fetch(led, follower, 0, 0)
    assert led.become_quiet(2, 7, clock)
    clock.fetched_ms = 1_000
    led.log_appended(5)
    clock.fetched_ms = 2_000  # of other partitions
    fetch(led, 3, 5, 1_050)
    assert led.shrink_isr(1_000 + LAG_MS, LAG_MS) == Effects()
    shrunk = led.shrink_isr(1_001 + LAG_MS, LAG_MS).alter
    assert shrunk
    assert shrunk.isr == (1, 3)


def test_a_follower_that_keeps_up_has_caught_up_at_its_last_quiet_fetch() -> None:
    led, clock = led_partition(), FetchClock()
    for follower in FOLLOWERS:
        fetch(led, follower, 0, 0)
        assert led.become_quiet(follower, 7, clock)
    clock.fetched_ms = 1_000
    led.log_appended(5)
    for follower in FOLLOWERS:
        fetch(led, follower, 0, 1_050)
    assert {each.caught_up_ms for each in led.followers.values()} == {1_000}


def test_a_partition_is_not_quiet_for_a_follower_that_lags_or_is_not_in_the_isr() -> None:
    led, clock = led_partition(), FetchClock()
    fetch(led, 2, 0, 0)
    assert not led.become_quiet(2, 8, clock)  # another life of the broker
    assert not led.become_quiet(3, 7, clock)
    led.log_appended(5)
    assert not led.become_quiet(2, 7, clock)
    fetch(led, 2, 5, 200)
    fetch(led, 3, 0, 200)
    change = led.shrink_isr(200, LAG_MS).alter
    assert change
    led.isr_altered(change, AlterIsrResult(isr=change.isr, partition_epoch=1), 200)
    fetch(led, 3, 5, 200)  # it asks to join
    assert led.become_quiet(2, 7, clock)
    assert not led.become_quiet(3, 7, clock)


class QuietPartitions(RuleBasedStateMachine):
    """Two leaders with the same events. One records each fetch; the other only clocks, where the partition is quiet."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.partition_epoch = 0
        self.always, self.lazy = led_partition(), led_partition()
        self.ends = dict.fromkeys(FOLLOWERS, 0)
        self.clocks = {broker_id: FetchClock() for broker_id in FOLLOWERS}
        self.quiet: set[int] = set()

    def compare(self, first: Effects | bool, second: Effects | bool) -> None:
        assert first == second
        assert self.always.high_watermark == self.lazy.high_watermark
        assert self.always.in_sync_replicas == self.lazy.in_sync_replicas
        assert self.always.pending == self.lazy.pending

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        end = self.always.log_end_offset + count
        self.quiet.clear()
        self.compare(self.always.log_appended(end), self.lazy.log_appended(end))

    @rule(follower=FOLLOWER, is_slow=st.booleans())
    def fetch(self, follower: int, is_slow: bool) -> None:
        """A fetch from the follower's log end; then it copies the rest, or one record."""
        clock, offset = self.clocks[follower], self.ends[follower]
        how = {"broker_epoch": 7, "fetch_offset": offset, "log_start_offset": 0, "now_ms": self.now_ms}
        first = self.always.follower_fetched(follower, **how)
        clock.fetched_ms = self.now_ms
        if follower in self.quiet:
            assert first == Effects()
        else:
            self.compare(first, self.lazy.follower_fetched(follower, **how))
            if self.lazy.become_quiet(follower, 7, clock):
                self.quiet.add(follower)
        self.ends[follower] = min(offset + 1, self.always.log_end_offset) if is_slow else self.always.log_end_offset

    @rule(follower=FOLLOWER)
    def leave_session(self, follower: int) -> None:
        """The next fetch names the partition, or forgets it."""
        self.lazy.end_quiet(follower)
        self.quiet.discard(follower)
        self.clocks[follower] = FetchClock()

    @rule(ms=st.sampled_from((1, 40, LAG_MS, 250)))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def look_for_lagging(self) -> None:
        self.compare(self.always.shrink_isr(self.now_ms, LAG_MS), self.lazy.shrink_isr(self.now_ms, LAG_MS))

    @rule()
    def isr_is_written(self) -> None:
        if (change := self.always.pending) and self.lazy.pending:
            self.partition_epoch += 1
            altered = AlterIsrResult(isr=change.isr, partition_epoch=self.partition_epoch)
            self.quiet.clear()  # the broker lets its sessions look at the partition again
            self.compare(
                self.always.isr_altered(change, altered, self.now_ms),
                self.lazy.isr_altered(self.lazy.pending, altered, self.now_ms),
            )

    @invariant()
    def same_followers(self) -> None:
        for broker_id in FOLLOWERS:
            first, second = self.always.followers[broker_id], copy.copy(self.lazy.followers[broker_id])
            second.count_quiet()
            for name in ("caught_up_ms", "fetched_ms", "is_caught_up", "log_end_offset", "leader_end_offset"):
                assert getattr(first, name) == getattr(second, name), name


@pytest.mark.slow
class TestQuietPartitions(QuietPartitions.TestCase):
    settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
