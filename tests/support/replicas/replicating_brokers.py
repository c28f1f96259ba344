"""Brokers that copy one another's logs, without the rest of a broker: replicas, fetchers, a network, and virtual time.

The controller is the test: `lead` tells all brokers that can be reached who leads from now on. The store is a number.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaError, NetworkException
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.broker.apis import PEER_APIS, replica_fetch
from sparklog.broker.follower_fetches import FollowerFetches
from sparklog.log.directory.manager import LogManager
from sparklog.log.files import LOG
from sparklog.log.log import Log
from sparklog.replica.fetcher import FetcherContext, LeaderFetcher
from sparklog.replica.fetchers import ReplicaFetchers
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.replica.messages import (
    AlterIsr,
    AlterIsrResult,
    DescribeFiles,
    LeaderAndIsr,
    LeaderAndIsrPartitionState,
    ReadReplicaFile,
    ReplicaFetch,
    ReplicaFetchResponse,
)
from sparklog.replica.state_changes import StateChanges
from sparklog.replica.throttle import ReplicationThrottle
from sparklog.runtime.purgatory import Purgatory
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import LoopClock
from sparklog.testing.sim.loop import SimLoop
from support.logs.builders import batch, file_content, topic_config
from support.replicas.fetch_oracle import FetchOracle

NAME = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)
UNLIMITED = 1 << 62


class Broker:
    """One life of a broker."""

    def __init__(self, world: World, broker_id: int, fs: MemoryFs, epoch: int, **config: object) -> None:
        self.id, self.fs, self.epoch = broker_id, fs, epoch
        self.config = BrokerConfig(
            broker_id=broker_id, log_dirs=("/data",), replica_fetch_backoff_ms=200, **config, topic_defaults=world.topic
        )  # type: ignore[arg-type]
        self.follower_rate = self.leader_rate = UNLIMITED
        self.logs = LogManager(fs, ("/data",), self.config, world.clock, jitter=lambda _: 0)
        self.logs.load()
        self.waiting: Purgatory[TopicPartition] = Purgatory()
        numbers = itertools.count(1)
        followers = FollowerFetches(
            100, lambda: next(numbers), rate=lambda: self.leader_rate, version=lambda: self.logs.changes.number
        )
        self.replicas = ReplicaManager(
            self._wake, broker_id=broker_id, clock=world.clock, max_lag_ms=10_000, alter_isr=world.alter_isr,
            broker_epoch_of=world.epoch_of, on_log_end=followers.changed, on_replicas=followers.replicas_changed,
        )  # fmt: skip
        self.services = SimpleNamespace(
            config=self.config, clock=world.clock, replicas=self.replicas, waiting=self.waiting,
            follower_fetches=followers, metadata=SimpleNamespace(brokers=world.brokers),
        )  # fmt: skip
        self.fetchers = ReplicaFetchers(
            FetcherContext(
                replicas=self.replicas,
                config=self.config,
                ask=self._ask,
                throttle=ReplicationThrottle(lambda: self.follower_rate),
                broker_epoch=lambda: epoch,
                log_changes=lambda: self.logs.changes.number,
            )
        )
        self._world = world
        self._oracles: defaultdict[LeaderFetcher, FetchOracle] = defaultdict(FetchOracle)
        self.state_changes = StateChanges(
            fs, self.logs, self.replicas, self.fetchers, clock=world.clock, topic_defaults=lambda: world.topic,
            broker_epoch=lambda: epoch,
        )  # fmt: skip

    def _wake(self, name: TopicPartition) -> None:
        self.waiting.check(name)
        self.services.follower_fetches.changed(name)

    def _ask(self, leader: int, request: Any) -> Awaitable[Any]:
        if isinstance(request, ReplicaFetch):
            fetcher = self.fetchers._fetchers[leader, 0]
            self._world.wrong_requests += self._oracles[fetcher].check(fetcher, request)
        return self._world.ask(self, leader, request)

    def replica(self, name: TopicPartition = NAME) -> Replica:
        return self.replicas.get(name)

    def log(self, name: TopicPartition = NAME) -> Log:
        return self.replica(name).log

    def append(self, count: int = 1, *, size: int = 5, name: TopicPartition = NAME) -> int:
        """-> the log end offset."""
        data = batch(count, value=random.Random(size).randbytes(size))
        return self.replicas.append(self.replicas.get_leader(name), data, acks=1).last_offset + 1

    def files(self, name: TopicPartition = NAME) -> dict[int, bytes]:
        """What the segments hold, by where they begin; none that is empty."""
        found = {each.base_offset: file_content(self.fs, each.path(LOG)) for each in self.log(name).segments}
        return {base: data for base, data in found.items() if data}

    async def stop(self) -> None:
        await self.fetchers.stop()
        await self.replicas.close()
        await self.state_changes.close()
        self.logs.close()


class World:
    """The brokers, what the controller has said last, and the network between them."""

    def __init__(self, loop: SimLoop, seed: int = 0, **topic: object) -> None:
        self.topic: TopicConfig = topic_config(**({"internal_segment_bytes": 400} | topic))
        self.chance = random.Random(seed)
        self.clock = LoopClock(loop)
        self.brokers: dict[int, Broker] = {}
        self.unreachable: set[int] = set()
        self.loss = 0.0
        self.asked: list[ReplicaFetch] = []
        self.wrong_requests: list[str] = []
        """The fetches that did not say what they must say."""
        self.asked_for_files: list[DescribeFiles | ReadReplicaFile] = []
        self.answers: list[ReplicaFetchResponse] = []
        self.spoil: Callable[[ReplicaFetchResponse], ReplicaFetchResponse] = lambda response: response
        self.leader_epoch = 0
        self.isr: tuple[int, ...] = ()
        self.version = 0
        self._epochs = itertools.count(1)

    def start(self, broker_id: int, fs: MemoryFs | None = None, **config: object) -> Broker:
        broker = Broker(self, broker_id, fs or MemoryFs(), next(self._epochs), **config)
        self.brokers[broker_id] = broker
        return broker

    async def kill(self, broker_id: int, *, power_cut: bool = False) -> MemoryFs:
        """Its disk: without what was not flushed, where the power is cut."""
        broker = self.brokers.pop(broker_id)
        fs = broker.fs.crash(self.chance) if power_cut else broker.fs.kill()
        await broker.fetchers.stop()
        await broker.replicas.close()
        await broker.state_changes.close()
        return fs

    def epoch_of(self, broker_id: int) -> int | None:
        found = self.brokers.get(broker_id)
        return found.epoch if found else None

    async def alter_isr(self, change: AlterIsr) -> AlterIsrResult:
        if (change.leader_epoch, change.partition_epoch) == (self.leader_epoch, self.version):
            self.isr, self.version = change.isr, self.version + 1
        return AlterIsrResult(isr=self.isr, partition_epoch=self.version)

    async def lead(
        self, leader: int, isr: Iterable[int] = (), *, told: Iterable[int] | None = None, name: TopicPartition = NAME
    ) -> None:
        """A new leader epoch; `told`: to whom the controller says it now."""
        self.leader_epoch += 1
        self.version += 1
        self.isr = tuple(isr) or (leader,)
        self.state = LeaderAndIsrPartitionState(
            name=name, topic_id=TOPIC_ID, leader=leader, leader_epoch=self.leader_epoch, isr=self.isr,
            replicas=(1, 2, 3), partition_epoch=self.version,
        )  # fmt: skip
        await self.tell(*(sorted(self.brokers) if told is None else told))

    async def tell(self, *brokers: int) -> None:
        """Say again who leads."""
        for each in brokers:
            request = LeaderAndIsr(
                controller_id=0, controller_epoch=1, broker_epoch=self.brokers[each].epoch,
                partitions=(self.state,), overrides={},
            )  # fmt: skip
            await self.brokers[each].state_changes.become(request)

    async def ask(self, follower: Broker, leader: int, request: Any) -> Any:
        if not isinstance(request, ReplicaFetch):
            return await self._ask_for_files(follower, leader, request)
        self.asked.append(request)
        await self._travel(follower.id, leader)
        try:
            response = await replica_fetch.API.bind(self.brokers[leader].services)(request)
        finally:
            await asyncio.sleep(0)
        await self._travel(follower.id, leader)
        response = self.spoil(response)
        self.answers.append(response)
        return response

    async def _ask_for_files(self, follower: Broker, leader: int, request: DescribeFiles | ReadReplicaFile) -> Any:
        self.asked_for_files.append(request)
        await self._travel(follower.id, leader)
        answer = await PEER_APIS[type(request)].bind(self.brokers[leader].services)(request)
        await self._travel(follower.id, leader)
        return answer

    async def _travel(self, *ends: int) -> None:
        await asyncio.sleep(self.chance.uniform(0.0001, 0.002))
        if self.unreachable & set(ends) or not set(ends) <= set(self.brokers) or self.chance.random() < self.loss:
            raise NetworkException(f"nothing gets from {ends[0]} to {ends[1]}")

    @property
    def bytes_copied(self) -> int:
        return sum(len(part.records) for response in self.answers for part in response.partitions)

    async def settle(self, name: TopicPartition = NAME, *, limit_s: float = 60) -> None:
        """Until all that live have the same records, all of them committed."""
        await until(lambda: self._is_settled(name), limit_s)

    def _is_settled(self, name: TopicPartition) -> bool:
        logs = [each.log(name) for each in self.brokers.values()]
        committed = [each.replica(name).partition.high_watermark for each in self.brokers.values()]
        ends = {log.log_end_offset for log in logs}
        epochs = {log.latest_epoch for log in logs if log.log_start_offset < log.log_end_offset}
        return len({*ends, *committed}) == 1 and len(epochs) <= 1

    def check_equal(self, name: TopicPartition = NAME, *, since: int = 0) -> None:
        """since: of segments that begin there or later."""
        found = [each.files(name) for each in self.brokers.values()]
        first, *others = ({base: data for base, data in files.items() if base >= since} for files in found)
        for files in others:
            assert files == first


async def until(is_true: Callable[[], bool], limit_s: float = 60) -> None:
    """Fails after `limit_s` of virtual time."""
    async with asyncio.timeout(limit_s):
        while not is_true():  # noqa: ASYNC110 - of everything that may change, in virtual time
            await asyncio.sleep(0.01)


def run(test: Callable[[World], Awaitable[None]], *, seed: int = 0, **topic: object) -> World:
    """Run a test in a world of its own, in virtual time, and stop its brokers."""
    loop = SimLoop()
    world = World(loop, seed, **topic)

    async def whole() -> None:
        try:
            await test(world)
        finally:
            for broker in list(world.brokers.values()):
                await broker.stop()

    try:
        loop.run(whole())
    finally:
        loop.close()
    assert not world.wrong_requests
    assert not [each for each in loop.errors if not isinstance(each.get("exception"), KafkaError)]
    return world


async def three(world: World) -> None:
    """Brokers 1, 2 and 3, of which the first leads."""
    for broker_id in (1, 2, 3):
        world.start(broker_id)
    await world.lead(1, (1, 2, 3))
