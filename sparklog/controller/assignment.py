"""Which brokers get the replicas of new partitions, as Apache Kafka decides it (kafka.admin.AdminUtils).

Three aims, in this order: each broker has as many replicas, and is as often first among them, as any other; the
other replicas of one broker's partitions are spread over all others; a partition's replicas are in different racks.

    the first replica     goes round the brokers, from `start` on
    the others            go round from the first one on, at a distance of `shift` + 1; that grows by one whenever the
                          first replicas have been round all brokers, so the same sets do not come again and again
    with racks            brokers are taken in an order that alternates racks; a replica passes over brokers in a
                          rack that has one, until every rack has one

Racks count where every broker has one. Where only some have, Kafka refuses to create topics; here racks do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparklog.base.errors import InvalidPartitions, InvalidReplicationFactor

Racks = Mapping[int, str]
"""Brokers by their id, with the rack that each is in; '' where it does not say."""


def assign_replicas(
    racks: Racks, partitions: int, factor: int, *, start: int, shift: int, first: int = 0
) -> tuple[tuple[int, ...], ...]:
    """Replicas for `partitions` partitions that are numbered from `first` on; `start` and `shift` are random numbers.

    Raises InvalidPartitions or InvalidReplicationFactor.
    """
    if partitions < 1:
        raise InvalidPartitions(f"{partitions} partitions; there must be at least 1")
    if factor < 1:
        raise InvalidReplicationFactor(f"{factor} replicas; there must be at least 1")
    if factor > len(racks):
        raise InvalidReplicationFactor(f"Replication factor: {factor} larger than available brokers: {len(racks)}.")
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
    """Replicas for partitions that are added to `existing`: as many for each as partition 0 has, going on from there.

    `random_start` counts where the first replica of partition 0 is on no broker of these.
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
    """The place in the order of another replica; those of count - 1 steps in a row are all the places but `first`."""
    return (first + 1 + (shift + step) % (count - 1)) % count


def _alternating(racks: Racks) -> list[int]:
    """Brokers in an order in which no two of a rack follow one another, as long as that can be."""
    by_rack = [sorted(broker for broker in racks if racks[broker] == rack) for rack in sorted(set(racks.values()))]
    longest = max(map(len, by_rack))
    return [brokers[place] for place in range(longest) for brokers in by_rack if place < len(brokers)]
