"""The checker finds each anomaly in a hand-made history, and none in a correct one."""

from __future__ import annotations

import dataclasses

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.testing.sim.checks.checker import check
from sparklog.testing.sim.checks.history import (
    Commit,
    EpochLookup,
    Final,
    FinalLog,
    History,
    LogStartLookup,
    OffsetLookup,
    OperationOutcome,
    Poll,
    PollResult,
    ReadCommit,
    Send,
    Trim,
    UncleanElection,
)

pytestmark = pytest.mark.slow

T = TopicPartition("t", 0)


class HandmadeHistory:
    """A history in the making: each operation takes a second."""

    def __init__(self) -> None:
        self._now = 0.0
        self.history = History(self._tick)

    def _tick(self) -> float:
        self._now += 0.5
        return self._now

    def send(
        self,
        *values: str,
        at: int | None = None,
        outcome: OperationOutcome = OperationOutcome.OK,
        tries: int = 1,
        idempotent: bool = True,
    ) -> HandmadeHistory:
        operation = self.history.begin("p", Send(partition=T, values=values, is_idempotent=idempotent))
        operation.tries = tries
        self.history.end(operation, outcome, at)
        return self

    def poll(
        self, position: int, *records: tuple[int, str], end: int | None = None, high_watermark: int = 100
    ) -> HandmadeHistory:
        operation = self.history.begin("c", Poll(partition=T, position=position))
        next_offset = end if end is not None else max((offset for offset, _ in records), default=position - 1) + 1
        self.history.end(operation, OperationOutcome.OK, PollResult(records, high_watermark, 0, next_offset))
        return self

    def commit(self, offset: int, outcome: OperationOutcome = OperationOutcome.OK) -> HandmadeHistory:
        self.history.end(self.history.begin("c", Commit(group="g", partition=T, offset=offset)), outcome)
        return self

    def read_commit(self, offset: int, *, is_current: bool = False) -> HandmadeHistory:
        read = ReadCommit(group="g", partition=T, is_current=is_current)
        self.history.end(self.history.begin("c", read), OperationOutcome.OK, offset)
        return self

    def trim(self, before_offset: int, outcome: OperationOutcome = OperationOutcome.OK) -> HandmadeHistory:
        operation = self.history.begin("a", Trim(partition=T, before_offset=before_offset))
        self.history.end(operation, outcome, before_offset)
        return self

    def find_start(self, told: int) -> HandmadeHistory:
        self.history.end(self.history.begin("c", LogStartLookup(partition=T)), OperationOutcome.OK, told)
        return self

    def look_up(self, timestamp_ms: int, told: int) -> HandmadeHistory:
        operation = self.history.begin("c", OffsetLookup(partition=T, timestamp_ms=timestamp_ms))
        self.history.end(operation, OperationOutcome.OK, (told, timestamp_ms if told >= 0 else -1))
        return self

    def kinds(self, *values: str, start: int = 0, drained: bool = False) -> list[str]:
        final: Final = {T: FinalLog(records=dict(enumerate(values)), log_start_offset=start)}
        found = check(self.history, final, drained=frozenset({("c", T)} if drained else ()))
        return sorted({anomaly.kind for anomaly in found})


def test_a_history_in_which_nothing_is_wrong() -> None:
    past = (
        HandmadeHistory()
        .send("a", "b", at=0)
        .send("c", outcome=OperationOutcome.INFO)
        .send("d", outcome=OperationOutcome.FAIL)
        .send("e", at=3)
    )
    past.poll(0, (0, "a"), (1, "b")).commit(2).read_commit(2).poll(2, (2, "c")).poll(3).commit(3, OperationOutcome.INFO)
    past.read_commit(2).read_commit(3).poll(3, (3, "e"))
    assert past.kinds("a", "b", "c", "e", drained=True) == []


def test_lost_write() -> None:
    assert HandmadeHistory().send("a", at=0).kinds() == ["inconsistent offset", "lost write"]


def test_a_write_below_the_log_start_is_not_lost() -> None:
    final: Final = {T: FinalLog(log_start_offset=1, records={1: "b"})}
    assert check(HandmadeHistory().send("a", "b", at=0).history, final) == []


def test_a_write_that_nobody_acknowledged_may_be_lost() -> None:
    assert HandmadeHistory().send("a", outcome=OperationOutcome.INFO).kinds() == []


