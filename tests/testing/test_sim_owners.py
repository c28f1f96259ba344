"""Answers to members of groups and their commits: anomalies in hand-made histories."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.testing.sim.checks.history import AdminOperation, Commit, History, OperationOutcome
from sparklog.testing.sim.checks.owners import JOINS, LEAVES_FOR_A_WHILE, MemberAnswer, MemberRequest, check_owners

pytestmark = pytest.mark.slow

P0, P1 = TopicPartition("log", 0), TopicPartition("log", 1)


@dataclass
class GroupHistory:
    """A history of one group. Each operation takes 0.1 s and ends well, and the next one begins 0.1 s later."""

    now: float = 0.0
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(lambda: self.now)

    def told(
        self, member: str, epoch: int, *owned: TopicPartition, sent: int = JOINS, instance: str | None = None,
        is_classic: bool = False,
    ) -> None:  # fmt: skip
        """A member sends the epoch `sent`, and is told its epoch and the partitions that it owns."""
        stay = MemberRequest(group="g", member_id=member, instance_id=instance, epoch=sent, is_classic=is_classic)
        operation = self.history.begin(member, stay)
        self.now += 0.1
        self.history.end(operation, OperationOutcome.OK, MemberAnswer(member, epoch, owned, "a:1"))
        self.now += 0.1

    def commits(self, member: str, epoch: int, instance: str | None = None) -> None:
        action = Commit(group="g", partition=P0, offset=1, member_id=member, instance_id=instance, epoch=epoch)
        operation = self.history.begin(member, action)
        self.now += 0.1
        self.history.end(operation, OperationOutcome.OK, "a:1")
        self.now += 0.1

    def deletes(self, topic: str) -> None:
        operation = self.history.begin("admin", AdminOperation(text=f"delete {topic}", deletes=topic))
        self.now += 0.1
        self.history.end(operation, OperationOutcome.INFO, "no answer")
        self.now += 0.1

    def kinds(self, *, is_doubled: bool = False) -> list[str]:
        return [each.kind for each in check_owners(self.history, 3.0, is_doubled=is_doubled)]


@pytest.fixture
def group() -> GroupHistory:
    return GroupHistory()


def test_a_partition_goes_from_one_member_to_the_next(group: GroupHistory) -> None:
    group.told("a", 1, P0, P1)
    group.commits("a", 1)
    group.told("a", 1, P1, sent=1)
    group.told("a", 2, P1, sent=1)
    group.told("b", 2, P0)
    group.commits("b", 2)
    assert group.kinds() == []


def test_two_members_own_a_partition_in_one_epoch(group: GroupHistory) -> None:
    group.told("a", 1, P0)
    group.told("b", 1, P0)
    assert group.kinds() == ["two owners"]


def test_a_member_commits_after_the_next_one_was_told(group: GroupHistory) -> None:
    group.told("a", 1, P0)
    group.told("b", 2, P0)
    group.commits("a", 1)
    assert group.kinds() == ["late owner"]


def test_a_member_commits_while_the_next_one_is_told(group: GroupHistory) -> None:
    """It is unknown then which of the two was first."""
    group.told("a", 1, P0)
    commit = group.history.begin("a", Commit(group="g", partition=P0, offset=1, member_id="a", epoch=1))
    group.told("b", 2, P0)
    group.history.end(commit, OperationOutcome.OK, "a:1")
    assert group.kinds() == []


def test_a_replaced_static_member_commits(group: GroupHistory) -> None:
    group.told("a", 1, P0, instance="i")
    group.now += 10
    group.told("b", 1, P0, instance="i")
    group.commits("a", 1, "i")
    assert group.kinds() == ["two of one instance"]


def test_a_static_member_joins_while_the_one_before_it_is_there(group: GroupHistory) -> None:
    group.told("a", 1, P0, instance="i")
    group.commits("a", 1, "i")
    group.told("b", 1, P0, instance="i")
    assert group.kinds() == ["two of one instance"]


def test_a_classic_member_that_has_replaced_another_one_joins_again(group: GroupHistory) -> None:
    group.told("a", 1, P0, instance="i", is_classic=True)
    group.commits("a", 1, instance="i")
    for epoch in (1, 2):
        group.told("b", epoch, P0, instance="i", is_classic=True)
    assert group.kinds() == []


@pytest.mark.parametrize("why", ["left", "silent", "unknown"])
def test_a_static_member_joins_after_the_one_before_it(group: GroupHistory, why: str) -> None:
    group.told("a", 1, P0, instance="i")
    if why != "unknown":  # perhaps a replaced coordinator has answered
        group.commits("a", 1, "i")
    if why == "left":
        group.told("a", -2, sent=LEAVES_FOR_A_WHILE, instance="i")
    if why == "silent":
        group.now += 2
    group.told("b", 1, P0, instance="i")
    assert group.kinds() == []


def test_a_partition_is_taken_while_its_member_is_away(group: GroupHistory) -> None:
    group.told("a", 1, P0, instance="i")
    group.told("a", -2, sent=LEAVES_FOR_A_WHILE, instance="i")
    group.told("b", 2, P0)
    assert group.kinds() == ["taken while away"]
    assert group.kinds(is_doubled=True) == []


def test_a_partition_of_a_deleted_topic_is_not_taken(group: GroupHistory) -> None:
    group.told("a", 1, P0, instance="i")
    group.deletes(P0.topic)
    group.told("a", -2, sent=LEAVES_FOR_A_WHILE, instance="i")
    group.told("b", 2, P0)
    assert group.kinds() == []


@pytest.mark.parametrize("why", ["silent", "back"])
def test_a_partition_is_taken_after_its_member_was_away(group: GroupHistory, why: str) -> None:
    group.told("a", 1, P0, instance="i")
    group.told("a", -2, sent=LEAVES_FOR_A_WHILE, instance="i")
    if why == "silent":
        group.now += 2
    else:
        group.told("c", 1, P0, instance="i")
    group.told("b", 2, P0)
    assert group.kinds() == []
