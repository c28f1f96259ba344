"""sticky: as even as it can be, and among even assignments one that moves as little as possible.

    claims    each partition belongs to the member that says it had it, in the latest generation if several do; to
              nobody if two say so of the same generation. What a member no longer wants, or is gone, is no claim.
    alike     where all members want the same, each keeps at most its share, and what is left over fills the others
    unlike    where they do not, claims stand, what is left goes to whoever has least, those that few want first; then
              partitions move, along chains of members if need be, while one has at least two more than another that
              could be relieved by it

A member tells the leader what it had in its user data: an array of topics with their partitions, then the generation
(version 1 of Java's StickyAssignor; without the generation it is version 0).
(org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor; the order of moves is our own)
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping, Sequence

from sparklog.base.consumer_protocol import NO_GENERATION, Reader, write_partitions
from sparklog.base.ids import TopicPartition
from sparklog.client.assignors.assignor import Assignments, Assignor, Member, PartitionCounts, in_order, wanted_by

Had = tuple[Sequence[TopicPartition], int]
"""What a member had, and the generation in which it got that."""


def assign(partitions: PartitionCounts, members: Sequence[Member]) -> Assignments:
    return assign_sticky(partitions, members, {member.member_id: had(member) for member in members})


def assign_sticky(partitions: PartitionCounts, members: Sequence[Member], before: Mapping[str, Had]) -> Assignments:
    """The assignment, given what each member had."""
    ordered = in_order(members)
    wanting = {topic: [member.member_id for member in found] for topic, found in wanted_by(partitions, ordered).items()}
    claimed = _claims(partitions, wanting, before)
    assigned: Assignments = {member.member_id: [] for member in ordered}
    if all(len(ids) == len(members) for ids in wanting.values()):
        _keep_shares(assigned, claimed, sum(partitions[topic] for topic in wanting))
    else:
        for partition, member_id in claimed.items():
            assigned[member_id].append(partition)
    taken = {partition for had in assigned.values() for partition in had}
    _fill(assigned, partitions, wanting, taken)
    _balance(assigned, wanting, claimed)
    return {member_id: sorted(found) for member_id, found in assigned.items()}


def _claims(
    partitions: PartitionCounts, wanting: Mapping[str, list[str]], before: Mapping[str, Had]
) -> dict[TopicPartition, str]:
    """The member that each partition belongs to so far."""
    latest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, (had, generation) in before.items():
        for item in set(had):
            if not 0 <= item.partition < partitions.get(item.topic, 0) or member_id not in wanting.get(item.topic, ()):
                continue
            known, _ = latest.get(item, (NO_GENERATION - 1, None))
            if generation > known:
                latest[item] = generation, member_id
            elif generation == known:
                latest[item] = generation, None
    return {item: member_id for item, (_, member_id) in sorted(latest.items()) if member_id is not None}


def _keep_shares(assigned: Assignments, claimed: Mapping[TopicPartition, str], total: int) -> None:
    """Everybody keeps what it had, up to its share; as many as need be have a share that is larger by one."""
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
    """What nobody has goes to whoever has least, of those who want it."""
    for topic, ids in sorted(wanting.items(), key=lambda item: (len(item[1]), item[0])):
        for number in range(partitions[topic]):
            partition = TopicPartition(topic, number)
            if partition not in taken:
                assigned[min(ids, key=lambda member_id: len(assigned[member_id]))].append(partition)


def _balance(assigned: Assignments, wanting: Mapping[str, list[str]], claimed: Mapping[TopicPartition, str]) -> None:
    """Move partitions until nobody can be relieved. Ends: each round makes the sum of the squared counts smaller."""
    while chain := _chain(assigned, wanting):
        for giver, topic, taker in chain:
            movable = [item for item in assigned[giver] if item.topic == topic]
            partition = min(movable, key=lambda item: (claimed.get(item) != taker, claimed.get(item) == giver, item))
            assigned[giver].remove(partition)
            assigned[taker].append(partition)


def _chain(assigned: Assignments, wanting: Mapping[str, list[str]]) -> list[tuple[str, str, str]]:
    """The shortest chain of moves (giver, topic, taker) from a member to one that has at least two less."""
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


def had(member: Member) -> Had:
    """What the member says that it had: nothing, where its user data cannot be read."""
    data = member.subscription.user_data
    if not data:
        return (), NO_GENERATION
    reader = Reader(data)
    try:
        partitions = reader.partitions()
        return partitions, reader.int32() if reader.left else NO_GENERATION
    except ValueError:
        return (), NO_GENERATION


def user_data(previous: Sequence[TopicPartition], generation: int) -> bytes | None:
    """As Java's StickyAssignor writes it: nothing at all from a member that never had an assignment."""
    if generation == NO_GENERATION:
        return None
    return write_partitions(previous) + struct.pack(">i", generation)


STICKY = Assignor(name="sticky", assign=assign, user_data=user_data)