def test_duplicate_of_an_idempotent_producer() -> None:
    assert HandmadeHistory().send("a", at=0, tries=2).kinds("a", "a") == ["duplicate"]


def test_a_producer_without_idempotence_that_tried_again_may_write_twice() -> None:
    assert HandmadeHistory().send("a", at=1, tries=2, idempotent=False).kinds("a", "a") == []
    assert HandmadeHistory().send("a", at=1, idempotent=False).kinds("a", "a") == ["duplicate"]


def test_inconsistent_offsets_between_a_reader_and_the_end() -> None:
    past = HandmadeHistory().send("a", outcome=OperationOutcome.INFO).send("b", at=0).poll(0, (0, "a"))
    assert past.kinds("b") == ["inconsistent offset"]


def test_what_was_read_and_is_gone() -> None:
    past = HandmadeHistory().send("a", outcome=OperationOutcome.INFO).poll(0, (0, "a"))
    assert past.kinds() == ["inconsistent offset"]


def test_aborted_read() -> None:
    assert HandmadeHistory().send("a", outcome=OperationOutcome.FAIL).kinds("a") == ["aborted read"]


def test_phantom() -> None:
    assert HandmadeHistory().kinds("a") == ["phantom"]


def test_non_monotonic_send() -> None:
    assert HandmadeHistory().send("a", at=1).send("b", at=0).kinds("b", "a") == ["non-monotonic send"]


def test_what_was_given_up_without_idempotence_may_be_written_late() -> None:
    past = (
        HandmadeHistory().send("a", outcome=OperationOutcome.INFO, idempotent=False).send("b", at=0, idempotent=False)
    )
    assert past.kinds("b", "a") == []


def test_non_monotonic_poll() -> None:
    past = HandmadeHistory().send("a", "b", at=0).poll(0, (1, "b"), (0, "a"), end=2)
    assert past.kinds("a", "b") == ["non-monotonic poll"]
    past = HandmadeHistory().send("a", "b", at=0).poll(1, (0, "a"), (1, "b"), end=2)
    assert past.kinds("a", "b") == ["non-monotonic poll"]
    sent_back = HandmadeHistory().send("a", "b", at=0).poll(0, (0, "a"), (1, "b"), end=0).poll(0, (0, "a"), (1, "b"))
    assert sent_back.kinds("a", "b") == ["non-monotonic poll"]


def test_a_consumer_may_begin_again() -> None:
    past = HandmadeHistory().send("a", "b", at=0).poll(0, (0, "a")).poll(0, (0, "a"), (1, "b"))
    assert past.kinds("a", "b") == []


def test_poll_skip() -> None:
    past = HandmadeHistory().send("a", "b", at=0).poll(0, (1, "b"))
    assert past.kinds("a", "b") == ["poll skip"]


def test_unseen() -> None:
    past = HandmadeHistory().send("a", "b", at=0).poll(0, (0, "a"))
    assert past.kinds("a", "b") == []
    assert past.kinds("a", "b", drained=True) == ["unseen"]


@pytest.mark.parametrize(
    ("told", "asked", "kinds"), [(2, 2, []), (2, 3, []), (2, 1, ["unseen"]), (1, 2, ["unseen"]), (2, 0, ["unseen"])]
)
def test_what_was_said_to_be_deleted_need_not_be_seen_though_it_is_there_again(
    told: int, asked: int, kinds: list[str]
) -> None:
    past = (
        HandmadeHistory()
        .poll(0)
        .send("a", "b", "c", at=0)
        .trim(asked, OperationOutcome.INFO)
        .find_start(told)
        .poll(2, (2, "c"))
    )
    assert past.kinds("a", "b", "c", drained=True) == kinds


@pytest.mark.parametrize("told", [0, 2, -1])
def test_wrong_lookup(told: int) -> None:
    """Of what was shown before, the second record is the first of that time."""
    past = HandmadeHistory().send("a", "b", "c", at=0).poll(0, (0, "a"), (1, "b"), (2, "c"))
    final: Final = {T: FinalLog(records=dict(enumerate("abc")), times={0: 10, 1: 20, 2: 30}, log_start_offset=0)}
    assert check(past.look_up(15, 1).history, final) == []
    assert [anomaly.kind for anomaly in check(past.look_up(15, told).history, final)] == ["wrong lookup"]


