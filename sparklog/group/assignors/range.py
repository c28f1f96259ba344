"""The range assignor: each member gets one run of neighbouring partitions of every topic it is subscribed to.

As org.apache.kafka.coordinator.group.assignor.RangeAssignor of Kafka 4: members stand in an order (static ones first,
by instance id, then the others by member id), and each takes the next run; the first ones take one partition more
where the count does not divide. So topics with the same number of partitions and the same subscribers are
co-partitioned: partition n of all of them is with the same member. What was assigned before plays no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from sparklog.group.assignors.spec import GroupSpec, Partitions


def assign_range(spec: GroupSpec) -> Mapping[str, Partitions]:
    ranks = {member_id: rank for rank, member_id in enumerate(sorted(spec.members, key=lambda m: _order(spec, m)))}
    result: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in spec.members}
    for topic, members in spec.subscribers().items():
        quota, extra = divmod(spec.partition_counts[topic], len(members))
        start = 0
        for place, member_id in enumerate(sorted(members, key=ranks.__getitem__)):
            end = start + quota + (place < extra)
            if start < end:
                result[member_id][topic] = frozenset(range(start, end))
            start = end
    return result


def _order(spec: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = spec.members[member_id].instance_id
    return (True, member_id) if instance_id is None else (False, instance_id)
