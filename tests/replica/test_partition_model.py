"""Three replicas under every order of events: committed records stay, and high watermarks keep to their rules."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from sparklog.replica.partition import Partition
from support.replicas.replicated_partition import BROKERS, Cluster

BROKER = st.sampled_from(BROKERS)
PLACE = st.integers(0, 5)


class Replication(RuleBasedStateMachine):
    """Ends with `settle`: without faults every replica gets all records."""

    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster()

    @rule(broker=BROKER, count=st.integers(1, 4))
    def append(self, broker: int, count: int) -> None:
        for _ in range(count):
            self.cluster.append(broker)

    @rule(broker=BROKER)
    def fetch(self, broker: int) -> None:
        self.cluster.send_fetch(broker)

    @rule(broker=BROKER)
    def replicate(self, broker: int) -> None:
        """A fetch and its response, without delay."""
        self.cluster.send_fetch(broker)
        if self.cluster.fetches:
            self.cluster.deliver_fetch(self.cluster.fetches.pop())
        if self.cluster.answers:
            self.cluster.deliver_answer(self.cluster.answers.pop())

    @rule(place=PLACE)
    def fetch_arrives(self, place: int) -> None:
        if fetches := self.cluster.fetches:
            self.cluster.deliver_fetch(fetches.pop(place % len(fetches)))

    @rule(place=PLACE)
    def answer_arrives(self, place: int) -> None:
        if answers := self.cluster.answers:
            self.cluster.deliver_answer(answers.pop(place % len(answers)))

    @rule(broker=BROKER)
    def isr_is_written(self, broker: int) -> None:
        self.cluster.write_isr(broker, is_written=True, is_answered=True)

    @rule(broker=BROKER, is_written=st.booleans())
    def isr_is_perhaps_written(self, broker: int, is_written: bool) -> None:
        self.cluster.write_isr(broker, is_written=is_written, is_answered=False)

    @rule(follower=BROKER)
    def follower_lags(self, follower: int) -> None:
        """All others keep up for as long as a follower may lag."""
        others = [each for each in BROKERS if each != follower]
        for _ in range(3):
            for each in others:
                self.replicate(each)
            self.cluster.pass_time(5)
        for each in BROKERS:
            self.cluster.write_isr(each, is_written=True, is_answered=True)

    @rule(ms=st.sampled_from((1, 6, 11)))
    def time_passes(self, ms: int) -> None:
        self.cluster.pass_time(ms)

    @rule(broker=BROKER)
    def controller_looks(self, broker: int) -> None:
        self.cluster.notice(broker)

    @rule(broker=BROKER)
    def controller_takes_for_dead(self, broker: int) -> None:
        self.cluster.take_for_dead(broker)

    @rule(broker=BROKER)
    def elect(self, broker: int) -> None:
        if broker in self.cluster.isr:
            self.cluster.elect(broker)
            self.cluster.tell_all()

    @rule(broker=BROKER)
    def controller_is_heard(self, broker: int) -> None:
        self.cluster.deliver(broker)

    @rule(broker=BROKER, high_watermark=st.integers(0, 8))
    def restart(self, broker: int, high_watermark: int) -> None:
        self.cluster.kill(broker)
        self.cluster.start(broker, high_watermark)

    @rule(broker=BROKER)
    def die(self, broker: int) -> None:
        self.cluster.kill(broker)

    @invariant()
    def keeps_its_promises(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.check()

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.settle()
        cluster.check()
        leader = cluster.brokers[cluster.leader]
        assert all(each.log == leader.log for each in cluster.brokers.values())
        assert sorted(cluster.isr) == list(BROKERS)
        assert leader.partition.high_watermark == len(leader.log)


class TestReplication(Replication.TestCase):
    settings = settings(max_examples=12, stateful_step_count=40)


@pytest.mark.soak_only
class TestReplicationForLong(Replication.TestCase):
    settings = settings(max_examples=1_000, stateful_step_count=80)


def _counts_who_is_to_stay(self: Partition) -> frozenset[int]:
    return frozenset(self.pending.isr if self.pending else self.in_sync_replicas)


UNTIL_IT_FAILS = settings(
    max_examples=6_000, derandomize=True, stateful_step_count=80, phases=[Phase.generate], report_multiple_bugs=False
)


@pytest.mark.slow
def test_the_model_notices_that_a_leaving_replica_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "maximal_isr", property(_counts_who_is_to_stay))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Replication, settings=UNTIL_IT_FAILS)


def who_has_lagged_fetches_again() -> None:
    story = Replication()
    story.begin()
    story.append(broker=1, count=1)
    story.follower_lags(follower=3)
    assert (story.cluster.leader, sorted(story.cluster.isr)) == (1, [1, 2])
    story.keeps_its_promises()
    assert story.cluster.committed
    story.fetch(broker=3)
    story.fetch_arrives(place=0)
    story.isr_is_written(broker=1)
    story.keeps_its_promises()


def test_the_model_notices_that_a_lagging_replica_may_join(monkeypatch: pytest.MonkeyPatch) -> None:
    who_has_lagged_fetches_again()
    monkeypatch.setattr(Partition, "_may_join", lambda *_: True)
    with pytest.raises(AssertionError, match="3 is in the ISR and lacks committed records"):
        who_has_lagged_fetches_again()
