"""The range assignor: each member gets one range of consecutive partitions of every topic that it is subscribed to.

As org.apache.kafka.coordinator.group.assignor.RangeAssignor of Kafka 4: the members are sorted (static members first,
by instance id, then the others by member id), and each takes the next range. If the count does not divide, the first
members take one partition more. So topics with the same number of partitions and the same subscribers are
co-partitioned: partition n of all of them belongs to the same member. The previous assignment is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from sparklog.group.assignors.spec import GroupSpec, Partitions


def assign_range(spec: GroupSpec) -> Mapping[str, Partitions]:
    """Return each member's partitions by topic id; every member is in the result."""
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
