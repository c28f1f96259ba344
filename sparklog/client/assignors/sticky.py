"""sticky and cooperative-sticky: even assignments that move few partitions.

sticky: the most even assignment; among several of them, one with few moves.

    claims           a member claims the partitions of its prior assignment. Of two claims the one with the later
                     generation counts; two of the same generation cancel each other. A partition that no longer exists,
                     or whose topic the member no longer subscribes to, is not claimed
    same topics      if all members subscribe to the same topics, each member keeps at most its share of its claims.
                     The remaining partitions fill up the other members
    different topics otherwise all claims stand, and each remaining partition goes to the subscriber with the fewest
                     partitions, topics with few subscribers first. Then partitions move, if necessary along chains of
                     members, while a member has at least two partitions more than another one that can take over

The user data of a member is its prior assignment: an array of topics with their partitions, then the generation
(version 1 of Java's StickyAssignor; version 0 has no generation).
(org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor; the order of moves is not Java's)

cooperative-sticky: as sticky, but a partition that another member still reads is not assigned yet.

The other member revokes the partition and joins again; the next rebalance assigns it. So two members never read one
partition, and members keep reading the partitions that they keep.

The subscription contains the partitions that a member reads and, from version 2 on, the generation. In older versions
the user data is the generation. Both are written.
(org.apache.kafka.clients.consumer.CooperativeStickyAssignor)
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping, Sequence

from sparklog.base.consumer_protocol import NO_GENERATION, ProtocolReader, write_partitions
from sparklog.base.ids import TopicPartition
from sparklog.client.assignors.assignor import (
    Assignments,
    Assignor,
    Member,
    PartitionCounts,
    in_order,
    subscribers_by_topic,
)

PriorAssignment = tuple[Sequence[TopicPartition], int]
"""The partitions of a member before the rebalance, and the generation that assigned them."""


def assign(partitions: PartitionCounts, members: Sequence[Member]) -> Assignments:
    """Implement `Assignor.assign`; the prior assignment of a member is its user data."""
    return assign_sticky(partitions, members, {member.member_id: reported_assignment(member) for member in members})


def assign_sticky(
    partitions: PartitionCounts, members: Sequence[Member], before: Mapping[str, PriorAssignment]
) -> Assignments:
    """Return the new assignment; `before` has the prior assignment of each member."""
    ordered = in_order(members)
    wanting = {
        topic: [member.member_id for member in found]
        for topic, found in subscribers_by_topic(partitions, ordered).items()
    }
    claimed = _claims(partitions, wanting, before)
    assigned: Assignments = {member.member_id: [] for member in ordered}
    if all(len(ids) == len(members) for ids in wanting.values()):
        _keep_shares(assigned, claimed, sum(partitions[topic] for topic in wanting))
    else:
        for partition, member_id in claimed.items():
            assigned[member_id].append(partition)
    taken = {partition for prior in assigned.values() for partition in prior}
    _fill(assigned, partitions, wanting, taken)
    _balance(assigned, wanting, claimed)
    return {member_id: sorted(found) for member_id, found in assigned.items()}


def _claims(
    partitions: PartitionCounts, wanting: Mapping[str, list[str]], before: Mapping[str, PriorAssignment]
) -> dict[TopicPartition, str]:
    """Return the member that claims each partition."""
    latest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, (prior, generation) in before.items():
        for item in set(prior):
            if not 0 <= item.partition < partitions.get(item.topic, 0) or member_id not in wanting.get(item.topic, ()):
                continue
            known, _ = latest.get(item, (NO_GENERATION - 1, None))
            if generation > known:
                latest[item] = generation, member_id
            elif generation == known:
                latest[item] = generation, None
    return {item: member_id for item, (_, member_id) in sorted(latest.items()) if member_id is not None}


def _keep_shares(assigned: Assignments, claimed: Mapping[TopicPartition, str], total: int) -> None:
    """Assign each member its claims up to its share; a remainder makes some shares larger by one."""
    claims: dict[str, list[TopicPartition]] = {member_id: [] for member_id in assigned}
    for partition, member_id in claimed.items():
        claims[member_id].append(partition)
    share, larger = divmod(total, len(assigned))
    for member_id, found in claims.items():
        keeps_more = larger > 0 and len(found) > share
        larger -= keeps_more
        assigned[member_id] += found[: share + keeps_more]


def _fill(
    assigned: Assignments,
    partitions: PartitionCounts,
    wanting: Mapping[str, list[str]],
    taken: set[TopicPartition],
) -> None:
    """Assign each remaining partition to the subscriber with the fewest partitions."""
    for topic, ids in sorted(wanting.items(), key=lambda item: (len(item[1]), item[0])):
        for number in range(partitions[topic]):
            partition = TopicPartition(topic, number)
            if partition not in taken:
                assigned[min(ids, key=lambda member_id: len(assigned[member_id]))].append(partition)


def _balance(assigned: Assignments, wanting: Mapping[str, list[str]], claimed: Mapping[TopicPartition, str]) -> None:
    """Move partitions along chains until there is none. Ends, as each chain reduces the sum of squared counts."""
    while chain := _chain(assigned, wanting):
        for giver, topic, taker in chain:
            movable = [item for item in assigned[giver] if item.topic == topic]
            partition = min(movable, key=lambda item: (claimed.get(item) != taker, claimed.get(item) == giver, item))
            assigned[giver].remove(partition)
            assigned[taker].append(partition)


def _chain(assigned: Assignments, wanting: Mapping[str, list[str]]) -> list[tuple[str, str, str]]:
    """Return the shortest chain of moves (giver, topic, taker) from a member to one with at least two fewer."""
    counts = {member_id: len(found) for member_id, found in assigned.items()}
    least = min(counts.values(), default=0)
    for start in sorted(counts, key=lambda member_id: (-counts[member_id], member_id)):
        if counts[start] - least < 2:
            return []
        reached: dict[str, list[tuple[str, str, str]]] = {start: []}
        queue = deque([start])
        while queue:
            giver = queue.popleft()
            for topic in sorted({item.topic for item in assigned[giver]}):
                for taker in sorted(wanting[topic], key=lambda member_id: (counts[member_id], member_id)):
                    if taker in reached:
                        continue
                    reached[taker] = [*reached[giver], (giver, topic, taker)]
                    if counts[start] - counts[taker] >= 2:
                        return reached[taker]
                    queue.append(taker)
    return []


def reported_assignment(member: Member) -> PriorAssignment:
    """Return the prior assignment from the member's user data; empty if it cannot be read."""
    data = member.subscription.user_data
    if not data:
        return (), NO_GENERATION
    reader = ProtocolReader(data)
    try:
        partitions = reader.partitions()
        return partitions, reader.int32() if reader.left else NO_GENERATION
    except ValueError:
        return (), NO_GENERATION


