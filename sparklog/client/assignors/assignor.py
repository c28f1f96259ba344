"""Definition of an assignor: a name, and a pure function from the members' subscriptions to their assignments.

Every partition of a topic with subscribers goes to exactly one of them; cooperative assignors may leave it unassigned
until the next rebalance. Members are ordered as in Java's assignors: those with an instance id first, by that id, then
the others by member id. So a group gets the same assignment whichever member leads it.
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
"""Number of partitions of each topic. A topic that does not exist has 0, or is not in it."""

Assignments = dict[str, list[TopicPartition]]
"""Partitions of each member, by member id; contains every member."""


def no_user_data(previous: Sequence[TopicPartition], generation: int) -> bytes | None:
    """Return None: most assignors send the leader no data of their own."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignor:
    """One way to assign partitions to members."""

    name: str
    assign: Callable[[PartitionCounts, Sequence[Member]], Assignments]
    user_data: Callable[[Sequence[TopicPartition], int], bytes | None] = no_user_data
    """Returns what a member adds to its subscription, given its last assignment and the generation of that."""
    cooperative: bool = False
    """Whether members may keep reading during a rebalance (KIP-429): a partition that moves is first revoked, and
    only assigned in the rebalance after that."""


def in_order(members: Iterable[Member]) -> list[Member]:
    """Return the members in the order of Java's assignors; see above."""
    return sorted(
        members,
        key=lambda member: (member.group_instance_id is None, member.group_instance_id or "", member.member_id),
    )


def subscribers_by_topic(partitions: PartitionCounts, members: Iterable[Member]) -> dict[str, list[Member]]:
    """Return the members that want each existing topic: members in the order given, topics sorted."""
    found: dict[str, list[Member]] = {}
    for member in members:
        for topic in set(member.subscription.topics):
            if partitions.get(topic, 0) > 0:
                found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))
