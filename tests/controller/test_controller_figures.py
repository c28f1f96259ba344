"""The controller's figures of the cluster."""

from __future__ import annotations

from sparklog.base.ids import TopicPartition
from support.controller.fake_brokers import World
from support.controller.virtual_time import simulated


@simulated
async def test_partitions_without_leader_and_leaders_that_are_not_preferred_are_counted() -> None:
    world = World()
    await world.start(1)
    await world.settle()
    await world.start(2, 3)
    world.create_topic("t", [(3, 2), (2, 3), (3,)])
    await world.settle()
    healthy = world.brokers[1].controller.figures
    world.brokers[3].kill()
    world.brokers[3].expire()
    await world.settle()

    assert healthy is not None
    assert (healthy.brokers, healthy.topics, healthy.partitions) == (3, 1, 3)
    assert (healthy.leaderless_partitions, healthy.not_preferred_leaders) == (0, 0)
    assert world.state(TopicPartition("t", 0)).leader == 2
    later = world.brokers[1].controller.figures
    assert later is not None
    assert (later.brokers, later.leaderless_partitions, later.not_preferred_leaders) == (2, 1, 2)
    assert world.brokers[2].controller.figures is None
