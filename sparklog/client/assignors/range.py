"""range: the partitions of each topic in order, one run of them for each subscriber.

If the partitions do not divide evenly, the first members get one more. Topics with the same number of partitions and
the same subscribers are divided alike: one member reads partition n of all of them, which a join needs.
(org.apache.kafka.clients.consumer.RangeAssignor, without racks)
"""

from __future__ import annotations

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
    for topic, wanting in subscribers_by_topic(partitions, in_order(members)).items():
        each, more = divmod(partitions[topic], len(wanting))
        first = 0
        for number, member in enumerate(wanting):
            after = first + each + (number < more)
            assigned[member.member_id] += [TopicPartition(topic, item) for item in range(first, after)]
            first = after
    return assigned


RANGE = Assignor(name="range", assign=assign)
