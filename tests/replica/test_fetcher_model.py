"""After faults of brokers, leaders, the network and the disks, all logs are the same, byte for byte.

A seed decides the faults. Leaders may be elected uncleanly, so records may be lost here. test_partition_model.py tests
which records must not be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from sparklog.base.errors import KafkaError
from sparklog.testing.memory_fs import MemoryFs
from support.replicas.replicating_brokers import World, run
from support.runs.seeds import seeds

pytestmark = pytest.mark.slow

BROKERS = (1, 2, 3)


class Story:
    """The events of one seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.disks: dict[int, MemoryFs] = {}

    async def tell_all(self) -> None:
        for _ in range(self.chance.randrange(20, 60)):
            action = self.chance.choices(
                (self.append, self.elect, self.part, self.kill, self.start, self.trim, self.roll, self.wait),
                (8, 2, 2, 1, 2, 1, 1, 4),
            )[0]
            with contextlib.suppress(KafkaError):  # the broker does not lead, or has a newer state
                await action()
        await self.end()

    async def append(self) -> None:
        """Append at each broker that believes to lead."""
        for each in self.world.brokers.values():
            if each.replicas.find(self.world.state.name) and each.replica().partition.is_leader:
                for _ in range(self.chance.randrange(1, 8)):
                    each.append(self.chance.randrange(1, 5), size=self.chance.randrange(80))

    async def elect(self) -> None:
        if not self.world.brokers:
            return
        live = sorted(self.world.brokers)
        leader = self.chance.choice(live)
        told = [each for each in live if each == leader or self.chance.random() < 0.7]
        await self.world.lead(leader, {leader, *self.chance.sample(live, self.chance.randrange(len(live)))}, told=told)

    async def part(self) -> None:
        self.world.unreachable = {each for each in BROKERS if self.chance.random() < 0.3}
        self.world.loss = self.chance.choice((0, 0, 0.1, 0.5))

    async def kill(self) -> None:
        if self.world.brokers:
            victim = self.chance.choice(sorted(self.world.brokers))
            self.disks[victim] = await self.world.kill(victim, power_cut=self.chance.random() < 0.5)

    async def start(self) -> None:
        for each in sorted(self.disks):
            if self.chance.random() < 0.6:
                self.world.start(each, self.disks.pop(each))
                if self.chance.random() < 0.6 and each != self.world.state.leader:  # a leader needs a new epoch
                    await self.world.tell(each)

    async def trim(self) -> None:
        for each in self.world.brokers.values():
            replica = each.replicas.find(self.world.state.name)
            if replica and replica.partition.is_leader:
                log, committed = replica.log, replica.partition.high_watermark
                if log.log_start_offset < committed:
                    log.advance_log_start(self.chance.randint(log.log_start_offset, committed))
                log.delete_old_segments(self.world.clock.time_ms(), high_watermark=committed)

    async def roll(self) -> None:
        for each in self.world.brokers.values():
            if each.replicas.find(self.world.state.name) and each.replica().partition.is_leader:
                each.log().roll()

    async def wait(self) -> None:
        await asyncio.sleep(self.chance.choice((0.001, 0.01, 0.1, 1.0)))

    async def end(self) -> None:
        """End all faults."""
        world = self.world
        world.unreachable, world.loss = set(), 0.0
        for each in sorted(self.disks):
            world.start(each, self.disks.pop(each))
        await world.lead(self.chance.choice(BROKERS), BROKERS)
        await world.settle()
        for _ in range(3):
            world.brokers[world.state.leader].append(2)
        await world.settle()
        leader = world.brokers[world.state.leader]
        for each in world.brokers.values():  # a leader may not know the log start of another replica
            assert each.log().log_start_offset >= leader.log().log_start_offset
        firsts = {each.log().first_base_offset for each in world.brokers.values()}
        world.check_equal(since=max(firsts) + (len(firsts) > 1))


def tell(seed: int) -> None:
    async def test(world: World) -> None:
        for each in BROKERS:
            world.start(each)
        await world.lead(1, BROKERS)
        await Story(world, seed).tell_all()

    run(test, seed=seed)


@pytest.mark.soak
def test_logs_become_equal() -> None:
    for seed in seeds(40, soak=400):
        tell(seed)
