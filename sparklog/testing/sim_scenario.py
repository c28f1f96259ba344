"""Scenarios in words: a text of commands, each with what comes of it on a simulated cluster, as lines of `> …`.

    brokers 3                    start so many brokers, numbered from 0
    create t replicas=0,1,2      a topic of one partition, with replicas in that order; key=value: its configuration
    produce t a b c              a batch, acks=all; where the leader is, by what any broker says
    produce t d to=0             the same, sent to broker 0 whatever it is
    read t                       all that a consumer is shown; from=1: by broker 1
    kill 0 · power 0 · pause 0 · resume 0 · start 0 · stop 0 · expire 0      or `controller`: whoever that is
    part 0 1 2                   nothing passes between broker 0 and the others that are named, until `heal`
    sleep 5                      seconds
    settle                       wait until the cluster store has stayed as it is for some seconds
    state t                      what the cluster store says of it
    move t 1,2,3 · cancel t · elect t · elect t unclean · delete t · grow t replicas=1,2
    config t key=value · topics · controller · logs t

A command that does not know its end within a bound says so. Other lines: `#` comments, and empty ones. `play` runs the
commands and gives the text with the outcomes as they are; a test compares.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sparklog.base.errors import KafkaError, LeaderNotAvailable
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    fetch,
    incremental_alter_configs,
    produce,
)
from sparklog.broker.resources import ConfigResource, ResourceType
from sparklog.log.log import Log
from sparklog.records.records import Record, write_records
from sparklog.testing.sim_client import SimClient
from sparklog.testing.sim_cluster import SimCluster, SimNode, logs_in_trace
from sparklog.testing.sim_loop import SimLoop
from sparklog.testing.sim_run import as_the_seed_says
from sparklog.testing.sim_workload import values_of

MARK = "> "
QUIET_S = 4.0
SETTLES_S = 60.0
TRIES = 40


def play(text: str, *, seed: int = 0) -> str:
    """The scenario with what comes of each of its commands."""
    loop = SimLoop()
    with as_the_seed_says(seed):
        return loop.run(_Player(loop, seed).play(text))


class _Player:
    def __init__(self, loop: SimLoop, seed: int) -> None:
        self._loop = loop
        self._seed = seed
        self._cluster: SimCluster
        self._client: SimClient

    async def play(self, text: str) -> str:
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith(MARK):
                continue
            lines.append(line)
            words = line.split()
            if words and not line.startswith("#"):
                lines += [MARK + each for each in await self._do(words[0], words[1:])]
        return "\n".join(lines) + "\n"

    async def _do(self, verb: str, words: list[str]) -> list[str]:
        plain = [word for word in words if "=" not in word]
        settings = dict(word.split("=", 1) for word in words if "=" in word)
        command: Callable[..., Awaitable[list[str]]] = getattr(self, f"_{verb}")
        if not hasattr(self, "_cluster"):
            return await command(*plain, **{name.replace(".", "_"): value for name, value in settings.items()})
        with logs_in_trace(self._cluster):
            found = await command(plain, settings)
        problems, self._cluster.findings = self._cluster.findings, []
        return [*found, *(str(each) for each in problems)]

    async def _brokers(self, count: str, **settings: str) -> list[str]:
        keys = {name.replace("_", "."): value for name, value in settings.items()}
        self._cluster = SimCluster(self._loop, self._seed, brokers=int(count), settings=keys)
        names = [node.name for node in self._cluster.nodes.values()]
        self._client = SimClient("client", self._cluster.network, names, self._cluster.stream("client"))
        self._cluster.network.weather.chance_of_delay = 0
        with logs_in_trace(self._cluster):
            await self._cluster.start()
        return [str(each) for each in self._cluster.findings]

    # Nodes

    def _nodes(self, plain: list[str]) -> list[SimNode]:
        return [self._cluster.nodes[self._controller_id() if word == "controller" else int(word)] for word in plain]

    def _controller_id(self) -> int:
        node = self._cluster.tree.find("/controller")
        return int(json.loads(node.data)["brokerid"]) if node else -1

    async def _kill(self, plain: list[str], _: dict[str, str]) -> list[str]:
        for node in self._nodes(plain):
            node.kill()
        return []

    async def _power(self, plain: list[str], _: dict[str, str]) -> list[str]:
        for node in self._nodes(plain):
            node.cut_power()
        return []

    async def _pause(self, plain: list[str], _: dict[str, str]) -> list[str]:
        self._nodes(plain)[0].pause()
        return []

    async def _resume(self, plain: list[str], _: dict[str, str]) -> list[str]:
        self._nodes(plain)[0].resume()
        return []

    async def _expire(self, plain: list[str], _: dict[str, str]) -> list[str]:
        self._nodes(plain)[0].expire()
        return []

    async def _stop(self, plain: list[str], _: dict[str, str]) -> list[str]:
        await self._nodes(plain)[0].stop()
        return []

    async def _start(self, plain: list[str], _: dict[str, str]) -> list[str]:
        nodes = self._nodes(plain)
        for node in nodes:
            node.start()
        await self._cluster.wait_until(lambda: all(node.is_up for node in nodes), SETTLES_S, "the brokers are up")
        return []

    async def _part(self, plain: list[str], _: dict[str, str]) -> list[str]:
        one, *others = (self._cluster.nodes[int(number)].name for number in plain)
        for other in others:
            self._cluster.network.block(one, other)
            self._cluster.network.block(other, one)
        return []

    async def _heal(self, *_: object) -> list[str]:
        self._cluster.network.heal()
        return []

    # Time

    async def _sleep(self, plain: list[str], _: dict[str, str]) -> list[str]:
        await asyncio.sleep(float(plain[0]))
        return []

    async def _settle(self, *_: object) -> list[str]:
        deadline = self._loop.time() + SETTLES_S
        seen, since = self._cluster.states(), self._loop.time()
        while self._loop.time() < since + QUIET_S:
            await asyncio.sleep(0.1)
            if (now := self._cluster.states()) != seen:
                seen, since = now, self._loop.time()
            if self._loop.time() > deadline:
                return [f"the cluster did not come to rest in {SETTLES_S:.0f} s"]
        return []

    # Topics

    async def _create(self, plain: list[str], settings: dict[str, str]) -> list[str]:
        replicas = _numbers(settings.pop("replicas"))
        topic = create_topics.NewTopic(name=plain[0], assignments=[(0, replicas)], configs=settings)
        request = create_topics.CreateTopicsRequest(topics=[topic])

        async def ask() -> list[str]:
            return _well((await self._client.ask_any(create_topics.API, request, 8_000)).topics[0].error)

        return await self._try(ask)

    async def _delete(self, plain: list[str], _: dict[str, str]) -> list[str]:
        request = delete_topics.DeleteTopicsRequest(topics=[delete_topics.TopicToDelete(name=plain[0])])

        async def ask() -> list[str]:
            return _well((await self._client.ask_any(delete_topics.API, request, 8_000)).topics[0].error)

        return await self._try(ask)

    async def _grow(self, plain: list[str], settings: dict[str, str]) -> list[str]:
        total = 1 + sum(name.topic == plain[0] for name in self._cluster.states())
        count = create_partitions.PartitionCount(
            name=plain[0], total=total, assignments=[_numbers(settings["replicas"])]
        )
        request = create_partitions.CreatePartitionsRequest(topics=[count])

        async def ask() -> list[str]:
            return _well((await self._client.ask_any(create_partitions.API, request, 8_000)).topics[0].error)

        return await self._try(ask)

    async def _config(self, plain: list[str], settings: dict[str, str]) -> list[str]:
        change = incremental_alter_configs.ConfigChange(
            resource=ConfigResource(ResourceType.TOPIC, plain[0]),
            changes=[
                incremental_alter_configs.KeyChange(name=name, operation=0, value=value)
                for name, value in settings.items()
            ],
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[change])

        async def ask() -> list[str]:
            return _well((await self._client.ask_any(incremental_alter_configs.API, request, 8_000)).resources[0].error)

        return await self._try(ask)

    async def _topics(self, *_: object) -> list[str]:
        return sorted({name.topic for name in self._cluster.states() if not name.topic.startswith("__")})

    async def _move(self, plain: list[str], _: dict[str, str]) -> list[str]:
        return await self._reassign(TopicPartition(plain[0], 0), _numbers(plain[1]))

    async def _cancel(self, plain: list[str], _: dict[str, str]) -> list[str]:
        return await self._reassign(TopicPartition(plain[0], 0), None)

    async def _reassign(self, name: TopicPartition, target: tuple[int, ...] | None) -> list[str]:
        request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(targets={name: target})

        async def ask() -> list[str]:
            answer = await self._client.ask_any(alter_partition_reassignments.API, request, 8_000)
            return _well(answer.errors[name])

        return await self._try(ask)

    async def _elect(self, plain: list[str], _: dict[str, str]) -> list[str]:
        name = TopicPartition(plain[0], 0)
        request = elect_leaders.ElectLeadersRequest(partitions=[name], is_unclean="unclean" in plain)

        async def ask() -> list[str]:
            return _well((await self._client.ask_any(elect_leaders.API, request, 8_000)).errors[name])

        return await self._try(ask)

    # Records

    async def _produce(self, plain: list[str], settings: dict[str, str]) -> list[str]:
        name = TopicPartition(plain[0], 0)
        records = [
            Record(offset=number, timestamp_ms=1_700_000_000_000, value=value.encode())
            for number, value in enumerate(plain[1:])
        ]

        async def ask() -> list[str]:
            part = produce.PartitionProduce(topic=name.topic, partition=0, data=write_records(records))
            request = produce.ProduceRequest(partitions=[part], creates_topics=False, timeout_ms=4_000)
            address = self._cluster.nodes[int(settings["to"])].name if "to" in settings else await self._leader(name)
            result = (await self._client.ask(address, produce.API, request, 6_000)).partitions[0]
            return _well(result.error) or [f"{result.base_offset} to {result.last_offset}"]

        return await _once(ask) if "to" in settings else await self._try(ask)

    async def _read(self, plain: list[str], settings: dict[str, str]) -> list[str]:
        name = TopicPartition(plain[0], 0)
        broker = settings.get("from")

        async def ask() -> list[str]:
            address = self._cluster.nodes[int(broker)].name if broker else await self._leader(name)
            found: dict[int, str] = {}
            position = 0
            while True:
                part = fetch.PartitionFetch(topic=name.topic, partition=0, fetch_offset=position, max_bytes=1 << 20)
                request = fetch.FetchRequest(max_bytes=1 << 20, partitions=[part])
                result = (await self._client.ask(address, fetch.API, request)).partitions[0]
                if result.error:
                    raise result.error
                if not result.slice or not result.slice.size:
                    return [_shown(found)]
                found |= values_of(result.slice.read())
                position = result.next_offset

        return await _once(ask) if broker else await self._try(ask)

    async def _leader(self, name: TopicPartition) -> str:
        self._client.forget_leader(name)
        for _ in range(TRIES):  # some of those who are asked may be dead
            with suppress(LeaderNotAvailable):
                return (await self._client.leader(name))[0]
            await asyncio.sleep(0.05)
        raise LeaderNotAvailable(str(name))

    async def _try(self, ask: Callable[[], Awaitable[list[str]]]) -> list[str]:
        """What comes of it, asking again while the error is one that may pass."""
        outcome: list[str] = []
        for _ in range(TRIES):
            try:
                return await ask()
            except KafkaError as error:
                outcome = [error.name]
                if not error.retriable:
                    break
            await asyncio.sleep(0.25)
        return outcome

    # What there is

    async def _state(self, plain: list[str], _: dict[str, str]) -> list[str]:
        return [
            f"{name}: leader {state.get('leader')}, epoch {state.get('leader_epoch')}, "
            f"in sync {_listed(sorted(state['isr']))}, replicas {_listed(state['replicas'])}"
            for name, state in self._cluster.states().items()
            if name.topic == plain[0]
        ]

    async def _controller(self, *_: object) -> list[str]:
        epoch = self._cluster.tree.find("/controller_epoch")
        who = self._controller_id()
        return [f"{who if who >= 0 else 'nobody'}, epoch {epoch.data.decode() if epoch else 0}"]

    async def _logs(self, plain: list[str], _: dict[str, str]) -> list[str]:
        lines = []
        for number, node in self._cluster.nodes.items():
            logs: list[Log] = list(node.broker.services.logs) if node.broker and node.is_up else []
            for log in logs:
                if log.partition == TopicPartition(plain[0], 0):
                    piece = log.read(log.log_start_offset, 1 << 30)
                    lines.append(f"{number}: {_shown(values_of(piece.read()))}")
        return lines


async def _once(ask: Callable[[], Awaitable[list[str]]]) -> list[str]:
    try:
        return await ask()
    except KafkaError as error:
        return [error.name]


def _well(error: KafkaError | None) -> list[str]:
    """Nothing to say; raises the error, if there is one."""
    if error:
        raise error
    return []


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _listed(numbers: list[int]) -> str:
    return ",".join(str(number) for number in numbers)


def _shown(values: dict[int, str]) -> str:
    return " ".join(f"{offset}={value}" for offset, value in values.items()) or "nothing"
