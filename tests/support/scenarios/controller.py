"""The interpreter of the controller's scenarios: what they say, and what the controller is seen to do.

A scenario is a text of steps, each a command, a line `----`, what has changed by it, and an empty line. After each
command all goes on until nothing happens any more, unless it ends with `quickly`. What is seen are changes in the
store: who is the controller, and each partition's leader, leader epoch and ISR. After each step every broker must
have been told just that; if one was not, the scenario says so, too. Commands:

    brokers 3                        first of all: brokers 1 to 3 start, and each is settled before the next
    config KEY=VALUE                 before that: the brokers' configuration
    create t 1,2,3 2,3,1 [KEY=VALUE] a topic, with the replicas of each partition
    grow t 2,3                       it gets more partitions
    set t KEY=VALUE                  it is configured otherwise; nothing: as the brokers are
    delete t
    kill 1                           the process ends, and then its session
    crash 1                          the process ends, its session lasts
    expire 1                         the session ends, the process lasts, or not
    start 1
    stop 1                           in order: controlled shutdown first
    cut 1 / mend 1                   the controller cannot reach the broker / can again
    isr t-0 1,2                      its leader writes this ISR
    disk 1 t-0                       the broker's disk with this replica fails
    move t-0 3,2 / cancel t-0        reassignment
    prefer t-0                       preferred leader election
    unclean t-0                      any replica will do
    logs t-0                         which brokers have a log of it
    told                             what brokers were told since the last time, in short; `told -`: from here on
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.cluster.messages import UpdateMetadata
from sparklog.cluster.partition_states import Leadership
from sparklog.controller.active import ActiveController
from sparklog.replica.messages import LeaderAndIsr, StopReplica
from support.controller.fake_brokers import World


class ControllerScenario:
    def __init__(self) -> None:
        self._config: dict[str, Any] = {}
        self._world: World | None = None
        self._seen: dict[str, str] = {}
        self._told = 0

    @property
    def world(self) -> World:
        assert self._world, "`brokers N` comes first"
        return self._world

    async def step(self, command: str) -> list[str]:
        verb, *words = command.split()
        is_quick = words[-1:] == ["quickly"]
        said = await getattr(self, f"do_{verb}")(*(words[:-1] if is_quick else words)) or []
        if is_quick or not self._world:
            return list(said)
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

    async def do_config(self, *pairs: str) -> None:
        for pair in pairs:
            key, _, value = pair.partition("=")
            self._config[key.replace(".", "_")] = {"true": True, "false": False}.get(value, value)

    async def do_brokers(self, count: str) -> None:
        self._world = World(**self._config)
        for broker_id in range(1, int(count) + 1):
            await self.world.start(broker_id)
            await self.world.settle()

    async def do_create(self, topic: str, *words: str) -> None:
        overrides = dict(word.split("=") for word in words if "=" in word)
        self.world.create_topic(topic, [read(word) for word in words if "=" not in word], **overrides)

    async def do_grow(self, topic: str, *replicas: str) -> None:
        self.world.add_partitions(topic, [read(each) for each in replicas])

    async def do_set(self, topic: str, *pairs: str) -> None:
        self.world.configure(topic, dict(pair.split("=") for pair in pairs))

    async def do_delete(self, topic: str) -> None:
        self.world.topics.mark_deleted(topic)

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
        said = await self._ask(lambda active: active.operations.shut_down(leaving.broker_id, leaving.epoch))
        await leaving.stop()
        return said

    async def do_cut(self, broker: str) -> None:
        self.world.brokers[int(broker)].is_cut = True

    async def do_mend(self, broker: str) -> None:
        self.world.brokers[int(broker)].is_cut = False

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

    async def do_prefer(self, name: str) -> list[str]:
        return await self._elect(name, is_unclean=False)

    async def do_unclean(self, name: str) -> list[str]:
        return await self._elect(name, is_unclean=True)

    async def _elect(self, name: str, *, is_unclean: bool) -> list[str]:
        names = [TopicPartition.parse(name)]
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
