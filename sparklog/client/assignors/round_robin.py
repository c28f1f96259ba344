"""roundrobin: all partitions of all topics in order, assigned to the members in turn.

A member without a subscription to the topic is skipped. The assignment is even if all members have the same topics.
(org.apache.kafka.clients.consumer.RoundRobinAssignor)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sparklog.base.ids import TopicPartition
from sparklog.client.assignors.assignor import (
    Assignments,
    Assignor,
    Member,
    PartitionCounts,
    in_order,
    subscribers_by_topic,
)


def assign(partitions: PartitionCounts, members: Sequence[Member]) -> Assignments:
    """Implement `Assignor.assign`."""
    assigned: Assignments = {member.member_id: [] for member in members}
    turns = itertools.cycle(in_order(members))
    for topic, wanting in subscribers_by_topic(partitions, members).items():
        ids = {member.member_id for member in wanting}
        for number in range(partitions[topic]):
            member = next(member for member in turns if member.member_id in ids)
            assigned[member.member_id].append(TopicPartition(topic, number))
    return assigned


ROUND_ROBIN = Assignor(name="roundrobin", assign=assign)
