"""What an assignor is: a name, and a pure function from what members want to what each of them gets.

Every partition of every topic that somebody wants goes to exactly one member that wants it. Members are taken in the
order of Java's assignors: those with an instance id first, by it, then the others by member id; so the same group has
the same assignment whoever leads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparklog.base.consumer_protocol import Subscription
from sparklog.base.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of the group, as the leader sees it."""

    member_id: str
    group_instance_id: str | None = None
    subscription: Subscription


PartitionCounts = Mapping[str, int]
"""How many partitions each topic has. A topic that does not exist is not in it."""

Assignments = dict[str, list[TopicPartition]]
"""What each member gets, by member id; all members are in it."""


def no_user_data(previous: Sequence[TopicPartition], generation: int) -> bytes | None:
    """Most assignors tell the leader nothing of their own."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignor:
    """One way to share partitions out."""

    name: str
    assign: Callable[[PartitionCounts, Sequence[Member]], Assignments]
    user_data: Callable[[Sequence[TopicPartition], int], bytes | None] = no_user_data
    """What a member adds to its subscription, given its last assignment and the generation in which it got it."""
    cooperative: bool = False
    """Whether members may keep reading while they rebalance (KIP-429): what moves is first taken away, and only
    assigned in the rebalance after that."""


def in_order(members: Iterable[Member]) -> list[Member]:
    return sorted(
        members,
        key=lambda member: (member.group_instance_id is None, member.group_instance_id or "", member.member_id),
    )


def wanted_by(partitions: PartitionCounts, members: Iterable[Member]) -> dict[str, list[Member]]:
    """The members that want each topic, in the order given; topics in theirs. Only topics that exist."""
    found: dict[str, list[Member]] = {}
    for member in members:
        for topic in set(member.subscription.topics):
            if partitions.get(topic, 0) > 0:
                found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))
