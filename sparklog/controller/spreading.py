"""Even spread of replicas over brokers, with as few moves from their present brokers as possible.

    1. a replica on a broker outside of `racks` moves to another broker, and keeps its place in the order of preference
    2. partitions get `factor` replicas; the last in the order of preference are removed first
    3. with `even`: while one broker has at least two replicas more than another, it gives one of them to the other
    4. with `even`: a partition prefers another of its replicas as leader, while that evens out the preferred leaders

A replica goes to a broker in a rack without a replica of the partition, if there is one; of these brokers, to the one
with the fewest replicas. Racks count only if every broker has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from sparklog.base.errors import InvalidReplicationFactor
from sparklog.base.ids import TopicPartition

Assignments = Mapping[TopicPartition, Sequence[int]]


def spread(
    current: Assignments,
    racks: Mapping[int, str],
    *,
    only: Collection[TopicPartition] | None = None,
    factor: int | None = None,
    even: bool = True,
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the partitions that change, with their new replicas. racks: the brokers to use, with their racks

    only: the partitions to move; the others only count as load. Use it without `even`. Raises InvalidReplicationFactor
    if there are too few brokers.
    """
    chosen = sorted(current if only is None else only)
    most = max((factor or len(current[name]) for name in chosen), default=0)
    if most > len(racks):
        raise InvalidReplicationFactor(f"{most} replicas of a partition need as many brokers, not {len(racks)}")
    spreading = _Spreading(current, racks)
    for name in chosen:
        spreading.replace(name)
        spreading.resize(name, factor or len(current[name]))
    if even:
        spreading.even_out_replicas()
        spreading.even_out_leaders()
    return {name: tuple(replicas) for name, replicas in spreading.replicas.items() if replicas != [*current[name]]}


class _Spreading:
    """The assignments while they change."""

    def __init__(self, current: Assignments, racks: Mapping[int, str]) -> None:
        self.replicas = {name: list(current[name]) for name in sorted(current)}
        self._racks = racks
        self._counts_racks = all(racks.values())
        placed = Counter(broker for replicas in current.values() for broker in replicas)
        self._load = {broker: placed[broker] for broker in sorted(racks)}

    def replace(self, name: TopicPartition) -> None:
        replicas = self.replicas[name]
        for place, broker in enumerate(replicas):
            if broker not in self._racks:
                found = self._find(name, instead=broker)
                if found is None:
                    continue
                replicas[place] = found
                self._load[found] += 1
        replicas[:] = [broker for broker in replicas if broker in self._racks]

    def resize(self, name: TopicPartition, count: int) -> None:
        replicas = self.replicas[name]
        for broker in replicas[count:]:
            self._load[broker] -= 1
        del replicas[count:]
        while len(replicas) < count and (found := self._find(name)) is not None:
            replicas.append(found)
            self._load[found] += 1

    def even_out_replicas(self) -> None:
        for _ in range(sum(self._load.values())):
            if not any(self._hand_over(giver, taker) for giver, taker in self._pairs()):
                return

    def even_out_leaders(self) -> None:
        led = Counter(dict.fromkeys(self._load, 0))
        led.update(replicas[0] for replicas in self.replicas.values())
        for _ in range(len(self.replicas)):
            best: tuple[int, TopicPartition, int] | None = None
            for name, replicas in self.replicas.items():
                for place, broker in enumerate(replicas[1:], 1):
                    gain = led[replicas[0]] - led[broker]
                    if gain > (best[0] if best else 1):
                        best = (gain, name, place)
            if best is None:
                return
            _, name, place = best
            replicas = self.replicas[name]
            led[replicas[0]] -= 1
            led[replicas[place]] += 1
            replicas[0], replicas[place] = replicas[place], replicas[0]

    def _pairs(self) -> list[tuple[int, int]]:
        """Return pairs of brokers of which the first has at least two replicas more, the greatest differences first."""
        pairs = [(giver, taker) for giver in self._load for taker in self._load if self._surplus(giver, taker) >= 2]
        return sorted(pairs, key=lambda pair: (-self._surplus(*pair), pair))

    def _surplus(self, giver: int, taker: int) -> int:
        return self._load[giver] - self._load[taker]

    def _hand_over(self, giver: int, taker: int) -> bool:
        """Move one replica from `giver` to `taker`; return whether there was one to move."""
        for replicas in self.replicas.values():
            if giver not in replicas or taker in replicas:
                continue
            moved = [taker if broker == giver else broker for broker in replicas]
            if self._racks_of(moved) >= self._racks_of(replicas):
                replicas[:] = moved
                self._load[giver] -= 1
                self._load[taker] += 1
                return True
        return False

    def _racks_of(self, replicas: Sequence[int]) -> int:
        return len({self._racks[broker] for broker in replicas}) if self._counts_racks else 0

    def _find(self, name: TopicPartition, *, instead: int | None = None) -> int | None:
        replicas = self.replicas[name]
        free = [broker for broker in self._load if broker not in replicas]
        taken = {self._racks[broker] for broker in replicas if broker != instead and broker in self._racks}
        if self._counts_racks:
            free = [broker for broker in free if self._racks[broker] not in taken] or free
        return min(free, key=lambda broker: (self._load[broker], broker), default=None)
