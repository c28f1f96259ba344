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
    owned = _keep(spec, subscribers)
    sizes = {member_id: sum(map(len, topics.values())) for member_id, topics in owned.items()}
    free = _free(spec, subscribers, owned)
    if all(len(members) == len(spec.members) for members in subscribers.values()):
        _assign_evenly(owned, sizes, free)
    else:
        _assign_to_least(owned, sizes, free, subscribers)
        _balance(owned, sizes, subscribers)
    return {
        member_id: {topic: frozenset(partitions) for topic, partitions in topics.items() if partitions}
        for member_id, topics in owned.items()
    }


def _keep(spec: GroupSpec, subscribers: Mapping[UUID, list[str]]) -> Owned:
    """What each member has now and may keep: it is subscribed, the partition exists, and nobody before it has it."""
    taken: set[tuple[UUID, int]] = set()
    owned: Owned = {}
    for member_id in sorted(spec.members):
        member = spec.members[member_id]
        mine = owned.setdefault(member_id, {})
        for topic in sorted(member.partitions.keys() & member.topics & subscribers.keys()):
            kept = {
                partition
                for partition in member.partitions[topic]
                if partition < spec.partition_counts[topic] and (topic, partition) not in taken
            }
            taken.update((topic, partition) for partition in kept)
            mine[topic] = kept
    return owned


def _free(spec: GroupSpec, subscribers: Mapping[UUID, list[str]], owned: Owned) -> list[tuple[UUID, int]]:
    taken = {
        (topic, partition)
        for topics in owned.values()
        for topic, partitions in topics.items()
        for partition in partitions
    }
    return [
        (topic, partition)
        for topic in subscribers
        for partition in range(spec.partition_counts[topic])
        if (topic, partition) not in taken
    ]


def _assign_evenly(owned: Owned, sizes: dict[str, int], free: list[tuple[UUID, int]]) -> None:
    if not owned:
        return
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
    owned: Owned, sizes: dict[str, int], free: list[tuple[UUID, int]], subscribers: Mapping[UUID, list[str]]
) -> None:
    """Topics with the most free partitions for each subscriber first: the others can still even things out."""
    by_topic: dict[UUID, list[int]] = {}
    for topic, partition in free:
        by_topic.setdefault(topic, []).append(partition)
    for topic in sorted(by_topic, key=lambda t: (-len(by_topic[t]) / len(subscribers[t]), len(subscribers[t]), t)):
        heap = [(sizes[member_id], member_id) for member_id in subscribers[topic]]
        heapify(heap)
        for partition in by_topic[topic]:
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
