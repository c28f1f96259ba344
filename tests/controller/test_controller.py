"""The controller with brokers that do what they are told: on a store in memory, under virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from controller_world import World

from sparklog.base.ids import TopicPartition
from sparklog.testing.sim_loop import SimLoop

T0 = TopicPartition("t", 0)
THREE = [(1, 2, 3)]


def simulated(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on a loop of virtual time; what fails in a callback fails the test."""

    def run() -> None:
        loop = SimLoop()
        loop.run(test())
        assert not loop.errors

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def cluster(*, topics: dict[str, list[tuple[int, ...]]] | None = None, **config: Any) -> World:
    world = World(**config)
    await world.start(1, 2, 3)
    for name, replicas in (topics or {}).items():
        world.create_topic(name, replicas)
    await world.settle()
    return world


@simulated
async def test_one_of_several_brokers_is_the_controller_and_all_know_it() -> None:
    world = await cluster(topics={"t": THREE})

    assert world.controller.broker_id == 1
    assert world.differences() == []
    assert (world.state(T0).leader, world.state(T0).isr) == (1, (1, 2, 3))
