"""A broker dies that led many partitions: the controller reads each topic's keys once, and others get their turns."""

from __future__ import annotations

import asyncio

import pytest

from sparklog.base.topic_config import TopicConfig
from sparklog.controller import partition_state_machine
from support.controller.fake_brokers import World
from support.controller.virtual_time import simulated

PARTITIONS = 5 * partition_state_machine.AT_ONCE


@simulated
async def test_other_tasks_run_while_leaders_of_many_partitions_are_elected() -> None:
    world = World()
    await world.start(1, 2, 3)
    world.create_topic("t", [(3, 2, 1)] * PARTITIONS)
    await world.settle()
    elected: list[int] = []
    configs: list[str] = []
    elect, config_of = partition_state_machine.elect, partition_state_machine.config_of

    def counted_election(*of: object, **how: object) -> object:
        if not elected:
            asyncio.get_running_loop().call_soon(turn)
        elected.append(len(elected) + 1)
        return elect(*of, **how)  # type: ignore[arg-type]

    def counted_config(topic: str, overrides: dict[str, str], defaults: TopicConfig) -> TopicConfig:
        configs.append(topic)
        return config_of(topic, overrides, defaults)

    turns: list[int] = []

    def turn() -> None:
        turns.append(len(elected))
        if len(elected) < PARTITIONS:
            asyncio.get_running_loop().call_soon(turn)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_state_machine, "elect", counted_election)
        patch.setattr(partition_state_machine, "config_of", counted_config)
        world.brokers[3].kill()
        world.brokers[3].expire()
        await world.settle()

    assert len(elected) == PARTITIONS
    assert len({*turns}) >= PARTITIONS // partition_state_machine.AT_ONCE - 1
    assert configs == ["t"]
    assert world.differences() == []
