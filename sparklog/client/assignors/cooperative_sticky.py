"""cooperative-sticky: as sticky, but a partition that another member still reads is not assigned yet.

The member that loses the partition gives it up and joins again; the rebalance that follows can assign it. So no two
members ever read a partition, and members never stop reading the partitions that they keep.

The subscription itself contains the partitions that a member reads, and from version 2 on the generation; in older
versions the generation is the user data. It is written to both.
(org.apache.kafka.clients.consumer.CooperativeStickyAssignor)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from sparklog.base.consumer_protocol import NO_GENERATION, Reader
from sparklog.base.ids import TopicPartition
from sparklog.client.assignors.assignor import Assignments, Assignor, Member, PartitionCounts
from sparklog.client.assignors.sticky import Had, assign_sticky


def assign(partitions: PartitionCounts, members: Sequence[Member]) -> Assignments:
    balanced = assign_sticky(partitions, members, {member.member_id: had(member) for member in members})
    readers: dict[TopicPartition, set[str]] = {}
    for member in members:
        for partition in member.subscription.owned:
            readers.setdefault(partition, set()).add(member.member_id)
    return {
        member_id: [item for item in found if not readers.get(item, set()) - {member_id}]
        for member_id, found in balanced.items()
    }


def had(member: Member) -> Had:
    """Return the partitions that the member reads, and their generation."""
    subscription = member.subscription
    generation = subscription.generation
    if generation == NO_GENERATION and subscription.user_data and len(subscription.user_data) >= 4:
        generation = Reader(subscription.user_data).int32()
    return subscription.owned, generation


def user_data(previous: Sequence[TopicPartition], generation: int) -> bytes | None:
    return struct.pack(">i", generation)


COOPERATIVE_STICKY = Assignor(name="cooperative-sticky", assign=assign, user_data=user_data, cooperative=True)