def user_data(previous: Sequence[TopicPartition], generation: int) -> bytes | None:
    """Return user data in the format of Java's StickyAssignor; None for a member without a prior assignment."""
    if generation == NO_GENERATION:
        return None
    return write_partitions(previous) + struct.pack(">i", generation)


STICKY = Assignor(name="sticky", assign=assign, user_data=user_data)


def assign_cooperatively(partitions: PartitionCounts, members: Sequence[Member]) -> Assignments:
    """Implement `Assignor.assign`, without the partitions that another member still reads."""
    balanced = assign_sticky(partitions, members, {member.member_id: owned_assignment(member) for member in members})
    readers: dict[TopicPartition, set[str]] = {}
    for member in members:
        for partition in member.subscription.owned:
            readers.setdefault(partition, set()).add(member.member_id)
    return {
        member_id: [item for item in found if not readers.get(item, set()) - {member_id}]
        for member_id, found in balanced.items()
    }


def owned_assignment(member: Member) -> PriorAssignment:
    """Return the partitions that the member reads, and their generation."""
    subscription = member.subscription
    generation = subscription.generation
    if generation == NO_GENERATION and subscription.user_data and len(subscription.user_data) >= 4:
        generation = ProtocolReader(subscription.user_data).int32()
    return subscription.owned, generation


def generation_data(previous: Sequence[TopicPartition], generation: int) -> bytes | None:
    """Return the user data of cooperative-sticky: the generation, as `Assignor.user_data`."""
    return struct.pack(">i", generation)


COOPERATIVE_STICKY = Assignor(
    name="cooperative-sticky", assign=assign_cooperatively, user_data=generation_data, cooperative=True
)
