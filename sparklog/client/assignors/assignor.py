"""Definition of an assignor: a name, and a pure function from the members' subscriptions to their assignments.

An assignor assigns every partition of a topic with subscribers to exactly one of them. A cooperative assignor may leave
a partition unassigned until the next rebalance. Members have the order of Java's assignors: static members by instance
id, then the others by member id. So the assignment is the same for every leader of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparklog.base.consumer_protocol import Subscription
from sparklog.base.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member and its subscription, from the JoinGroup response of the leader."""

    member_id: str
    group_instance_id: str | None = None
    subscription: Subscription


PartitionCounts = Mapping[str, int]
"""Number of partitions of each topic; 0 or no entry for a topic that does not exist."""

Assignments = dict[str, list[TopicPartition]]
"""Partitions by member id, with an entry for every member."""


def no_user_data(previous: Sequence[TopicPartition], generation: int) -> bytes | None:
    """Return None: the subscription has no user data."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignor:
    """One way to assign partitions to members."""

    name: str
    assign: Callable[[PartitionCounts, Sequence[Member]], Assignments]
    user_data: Callable[[Sequence[TopicPartition], int], bytes | None] = no_user_data
    """Returns the user data of a member's subscription, from its last assignment and the generation of that."""
    cooperative: bool = False
    """Whether members keep reading during a rebalance (KIP-429): one rebalance revokes a partition that moves, and
    the next one assigns it."""


def in_order(members: Iterable[Member]) -> list[Member]:
    """Return the members in the order of Java's assignors."""
    return sorted(
        members,
        key=lambda member: (member.group_instance_id is None, member.group_instance_id or "", member.member_id),
    )


def subscribers_by_topic(partitions: PartitionCounts, members: Iterable[Member]) -> dict[str, list[Member]]:
    """Return the subscribers of each existing topic: topics sorted, members in the order given."""
    found: dict[str, list[Member]] = {}
    for member in members:
        for topic in set(member.subscription.topics):
            if partitions.get(topic, 0) > 0:
                found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))
