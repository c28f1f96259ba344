"""The commands of scenarios on a simulated cluster (tests/testing/scenarios): real brokers, and one client.

    brokers 3 [KEY=VALUE]            start brokers 0 to 2 with this configuration; always the first command
    create t 0,1,2 1,2,0 [KEY=VALUE] create a topic with the replicas of each partition and this configuration
    grow t 1,2                       add a partition with these replicas; several lists add several partitions
    config t KEY=VALUE               change the topic's configuration; `KEY=` restores the brokers' default
    delete t                         delete the topic
    topics                           list the topics
    state t                          show the state of the topic's partitions in the cluster store
    move t-0 3,2 / cancel t-0        start / cancel a reassignment
    elect t-0 [unclean]              elect the preferred leader; `unclean`: elect any replica
    produce t-0 a b c [at=0]         send a batch with acks=all to the leader; `at`: to this broker, leader or not
    read t-0 [at=1]                  show all records that a consumer can read
    logs t-0                         show which brokers have a log of the partition, and its records
    controller                       show the controller's id and epoch
    kill 0                           kill the process; its session ends later
    power 0                          cut the power: like `kill`, but the disk may lose unflushed data
    start 0                          start a process, and wait until it is up
    stop 0                           stop the process with a controlled shutdown
    expire 0                         end the session of a process that keeps running
    pause 0 / resume 0               pause the process / resume it, unaware of the pause
    cut 0 1 2                        block all messages between broker 0 and the other brokers that are named
    heal                             let all messages pass again
    advance 5s                       let this much virtual time pass
    settle                           wait until the cluster store has not changed for 4 seconds

`kill`, `power` and `start` take several brokers. The word `controller` may replace the number of any broker that a
command stops, starts, disturbs or asks. The client repeats a request while its error is retriable, unless the command
has `at`. A command that does not finish in time says so. Findings of the simulation are outcomes too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from sparklog.base.errors import KafkaError, LeaderNotAvailable
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.apis import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    fetch,
    partition_reassignments,
    produce,
)
from sparklog.broker.apis.alter_configs import ConfigOperation, KeyChange
from sparklog.broker.resources import ConfigResource, ResourceType
from sparklog.log.log import Log
from sparklog.records.records import Record, write_records
from sparklog.testing.scenario import Command, ScenarioError, duration_ms, perform, play
from sparklog.testing.sim.clients.client import SimClient
from sparklog.testing.sim.clients.workload import values_of
from sparklog.testing.sim.cluster import SimCluster, logs_in_trace
from sparklog.testing.sim.loop import SimLoop
from sparklog.testing.sim.network import Weather
from sparklog.testing.sim.node import SimNode
from sparklog.testing.sim.run import as_the_seed_says

QUIET_S = 4.0
SETTLES_S = 60.0
TRIES = 40
REQUEST_MS = 8_000


def play_on_cluster(text: str, *, seed: int = 0) -> str:
    """Play a scenario on a new cluster, and return its text with the present outcomes. Raises ScenarioError."""
    loop = SimLoop()
    with as_the_seed_says(seed):
        return loop.run(play(text, ClusterScenario(loop, seed).step))


class ClusterScenario:
    """The vocabulary of these scenarios, with a method `do_VERB` for each command of the list above.

    Each method returns its outcome as lines; no lines mean success.
    """

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self._loop = loop
        self._seed = seed
        self._has_begun = False
        self._cluster: SimCluster
        self._client: SimClient

    async def step(self, command: Command) -> list[str]:
        """Perform a command. Return its outcome, then the findings of the simulation. Raises ScenarioError."""
        if command.verb == "brokers":
            return await perform(self, command)
        if not self._has_begun:
            raise ScenarioError("`brokers N` comes first")
        with logs_in_trace(self._cluster):
            found = await perform(self, command)
        return [*found, *self._take_findings()]

    def _take_findings(self) -> list[str]:
        return [str(each) for each in self._cluster.take_findings()]

    async def do_brokers(self, count: str, **config: str) -> list[str]:
        self._cluster = SimCluster(self._loop, self._seed, brokers=int(count), settings=config)
        names = [node.name for node in self._cluster.nodes.values()]
        self._client = SimClient("client", self._cluster.network, names, self._cluster.stream("client"))
        self._cluster.network.change_weather(Weather(chance_of_delay=0))
        self._has_begun = True
        with logs_in_trace(self._cluster):
            await self._cluster.start()
        return self._take_findings()

    # Brokers

    def _node(self, broker: str) -> SimNode:
        return self._cluster.nodes[self._controller_id() if broker == "controller" else int(broker)]

    def _controller_id(self) -> int:
        node = self._cluster.tree.find("/controller")
        return int(json.loads(node.data)["brokerid"]) if node else -1

    async def do_kill(self, *brokers: str) -> None:
        for node in [self._node(broker) for broker in brokers]:
            node.kill()

    async def do_power(self, *brokers: str) -> None:
        for node in [self._node(broker) for broker in brokers]:
            node.cut_power()

    async def do_pause(self, broker: str) -> None:
        self._node(broker).pause()

    async def do_resume(self, broker: str) -> None:
        self._node(broker).resume()

    async def do_expire(self, broker: str) -> None:
        self._node(broker).expire()

    async def do_stop(self, broker: str) -> None:
        await self._node(broker).stop()

    async def do_start(self, *brokers: str) -> None:
        nodes = [self._node(broker) for broker in brokers]
        for node in nodes:
            node.start()
        await self._cluster.wait_until(lambda: all(node.is_up for node in nodes), SETTLES_S, "the brokers are up")

    async def do_cut(self, broker: str, *others: str) -> None:
        one = self._node(broker).name
        for other in (self._node(each).name for each in others):
            self._cluster.network.block(one, other)
            self._cluster.network.block(other, one)

    async def do_heal(self) -> None:
        self._cluster.network.heal()

    # Time

    async def do_advance(self, duration: str) -> None:
        await asyncio.sleep(duration_ms(duration) / 1_000)

    async def do_settle(self) -> list[str]:
        deadline = self._loop.time() + SETTLES_S
        seen, since = self._cluster.states(), self._loop.time()
        while self._loop.time() < since + QUIET_S:
            await asyncio.sleep(0.1)
            if (now := self._cluster.states()) != seen:
                seen, since = now, self._loop.time()
            if self._loop.time() > deadline:
                return [f"the cluster did not settle within {SETTLES_S:.0f} s"]
        return []

    # Topics

    async def do_create(self, topic: str, /, *replicas: str, **config: str) -> list[str]:
        assignments = [(number, _numbers(each)) for number, each in enumerate(replicas)]
        new = create_topics.NewTopic(name=topic, assignments=assignments, configs=config)
        request = create_topics.CreateTopicsRequest(topics=[new])
        return await self._ask(create_topics.API, request, lambda answer: answer.topics[0].error)

    async def do_grow(self, topic: str, *replicas: str) -> list[str]:
        total = sum(name.topic == topic for name in self._cluster.states()) + len(replicas)
        added = [_numbers(each) for each in replicas]
        count = create_partitions.NewPartitions(name=topic, total=total, assignments=added)
        request = create_partitions.CreatePartitionsRequest(topics=[count])
        return await self._ask(create_partitions.API, request, lambda answer: answer.topics[0].error)

    async def do_config(self, topic: str, /, **config: str) -> list[str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        change = alter_configs.ConfigChange(
            resource=resource, changes=[_key_change(key, value) for key, value in config.items()]
        )
        request = alter_configs.IncrementalAlterConfigsRequest(resources=[change])
        return await self._ask(
            alter_configs.INCREMENTAL_ALTER_CONFIGS, request, lambda answer: answer.resources[0].error
        )

    async def do_delete(self, topic: str) -> list[str]:
        request = delete_topics.DeleteTopicsRequest(topics=[delete_topics.TopicToDelete(name=topic)])
        return await self._ask(delete_topics.API, request, lambda answer: answer.topics[0].error)

    async def do_move(self, name: str, target: str) -> list[str]:
        return await self._reassign(TopicPartition.parse(name), _numbers(target))

    async def do_cancel(self, name: str) -> list[str]:
        return await self._reassign(TopicPartition.parse(name), None)

    async def _reassign(self, name: TopicPartition, target: tuple[int, ...] | None) -> list[str]:
        request = partition_reassignments.AlterPartitionReassignmentsRequest(targets={name: target})
        return await self._ask(
            partition_reassignments.ALTER_PARTITION_REASSIGNMENTS, request, lambda answer: answer.errors[name]
        )

    async def do_elect(self, name: str, kind: str = "preferred") -> list[str]:
        partition = TopicPartition.parse(name)
        request = elect_leaders.ElectLeadersRequest(partitions=[partition], is_unclean=kind == "unclean")
        return await self._ask(elect_leaders.API, request, lambda answer: answer.errors[partition])

    async def _ask(self, api: Api[Any, Any], request: Any, error_of: Callable[[Any], KafkaError | None]) -> list[str]:
        async def ask() -> list[str]:
            return _empty_unless_error(error_of(await self._client.ask_any(api, request, REQUEST_MS)))

        return await self._retry(ask)

    # Records

    async def do_produce(self, name: str, *values: str, at: str = "") -> list[str]:
        partition = TopicPartition.parse(name)
        records = [
            Record(offset=number, timestamp_ms=1_700_000_000_000, value=value.encode())
            for number, value in enumerate(values)
        ]

        async def ask() -> list[str]:
            part = produce.PartitionProduce(
                topic=partition.topic, partition=partition.partition, data=write_records(records)
            )
            request = produce.ProduceRequest(partitions=[part], creates_topics=False, timeout_ms=4_000)
            address = self._node(at).name if at else await self._leader(partition)
            result = (await self._client.ask(address, produce.API, request, 6_000)).partitions[0]
            return _empty_unless_error(result.error) or [f"{result.base_offset} to {result.last_offset}"]

        return await _ask_once(ask) if at else await self._retry(ask)

    async def do_read(self, name: str, *, at: str = "") -> list[str]:
        partition = TopicPartition.parse(name)

        async def ask() -> list[str]:
            address = self._node(at).name if at else await self._leader(partition)
            return [_records_text(await self._fetch_all(address, partition))]

        return await _ask_once(ask) if at else await self._retry(ask)

    async def _fetch_all(self, address: str, name: TopicPartition) -> dict[int, str]:
        found: dict[int, str] = {}
        position = 0
        while True:
            part = fetch.PartitionFetch(
                topic=name.topic, partition=name.partition, fetch_offset=position, max_bytes=1 << 20
            )
            request = fetch.FetchRequest(max_bytes=1 << 20, partitions=[part])
            result = (await self._client.ask(address, fetch.API, request)).partitions[0]
            if result.error:
                raise result.error
            if not result.slice or not result.slice.size:
                return found
            found |= values_of(result.slice.read())
            position = result.next_offset

    async def _leader(self, name: TopicPartition) -> str:
        self._client.forget_leader(name)
        for _ in range(TRIES):  # the client may have asked a dead broker
            with suppress(LeaderNotAvailable):
                return (await self._client.leader(name))[0]
            await asyncio.sleep(0.05)
        raise LeaderNotAvailable(str(name))

    async def _retry(self, ask: Callable[[], Awaitable[list[str]]]) -> list[str]:
        """Return the outcome of `ask`. Call it again, up to TRIES times, while its error is retriable."""
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

    # The state of the cluster

    async def do_topics(self) -> list[str]:
        return sorted({name.topic for name in self._cluster.states() if not name.topic.startswith("__")})

    async def do_state(self, topic: str) -> list[str]:
        return [
            f"{name}: leader {state.get('leader')}, epoch {state.get('leader_epoch')}, "
            f"in sync {_numbers_text(sorted(state['isr']))}, replicas {_numbers_text(state['replicas'])}"
            for name, state in self._cluster.states().items()
            if name.topic == topic
        ]

    async def do_controller(self) -> list[str]:
        epoch = self._cluster.tree.find("/controller_epoch")
        who = self._controller_id()
        return [f"{who if who >= 0 else 'nobody'}, epoch {epoch.data.decode() if epoch else 0}"]

    async def do_logs(self, name: str) -> list[str]:
        lines = []
        for number, node in self._cluster.nodes.items():
            logs: list[Log] = list(node.broker.services.logs) if node.broker and node.is_up else []
            for log in logs:
                if log.partition == TopicPartition.parse(name):
                    piece = log.read(log.log_start_offset, 1 << 30)
                    lines.append(f"{number}: {_records_text(values_of(piece.read()))}")
        return lines


async def _ask_once(ask: Callable[[], Awaitable[list[str]]]) -> list[str]:
    try:
        return await ask()
    except KafkaError as error:
        return [error.name]


def _empty_unless_error(error: KafkaError | None) -> list[str]:
    """Raise the error, if there is one. Otherwise return an empty outcome."""
    if error:
        raise error
    return []


def _key_change(key: str, value: str) -> KeyChange:
    if not value:
        return KeyChange(name=key, operation=ConfigOperation.DELETE)
    return KeyChange(name=key, operation=ConfigOperation.SET, value=value)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _numbers_text(numbers: list[int]) -> str:
    return ",".join(str(number) for number in numbers)


def _records_text(values: dict[int, str]) -> str:
    return " ".join(f"{offset}={value}" for offset, value in values.items()) or "nothing"
