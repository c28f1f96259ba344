"""Owners of partitions: the coordinators' answers to members of groups, and the invariants of these answers.

Time does not decide which member owns a partition. A late member may regard a partition as its own although the
coordinator has removed the member. The epoch protects the group: the coordinator gives a partition to the next member
in a later epoch, after the former member has given up the partition or was removed. So these must not happen:

    two owners           The coordinator gives a partition to two members in the same epoch. A static member that came
                         back is the same one
    late owner           A commit is accepted with a lower epoch than the one in which another member got the partition
                         before that commit began
    two of one instance  A commit of a static member is accepted after another member with its instance id has joined.
                         Or a replacement joined although the coordinator had a recent heartbeat of the old member and
                         no leave. Only members of KIP-848 refuse to be replaced
    taken while away     Another member gets a partition of a static member that has left for a while, whose session has
                         not ended, and that has not joined again. With requests that arrive twice, this may happen: the
                         first copy of an old heartbeat may say that the member owns nothing. Partitions of a topic that
                         was deleted do not count: one that has its name now belongs to whoever gets it first

The epoch of a classic member is its generation. SyncGroup answers its partitions.

A replaced coordinator answers heartbeats that change nothing, as in Apache Kafka. So a heartbeat alone does not show
that a member is known; a commit does. A member certainly exists for half a session after its last heartbeat, if the
same broker has accepted a commit since: if that broker was replaced in between, the sessions began anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sparklog.base.ids import TopicPartition
from sparklog.testing.sim.checks.checker import Anomaly
from sparklog.testing.sim.checks.history import AdminOperation, ClientOperation, Commit, History

JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
"""Epochs that a member sends instead of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRequest:
    """A member joins its group, stays in it, or leaves it. The result is a MemberAnswer."""

    group: str
    member_id: str
    instance_id: str | None = None
    epoch: int
    """The epoch in the request; 0 if a classic member joins."""
    is_classic: bool = False
    """Whether the member uses the classic protocol, which lets a static member be replaced at any time."""

    @property
    def joins(self) -> bool:
        """Whether the member joins anew."""
        return self.epoch == JOINS

    @property
    def leaves(self) -> bool:
        """Whether the member leaves, for good or, if it is static, for a while."""
        return self.epoch < JOINS


class MemberAnswer(NamedTuple):
    """The coordinator's answer to a member, and the coordinator's address."""

    member_id: str
    epoch: int
    partitions: tuple[TopicPartition, ...]
    broker: str


class _Grant(NamedTuple):
    """An answer that names a partition."""

    who: str
    epoch: int
    operation: ClientOperation


Grants = dict[tuple[str, TopicPartition], list[_Grant]]
Stays = list[tuple[ClientOperation, MemberRequest]]
Commits = list[tuple[ClientOperation, Commit]]


def check_owners(history: History, session_s: float, *, is_doubled: bool = False) -> list[Anomaly]:
    """Return all anomalies of this module.

    session_s: how long members may be silent
    is_doubled: whether requests arrived twice
    """
    told = [(operation, stay) for operation, stay in history.of(MemberRequest) if operation.is_ok]
    commits = [(operation, commit) for operation, commit in history.of(Commit) if operation.is_ok and commit.member_id]
    grants: Grants = {}
    for operation, stay in told:
        result: MemberAnswer = operation.result
        for partition in result.partitions:
            grant = _Grant(stay.instance_id or result.member_id, result.epoch, operation)
            grants.setdefault((stay.group, partition), []).append(grant)
    return [
        *_two_owners(grants),
        *_late_owners(grants, commits),
        *_replaced_members(told, commits),
        *_second_members(history, told, commits, session_s),
        *(() if is_doubled else _taken_while_away(history, told, grants, session_s)),
    ]


def _two_owners(grants: Grants) -> Iterator[Anomaly]:
    for (group, partition), told in grants.items():
        owners: dict[int, str] = {}
        for each in told:
            owner = owners.setdefault(each.epoch, each.who)
            if owner != each.who:
                yield Anomaly("two owners", f"{group}: {owner} and {each.who} own {partition} in epoch {each.epoch}")


