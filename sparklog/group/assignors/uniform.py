"""The uniform assignor: as even as subscriptions allow, and as few partitions as possible change hands.

As org.apache.kafka.coordinator.group.assignor.UniformAssignor: balance first, stickiness second; the topics' racks play
no part. Each member keeps what it may keep; what is free goes to the member that has least; then partitions move.

Homogeneous subscriptions (all members to the same topics): sizes differ by one at most, and a member gives up only what
lies above its share. Members that have more than the lower share now are the ones that may have one more; Kafka hands
that out in the order of its hash map instead, which moves partitions that could have stayed.

Heterogeneous subscriptions: no partition can move to another subscriber of its topic that has two fewer. As in Kafka
only single moves are tried, not chains through a third member.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from uuid import UUID

from sparklog.group.assignors.spec import GroupSpec, Partitions

Owned = dict[str, dict[UUID, set[int]]]


def assign_uniform(spec: GroupSpec) -> Mapping[str, Partitions]:
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
    """What each member has now and may keep: it is subscribed, and the partition exists and is free; then it is not."""
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
    """Topics with the most free partitions for each subscriber first: the others can still even things out."""
    for topic in sorted(free, key=lambda t: (-len(free[t]) / len(subscribers[t]), len(subscribers[t]), t)):
        heap = [(sizes[member_id], member_id) for member_id in subscribers[topic]]
        heapify(heap)
        for partition in sorted(free[topic]):
            _, member_id = heappop(heap)
            _give(owned, sizes, member_id, topic, partition)
            heappush(heap, (sizes[member_id], member_id))


def _balance(owned: Owned, sizes: dict[str, int], subscribers: Mapping[UUID, list[str]]) -> None:
    """Move partitions one by one. Every move makes the sum of the squared sizes less, so there is an end."""
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
