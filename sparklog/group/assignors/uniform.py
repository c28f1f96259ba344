"""The uniform assignor: assigns as evenly as subscriptions allow, and moves as few partitions as possible.

As org.apache.kafka.coordinator.group.assignor.UniformAssignor: balance comes first, stickiness second, and racks are
ignored. Each member keeps the partitions that it may keep. Free partitions go to the members with the fewest. Then
partitions move until the assignment is balanced.

Homogeneous subscriptions (all members subscribe to the same topics): sizes differ by at most one, and a member gives up
only partitions beyond its share. If the count does not divide, the larger shares go to the members that keep the most
partitions. Kafka gives them out in the order of its hash map instead, which moves partitions that could have stayed.

Heterogeneous subscriptions: in the result, no subscriber of a partition's topic has two or more partitions fewer than
its owner. As in Kafka, only single moves are tried, not chains through a third member.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from uuid import UUID

from sparklog.group.assignors.spec import GroupSpec, Partitions

Owned = dict[str, dict[UUID, set[int]]]


def assign_uniform(spec: GroupSpec) -> Mapping[str, Partitions]:
    """Return each member's partitions by topic id; every member is in the result."""
    subscribers = spec.subscribers()
    free = {topic: set(range(spec.partition_counts[topic])) for topic in subscribers}
    owned = _keep(spec, free)
    sizes = {member_id: sum(map(len, topics.values())) for member_id, topics in owned.items()}
    if all(len(members) == len(spec.members) for members in subscribers.values()):
        _assign_evenly(owned, sizes, free)
    else:
        _assign_to_least(owned, sizes, free, subscribers)
        _balance(owned, sizes, subscribers)
    return {
        member_id: {topic: frozenset(partitions) for topic, partitions in topics.items() if partitions}
        for member_id, topics in owned.items()
    }


def _keep(spec: GroupSpec, free: dict[UUID, set[int]]) -> Owned:
    """Return the partitions that each member keeps, and remove them from `free`.

    A member keeps a partition if it is subscribed to the topic, and the partition exists and is still free.
    """
    owned: Owned = {}
    for member_id in sorted(spec.members):
        member = spec.members[member_id]
        mine = owned[member_id] = {}
        for topic, partitions in member.partitions.items():
            if topic in member.topics and topic in free:
                mine[topic] = free[topic].intersection(partitions)
                free[topic] -= partitions
    return owned


def _assign_evenly(owned: Owned, sizes: dict[str, int], unassigned: dict[UUID, set[int]]) -> None:
    if not owned:
        return
    free = [(topic, partition) for topic, partitions in unassigned.items() for partition in partitions]
    share, extra = divmod(sum(sizes.values()) + len(free), len(owned))
    order = sorted(owned, key=lambda member_id: (-sizes[member_id], member_id))
    quotas = {member_id: share + (place < extra) for place, member_id in enumerate(order)}
    for member_id, quota in quotas.items():
        for topic in sorted(owned[member_id], reverse=True):
            partitions = owned[member_id][topic]
            while partitions and sizes[member_id] > quota:
                partition = max(partitions)
                partitions.remove(partition)
                free.append((topic, partition))
                sizes[member_id] -= 1
    free.sort(reverse=True)
    for member_id in sorted(quotas):
        while sizes[member_id] < quotas[member_id]:
            _give(owned, sizes, member_id, *free.pop())


def _assign_to_least(
    owned: Owned, sizes: dict[str, int], free: dict[UUID, set[int]], subscribers: Mapping[UUID, list[str]]
) -> None:
    """Give free partitions to the subscribers with the fewest.

    Topics with the most free partitions per subscriber come first: the others can still even out the sizes.
    """
    for topic in sorted(free, key=lambda t: (-len(free[t]) / len(subscribers[t]), len(subscribers[t]), t)):
        heap = [(sizes[member_id], member_id) for member_id in subscribers[topic]]
        heapify(heap)
        for partition in sorted(free[topic]):
            _, member_id = heappop(heap)
            _give(owned, sizes, member_id, topic, partition)
            heappush(heap, (sizes[member_id], member_id))


def _balance(owned: Owned, sizes: dict[str, int], subscribers: Mapping[UUID, list[str]]) -> None:
    """Move partitions one by one. Every move reduces the sum of the squared sizes, so the loop ends."""
    moved = True
    while moved:
        moved = False
        for topic, members in subscribers.items():
            while True:
                most = max((m for m in members if owned[m].get(topic)), key=sizes.__getitem__)
                least = min(members, key=sizes.__getitem__)
                if sizes[most] <= sizes[least] + 1:
                    break
                partition = max(owned[most][topic])
                owned[most][topic].remove(partition)
                sizes[most] -= 1
                _give(owned, sizes, least, topic, partition)
                moved = True


def _give(owned: Owned, sizes: dict[str, int], member_id: str, topic: UUID, partition: int) -> None:
    owned[member_id].setdefault(topic, set()).add(partition)
    sizes[member_id] += 1