def _late_owners(grants: Grants, commits: Commits) -> Iterator[Anomaly]:
    for operation, commit in commits:
        who = commit.instance_id or commit.member_id
        for each in grants.get((commit.group, commit.partition), ()):
            ended_at = each.operation.ended_at
            if each.who != who and each.epoch > commit.epoch and ended_at < operation.invoked_at:
                yield Anomaly(
                    "late owner",
                    f"{commit.group}: {who} committed for {commit.partition} with epoch {commit.epoch} at "
                    f"{operation.invoked_at:.3f} s; {each.who} had it in epoch {each.epoch} at {ended_at:.3f} s",
                )
                break


def _replaced_members(told: Stays, commits: Commits) -> Iterator[Anomaly]:
    joined: dict[tuple[str, str], list[ClientOperation]] = {}
    for operation, stay in told:
        if stay.joins and stay.instance_id:
            joined.setdefault((stay.group, stay.instance_id), []).append(operation)
    for operation, commit in commits:
        joins = joined.get((commit.group, commit.instance_id or ""), [])
        own = max((each.ended_at for each in joins if each.result.member_id == commit.member_id), default=None)
        for each in joins:
            if own is not None and own < each.invoked_at and each.ended_at < operation.invoked_at:
                yield Anomaly(
                    "two of one instance",
                    f"{commit.group}: {commit.member_id} committed at {operation.invoked_at:.3f} s; "
                    f"{each.result.member_id} had replaced it at {each.ended_at:.3f} s",
                )
                break


def _second_members(history: History, told: Stays, commits: Commits, session_s: float) -> Iterator[Anomaly]:
    leaves = [(operation, stay) for operation, stay in history.of(MemberRequest) if stay.leaves]
    for join, new in told:
        if not new.joins or new.instance_id is None or new.is_classic:
            continue
        for heard, old in told:
            is_other = old.instance_id == new.instance_id and old.group == new.group and not old.leaves
            if not is_other or heard.result.member_id == join.result.member_id:
                continue
            if not heard.ended_at < join.invoked_at <= join.ended_at < heard.invoked_at + session_s / 2:
                continue
            member_id = heard.result.member_id
            is_known = any(
                heard.ended_at < operation.invoked_at
                and operation.ended_at < join.invoked_at
                and commit.member_id == member_id
                and operation.result == heard.result.broker
                for operation, commit in commits
            )
            has_left = any(
                stay.member_id == member_id and heard.invoked_at < operation.invoked_at < join.ended_at
                for operation, stay in leaves
            )
            if is_known and not has_left:
                yield Anomaly(
                    "two of one instance",
                    f"{new.group}: {join.result.member_id} joined as {new.instance_id} at {join.ended_at:.3f} s; "
                    f"{member_id} was there at {heard.invoked_at:.3f} s",
                )
                break


def _taken_while_away(history: History, told: Stays, grants: Grants, session_s: float) -> Iterator[Anomaly]:
    deletions = [(change.deletes, operation.invoked_at) for operation, change in history.of(AdminOperation)]
    for left, away in told:
        if away.epoch != LEAVES_FOR_A_WHILE:
            continue
        own = [
            operation
            for operation, stay in told
            if stay.group == away.group
            and stay.member_id == away.member_id
            and operation.ended_at < left.invoked_at
            and operation.result.broker == left.result.broker
        ]
        if not own:
            continue
        returns = (
            operation.invoked_at
            for operation, stay in told
            if (stay.group, stay.instance_id) == (away.group, away.instance_id) and operation.invoked_at > left.ended_at
        )
        until = min([own[-1].invoked_at + session_s / 2, *returns])
        for partition in own[-1].result.partitions:
            for each in grants[away.group, partition]:
                granted_at = each.operation.ended_at
                is_meanwhile = left.ended_at < each.operation.invoked_at and granted_at < until
                may_be_recreated = any(
                    topic == partition.topic and invoked_at < granted_at for topic, invoked_at in deletions
                )
                if each.who != away.instance_id and is_meanwhile and not may_be_recreated:
                    yield Anomaly(
                        "taken while away",
                        f"{away.group}: {away.instance_id} left for a while at {left.ended_at:.3f} s; {each.who} had "
                        f"{partition} at {granted_at:.3f} s",
                    )
                    break