def test_a_leader_that_was_replaced_need_not_find_what_others_have_written_since() -> None:
    past = HandmadeHistory().send("a", at=0).poll(0, (0, "a")).send("b", at=1)
    final: Final = {T: FinalLog(records={0: "a", 1: "b"}, times={0: 10, 1: 20}, log_start_offset=0)}
    assert check(past.look_up(15, -1).history, final) == []


def test_above_the_high_watermark() -> None:
    past = HandmadeHistory().send("a", "b", at=0).poll(0, (0, "a"), (1, "b"), high_watermark=1)
    assert past.kinds("a", "b") == ["above high watermark"]


@pytest.mark.parametrize("read", [-1, 1, 4])
def test_lost_commit(read: int) -> None:
    past = HandmadeHistory().commit(1).commit(2).read_commit(read, is_current=True)
    assert past.kinds() == ["lost commit"]


def test_a_coordinator_that_was_replaced_may_answer_with_what_it_knew() -> None:
    assert HandmadeHistory().commit(1).commit(2).read_commit(1).kinds() == []


def test_a_commit_that_was_refused_does_not_count() -> None:
    past = HandmadeHistory().commit(1).commit(2, OperationOutcome.FAIL).read_commit(2)
    assert past.kinds() == ["lost commit"]


def test_an_anomaly_says_where_and_who() -> None:
    past = HandmadeHistory().send("a", at=0)
    lost = check(past.history, {T: FinalLog(records={})})[0]
    assert str(lost) == "lost write: t-0@0 = 'a', acknowledged to p at 1.000 s, is not there at the end"


def test_other_partitions_are_not_looked_at() -> None:
    operation = HandmadeHistory().send("a", at=0).history
    operation.operations[0].action = dataclasses.replace(
        operation.operations[0].action, partition=TopicPartition("deleted", 0)
    )
    assert check(operation, {T: FinalLog(records={})}) == []


def test_commits_at_the_same_time_may_come_in_either_order() -> None:
    past = HandmadeHistory()
    both = [past.history.begin(f"m{offset}", Commit(group="g", partition=T, offset=offset)) for offset in (1, 2)]
    for each in both:
        past.history.end(each, OperationOutcome.OK)
    assert past.read_commit(1, is_current=True).kinds() == []


def test_what_an_unclean_election_may_lose() -> None:
    past = HandmadeHistory().send("a", at=0).send("b", at=1).poll(0, (0, "a"), (1, "b"))
    past.history.operations[1].leader_epoch = 3
    final = FinalLog(records={0: "a", 1: "c"})
    assert "lost write" in {each.kind for each in check(past.history, {T: final})}
    past.send("c", at=1)
    lost = dataclasses.replace(final, unclean=(UncleanElection(1, 4),))
    assert check(past.history, {T: lost}) == []
    too_high = dataclasses.replace(final, unclean=(UncleanElection(2, 4),))
    assert "lost write" in {each.kind for each in check(past.history, {T: too_high})}
    before_it_was_sent = dataclasses.replace(final, unclean=(UncleanElection(1, 3),))
    assert [each.kind for each in check(past.history, {T: before_it_was_sent})] == ["lost write"]


def test_a_log_start_that_moves_back() -> None:
    past = HandmadeHistory().trim(2)
    final = FinalLog(log_start_offset=1, records={})
    assert [each.kind for each in check(past.history, {T: final})] == ["log start moved back"]
    assert check(past.history, {T: dataclasses.replace(final, keeps_start=False)}) == []
    assert check(past.history, {T: dataclasses.replace(final, unclean=(UncleanElection(5, 4),))}) == []


def test_an_answer_with_another_epoch_than_the_record_is_wrong() -> None:
    past = HandmadeHistory()
    for offset, epoch in ((0, 1), (1, 2), (2, 3)):
        past.history.end(past.history.begin("c", EpochLookup(partition=T)), OperationOutcome.OK, (offset, epoch))
    final = {T: FinalLog(log_start_offset=1, records={1: "a", 2: "b"}, epochs={1: 2, 2: 2})}
    assert [anomaly.kind for anomaly in check(past.send("a", "b", at=1).history, final)] == ["wrong epoch"]
