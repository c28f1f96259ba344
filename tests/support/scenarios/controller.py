"""The vocabulary of the controller's scenarios: real controllers with brokers that only do as they are told.

After each command all goes on until nothing happens any more, unless its last word is `quickly`. What comes of it are
changes in the store: who is the controller, and each partition's leader, leader epoch and ISR. After each command every
broker must have been told just that; if one was not, that is an outcome, too.

    brokers 3 [KEY=VALUE]            first of all: brokers 1 to 3 start, with this configuration, and each is settled
                                     before the next
    create t 1,2,3 2,3,1 [KEY=VALUE] a topic, with the replicas of each partition, and its configuration
    grow t 2,3                       it gets more partitions
    config t KEY=VALUE               it is configured otherwise; `KEY=`: as the brokers are
    delete t
    move t-0 3,2 / cancel t-0        reassignment
    elect t-0 [unclean]              preferred leader election; `unclean`: any replica will do
    isr t-0 1,2                      its leader writes this ISR
    logs t-0                         which brokers have a log of it
    kill 1                           the process ends, and then its session
    crash 1                          the process ends, its session lasts
    start 1
    stop 1                           in order: controlled shutdown first
    expire 1                         the session ends, the process lasts, or not
    disk 1 t-0                       the broker's disk with this replica fails
    cut 1                            nothing reaches the broker, but for itself
    heal                             everything reaches every broker again
    told                             what brokers were told since the last time, in short; `told -`: from here on

`kill` and `start` take several brokers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.cluster.messages import UpdateMetadata
from sparklog.cluster.partition_states import Leadership
from sparklog.controller.active import ActiveController
from sparklog.replica.messages import LeaderAndIsr, StopReplica
from sparklog.testing.scenario import Command, ScenarioError, perform, play
from sparklog.testing.sim.loop import SimLoop
from support.controller.fake_brokers import World

QUICKLY = "quickly"


def play_controller(text: str) -> str:
    loop = SimLoop()
    played = loop.run(play(text, ControllerScenario().step))
    assert not loop.errors
    return played


class ControllerScenario:
    def __init__(self) -> None:
        self._world: World | None = None
        self._seen: dict[str, str] = {}
        self._told = 0

    @property
    def world(self) -> World:
        if self._world is None:
            raise ScenarioError("`brokers N` comes first")
        return self._world

    async def step(self, command: Command) -> list[str]:
        if command.words[-1:] == (QUICKLY,):
            return await perform(self, dataclasses.replace(command, words=command.words[:-1]))
        said = await perform(self, command)
        await self.world.settle()
        return [*said, *self._changes(), *self.world.differences()]

    def _changes(self) -> list[str]:
        now = {"controller": self._controller()}
        marked = set(self.world.topics.marked_deleted())
        for name in self.world.names():
            doomed = " (to be deleted)" if name.topic in marked else ""
            now[str(name)] = show(self.world.find_state(name)) + self._replicas(name) + doomed
        gone = [f"{key}: gone" for key in self._seen if key not in now]
        changed = [f"{key}: {value}" for key, value in now.items() if self._seen.get(key) != value]
        self._seen = now
        return gone + changed

    def _controller(self) -> str:
        found = self.world.controllers()
        return " and ".join(f"{each.broker_id} in epoch {each.controller.epoch}" for each in found) or "nobody"

    def _replicas(self, name: TopicPartition) -> str:
        assignment = self.world.topics.load_assignment(name.topic).partitions[name.partition]
        if not assignment.is_reassigning:
            return ""
        return f", moves from {numbers(assignment.origin)} to {numbers(assignment.target)}"

    async def do_brokers(self, count: str, **config: str) -> None:
        flags = {"true": True, "false": False}
        self._world = World(**{key.replace(".", "_"): flags.get(value, value) for key, value in config.items()})
        for broker_id in range(1, int(count) + 1):
            await self.world.start(broker_id)
            await self.world.settle()

    async def do_create(self, topic: str, /, *replicas: str, **config: str) -> None:
        self.world.create_topic(topic, [read(each) for each in replicas], **config)

    async def do_grow(self, topic: str, *replicas: str) -> None:
        self.world.add_partitions(topic, [read(each) for each in replicas])

    async def do_config(self, topic: str, /, **config: str) -> None:
        def change(old: Mapping[str, str]) -> Mapping[str, str]:
            return {key: value for key, value in {**old, **config}.items() if value}

        self.world.topics.change_overrides(topic, change)

    async def do_delete(self, topic: str) -> None:
        self.world.topics.mark_deleted(topic, self.world.topics.load_assignment(topic).topic_id)

    async def do_kill(self, *brokers: str) -> None:
        for broker in brokers:
            self.world.brokers[int(broker)].kill()
        for broker in brokers:
            self.world.brokers[int(broker)].expire()

    async def do_crash(self, broker: str) -> None:
        self.world.brokers[int(broker)].kill()

    async def do_expire(self, broker: str) -> None:
        self.world.brokers[int(broker)].expire()

    async def do_start(self, *brokers: str) -> None:
        await self.world.start(*map(int, brokers))

    async def do_stop(self, broker: str) -> list[str]:
        leaving = self.world.brokers[int(broker)]
        said: list[str] = []
        for _ in range(2):  # the others are to answer the controller first
            said = await self._ask(lambda active: active.operations.shut_down(leaving.broker_id, leaving.epoch))
            await self.world.settle()
        await leaving.stop()
        return said

    async def do_cut(self, broker: str) -> None:
        self.world.brokers[int(broker)].is_cut = True

    async def do_heal(self) -> None:
        for broker in self.world.brokers.values():
            broker.is_cut = False

    async def do_isr(self, name: str, isr: str) -> None:
        self.world.set_isr(TopicPartition.parse(name), read(isr))

    async def do_disk(self, broker: str, name: str) -> None:
        self.world.lose_disk(int(broker), TopicPartition.parse(name))

    async def do_move(self, name: str, target: str) -> list[str]:
        return await self._reassign(name, read(target))

    async def do_cancel(self, name: str) -> list[str]:
        return await self._reassign(name, None)

    async def _reassign(self, name: str, target: tuple[int, ...] | None) -> list[str]:
        targets = {TopicPartition.parse(name): target}
        return await self._ask(lambda active: active.operations.reassign(targets, may_resize=True))

    async def do_elect(self, name: str, kind: str = "preferred") -> list[str]:
        names, is_unclean = [TopicPartition.parse(name)], kind == "unclean"
        return await self._ask(lambda active: active.operations.elect_leaders(names, is_unclean=is_unclean))

    async def _ask(self, function: Callable[[ActiveController], Awaitable[Any]]) -> list[str]:
        try:
            answer = await self.world.controller.controller.ask(function)
        except KafkaError as error:
            return [error.name]
        if isinstance(answer, tuple):
            return [f"leads still: {name}" for name in answer]
        return [f"{name}: {error.name}" for name, error in answer.items() if isinstance(error, KafkaError)]

    async def do_logs(self, name: str) -> list[str]:
        brokers = self.world.brokers.values()
        return ["on " + numbers([each.broker_id for each in brokers if TopicPartition.parse(name) in each.logs])]

    async def do_told(self, nothing: str = "") -> list[str]:
        told, self._told = self.world.requests[self._told :], len(self.world.requests)
        return [] if nothing else [f"{broker}: {summary(request)}" for broker, request in told]


def read(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def numbers(values: Any) -> str:
    return ",".join(map(str, values)) or "nobody"


def show(state: Leadership | None) -> str:
    if state is None:
        return "never led"
    leader = f"{state.leader} leads" if state.leader >= 0 else "nobody leads"
    return f"{leader} in epoch {state.leader_epoch}, in sync {numbers(state.isr)}"


def summary(request: Any) -> str:
    match request:
        case LeaderAndIsr():
            return "LeaderAndIsr " + " ".join(
                f"{state.name}={state.leader}@{state.leader_epoch}" + (" new" if state.is_new else "")
                for state in request.partitions
            )
        case StopReplica():
            return "StopReplica " + " ".join(
                str(stop.name) + (" delete" if stop.delete else "") for stop in request.partitions
            )
        case UpdateMetadata():
            brokers = numbers([broker.broker_id for broker in request.brokers])
            topics = [*(topic.name for topic in request.topics), *(f"-{name}" for name in request.deleted)]
            every = "all " if request.is_full else ""
            return f"UpdateMetadata {every}brokers {brokers} topics {' '.join(topics) or 'none'}"
    raise AssertionError(request)
