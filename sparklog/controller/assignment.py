"""Assignment of new partitions' replicas to brokers, as in Apache Kafka (kafka.admin.AdminUtils).

Three aims, in this order: all brokers have equally many replicas and equally many first replicas; the other replicas of
one broker's partitions are spread over all other brokers; a partition's replicas are in different racks.

    first replicas        go round the brokers, beginning at `start`
    other replicas        go round from the first one, at a distance of `shift` + 1. The distance grows by one after
                          each round of the first replicas, so that the sets of replicas vary
    with racks            brokers are ordered so that racks alternate; a replica skips brokers in racks that already
                          have one, until every rack has one

Racks count only if every broker has one. If only some brokers have a rack, Kafka refuses to create topics; here racks
are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparklog.base.errors import InvalidPartitions, InvalidReplicationFactor

Racks = Mapping[int, str]
"""Rack of each broker, by broker id; '' if it has none."""


def assign_replicas(
    racks: Racks, partitions: int, factor: int, *, start: int, shift: int, first: int = 0
) -> tuple[tuple[int, ...], ...]:
    """Return the replicas of `partitions` partitions, numbered from `first`. `start` and `shift` are random numbers.

    Raises InvalidPartitions or InvalidReplicationFactor.
    """
    if partitions < 1:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    if factor < 1:
        raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
    if factor > len(racks):
        raise InvalidReplicationFactor(  # Kafka 4's text, then that of earlier versions: scripts look for either
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because only {len(racks)} broker(s) are registered. "
            f"Replication factor: {factor} larger than available brokers: {len(racks)}."
        )
    counts_racks = all(racks.values())
    order = _alternating(racks) if counts_racks else sorted(racks)
    numbers = range(first, first + partitions)
    rounds = [number // len(order) - max(first - 1, 0) // len(order) for number in numbers]
    choose = _choose_by_rack if counts_racks else _choose
    return tuple(
        choose(order, racks, factor, (number + start) % len(order), shift + done)
        for number, done in zip(numbers, rounds, strict=True)
    )


def assign_more(
    racks: Racks, partitions: int, *, existing: Sequence[Sequence[int]], random_start: int
) -> tuple[tuple[int, ...], ...]:
    """Return the replicas of partitions added to `existing`, each with as many replicas as partition 0.

    The new partitions continue the sequence. random_start: used if the first replica of partition 0 is on none of these
    brokers
    """
    order = _alternating(racks) if all(racks.values()) else sorted(racks)
    preferred = existing[0][0]
    start = order.index(preferred) if preferred in order else random_start
    return assign_replicas(racks, partitions, len(existing[0]), start=start, shift=start, first=len(existing))


def _choose(order: Sequence[int], _: Racks, factor: int, first: int, shift: int) -> tuple[int, ...]:
    return (order[first], *(order[_other(first, shift, step, len(order))] for step in range(factor - 1)))


def _choose_by_rack(order: Sequence[int], racks: Racks, factor: int, first: int, shift: int) -> tuple[int, ...]:
    all_racks = set(racks.values())
    chosen = [order[first]]
    step = 0
    while len(chosen) < factor:
        broker = order[_other(first, shift * len(all_racks), step, len(order))]
        step += 1
        taken = {racks[each] for each in chosen}
        if broker not in chosen and (racks[broker] not in taken or taken == all_racks):
            chosen.append(broker)
    return tuple(chosen)


def _other(first: int, shift: int, step: int, count: int) -> int:
    """Return the place of another replica; `count` - 1 consecutive steps give all places except `first`."""
    return (first + 1 + (shift + step) % (count - 1)) % count


def _alternating(racks: Racks) -> list[int]:
    """Return the brokers in an order that alternates racks as far as possible."""
    by_rack = [sorted(broker for broker in racks if racks[broker] == rack) for rack in sorted(set(racks.values()))]
    longest = max(map(len, by_rack))
    return [brokers[place] for place in range(longest) for brokers in by_rack if place < len(brokers)]
