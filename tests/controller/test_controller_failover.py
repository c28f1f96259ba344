"""A controller that dies after any of its writes: the next controller completes its work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.cluster.memory import MemoryStore
from sparklog.cluster.store import Operation
from support.controller.fake_brokers import FakeBroker, World
from support.controller.virtual_time import simulated

pytestmark = pytest.mark.slow
TOPICS = {"t": [(3, 2, 1), (2, 3, 1)], "u": [(3, 1), (1, 3)], "alone": [(3,)]}
Work = Callable[[World], Awaitable[None]]


async def a_broker_dies(world: World) -> None:
    world.brokers[3].kill()
    world.brokers[3].expire()


async def a_broker_restarts_at_once(world: World) -> None:
    world.brokers[3].kill()
    await world.start(3)


async def a_broker_comes_again_while_topics_are_made(world: World) -> None:
    await a_broker_dies(world)
    await world.settle(0.004)
    world.create_topic("new", [(2, 3, 1), (3, 1)])
    await world.start(3)


async def topics_grow_and_change(world: World) -> None:
    world.create_topic("new", [(2, 3, 1)])
    world.add_partitions("t", [(1, 2)])
    world.set_isr(TopicPartition("t", 0), (3, 1))
    world.configure("u", {"retention.ms": "1000"})


WORK = [a_broker_dies, a_broker_restarts_at_once, a_broker_comes_again_while_topics_are_made, topics_grow_and_change]


def die_after_write(broker: FakeBroker, number: int) -> list[int]:
    """Kill `broker` when it has made so many writes, before it learns of the last; the list grows with each."""
    written: list[int] = []
    store = broker.store

    def multi(operations: Iterable[Operation]) -> None:
        MemoryStore.multi(store, operations)
        written.append(len(written) + 1)
        if len(written) == number:
            broker.kill()

    store.multi = multi  # type: ignore[method-assign]
    return written


async def play(work: Work, *, dies_after: int) -> int:
    """Return the number of the first controller's writes."""
    world = World()
    await world.start(1, 2, 3)
    for name, replicas in TOPICS.items():
        world.create_topic(name, replicas)
    await world.settle()
    first = world.controller
    assert first.broker_id == 1
    written = die_after_write(first, dies_after)
    await work(world)
    await world.settle(1)
    if not first.is_up:
        first.expire()
    await world.settle()
    check(world)
    return len(written)


def check(world: World) -> None:
    """Check that live brokers agree with the store, and that partitions with a live in-sync replica have a leader."""
    assert world.differences() == []
    live = {broker.broker_id for broker in world.brokers.values() if broker.is_up}
    for name in world.names():
        state = world.state(name)
        replicas = world.topics.load_assignment(name.topic).partitions[name.partition].replicas
        assert state.leader in live & set(state.isr) or (state.leader == -1 and not live & set(state.isr))
        assert set(state.isr) <= live or len(state.isr) == 1
        assert set(state.isr) <= set(replicas)
    for path in ("/isr_change_notification", "/config/changes"):
        assert world.store.children(path) == []


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
@simulated
async def test_a_controller_may_die_after_any_write(work: Work) -> None:
    all_writes = await play(work, dies_after=0)
    assert all_writes >= 2
    for number in range(1, all_writes + 1):
        assert await play(work, dies_after=number) == number


@simulated
async def test_a_controller_may_die_after_any_write_of_its_taking_over() -> None:
    number, has_died = 0, True
    while has_died:
        number += 1
        world = World()
        await world.start(1, 2, 3)
        for name, replicas in TOPICS.items():
            world.create_topic(name, replicas)
        await world.settle()
        await a_broker_dies(world)
        world.brokers[1].kill()
        die_after_write(world.brokers[2], number)
        world.brokers[1].expire()
        await world.settle(1)
        has_died = not world.brokers[2].is_up
        del world.brokers[2].store.multi
        if has_died:
            world.brokers[2].expire()
        await world.start(1, 3)
        await world.settle()
        check(world)
    assert number > 3
