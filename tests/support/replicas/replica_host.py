"""One broker's replicas on real logs, a store in memory and virtual time; controller and followers are the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import NodeExists
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import delete_records, produce
from sparklog.broker.metrics import Metrics
from sparklog.cluster.broker_epochs import read_broker_epochs
from sparklog.cluster.brokers import BROKER_IDS
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.partition_states import ISR_CHANGES, Leadership, alter_isr, decode_state, encode_state
from sparklog.cluster.store import ensure_path
from sparklog.cluster.topics import TOPICS, encode_assignment, state_path
from sparklog.log.directory.manager import LogManager
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.replica.messages import (
    AlterIsr,
    AlterIsrResult,
    LeaderAndIsr,
    LeaderAndIsrPartitionState,
    LeaderAndIsrResponse,
    StopPartition,
    StopReplica,
    StopReplicaResponse,
)
from sparklog.replica.state_changes import InitialFetchState, StateChanges
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.slices import Slices
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import LoopClock
from sparklog.testing.sim.loop import SimLoop
from support.logs.builders import batch

NAME = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)
ME = 1
LAG_MS = 10_000


class RecordedFetchers:
    """Fetchers that copy nothing."""

    def __init__(self) -> None:
        self.followed: dict[TopicPartition, InitialFetchState] = {}

    def follow(self, states: Any) -> None:
        self.followed.update(states)

    async def unfollow(self, names: Any) -> None:
        for name in names:
            self.followed.pop(name, None)


class Host:
    """Broker 1; `restart` begins another life on the same disk."""

    def __init__(self, loop: SimLoop) -> None:
        self.clock = LoopClock(loop)
        self.fs = MemoryFs()
        self.store = MemoryStore(MemoryTree())
        self.epochs: dict[int, int] = {}
        self.lives = self.number = 0
        ensure_path(self.store, BROKER_IDS)
        ensure_path(self.store, ISR_CHANGES)
        ensure_path(self.store, TOPICS)
        self.store.create(f"{TOPICS}/t", encode_assignment(TOPIC_ID, ()))
        for broker_id in (1, 2, 3):
            self.begin_life(broker_id)
        self.restart()

    def restart(self) -> None:
        config = BrokerConfig(broker_id=ME, log_dirs=("/data",))
        self.logs = LogManager(self.fs, ("/data",), config, self.clock, jitter=lambda _: 0)
        self.logs.load()
        self.waiting: Purgatory[TopicPartition] = Purgatory()
        self.replicas = ReplicaManager(
            self.waiting.check, broker_id=ME, clock=self.clock, max_lag_ms=LAG_MS,
            alter_isr=self._alter_isr, broker_epoch_of=self.epochs.get, exists=lambda name: name.topic == "t",
            on_leadership=lambda name, is_leader, epoch: self.leaderships.append((is_leader, epoch)),
        )  # fmt: skip
        self.own_epoch = self.epochs[ME]
        self.fetchers = RecordedFetchers()
        self.state_changes = StateChanges(
            self.fs, self.logs, self.replicas, self.fetchers, clock=self.clock, broker_epoch=lambda: self.own_epoch,
            on_pending=lambda: self.pending.append(set(self.state_changes.pending)),
        )  # fmt: skip
        self.pending: list[set[TopicPartition]] = []
        self.leaderships: list[tuple[bool, int]] = []
        self.services = SimpleNamespace(
            config=config,
            logs=self.logs,
            replicas=self.replicas,
            state_changes=self.state_changes,
            waiting=self.waiting,
            metrics=Metrics(()),
            follower_fetches=SimpleNamespace(waiting=Purgatory()),
            metadata=MetadataCache(),
            slices=Slices(),
            topics=None,
            verifier=None,
            recompressor=None,
        )

    async def _alter_isr(self, change: AlterIsr) -> AlterIsrResult:
        return await asyncio.to_thread(alter_isr, self.store, change)

    def begin_life(self, broker_id: int) -> None:
        """Of another broker, or before `restart`; the controller has seen it."""
        self.lives += 1
        self.epochs[broker_id] = self.lives
        self.store.multi((read_broker_epochs(self.store).write(self.epochs),))

    # The controller

    def write(self, leader: int, leader_epoch: int, isr: tuple[int, ...], name: TopicPartition = NAME) -> int:
        """-> the partition epoch."""
        path = state_path(*name)
        data = encode_state(Leadership(leader=leader, leader_epoch=leader_epoch, isr=isr, controller_epoch=1))
        with suppress(NodeExists):
            ensure_path(self.store, path.rpartition("/")[0])
            self.store.create(path, data)
            return 0
        return self.store.set(path, data)

    def in_store(self) -> Leadership:
        node = self.store.get(state_path(*NAME))
        return decode_state(node.data, node.version)

    async def become(
        self, leader: int, leader_epoch: int, isr: tuple[int, ...] = (1, 2, 3), **fields: Any
    ) -> LeaderAndIsrResponse:
        """The controller has decided that, and this broker is told."""
        partition_epoch = self.write(leader, leader_epoch, isr)
        return await self.tell(leader, leader_epoch, isr, partition_epoch, **fields)

    async def tell(
        self,
        leader: int,
        leader_epoch: int,
        isr: tuple[int, ...],
        partition_epoch: int,
        *,
        topic_id: UUID = TOPIC_ID,
        overrides: dict[str, str] | None = None,
        controller_epoch: int = 1,
        broker_epoch: int | None = None,
    ) -> LeaderAndIsrResponse:
        self.number += 1
        state = LeaderAndIsrPartitionState(
            name=NAME, topic_id=topic_id, leader=leader, leader_epoch=leader_epoch, isr=isr, replicas=(1, 2, 3),
            partition_epoch=partition_epoch,
        )  # fmt: skip
        return await self.state_changes.become(
            LeaderAndIsr(
                controller_id=1,
                controller_epoch=controller_epoch,
                number=self.number,
                partitions=(state,),
                broker_epoch=self.epochs[ME] if broker_epoch is None else broker_epoch,
                overrides={"t": overrides or {}},
            )
        )

    async def stop(self, leader_epoch: int, *, delete: bool = False) -> StopReplicaResponse:
        self.number += 1
        return await self.state_changes.stop(
            StopReplica(
                controller_id=1,
                controller_epoch=1,
                broker_epoch=self.epochs[ME],
                number=self.number,
                partitions=(StopPartition(name=NAME, leader_epoch=leader_epoch, delete=delete),),
            )
        )

    # Followers and clients

    @property
    def replica(self) -> Replica:
        return self.replicas.get(NAME)

    def fetched(self, broker_id: int, offset: int, *, log_start_offset: int = 0, epoch: int | None = None) -> None:
        self.replicas.follower_fetched(
            self.replica, broker_id, broker_epoch=self.epochs[broker_id] if epoch is None else epoch,
            fetch_offset=offset, log_start_offset=log_start_offset,
        )  # fmt: skip

    def append(self, count: int = 1) -> int:
        """-> the log end offset."""
        return self.replicas.append(self.replicas.get_leader(NAME), batch(count), acks=1).last_offset + 1

    def produce(self, count: int = 1, *, timeout_ms: int = 60_000) -> asyncio.Task[produce.PartitionProduceResult]:
        """With acks=all."""

        async def send() -> produce.PartitionProduceResult:
            part = produce.PartitionProduce(topic="t", partition=0, data=batch(count))
            request = produce.ProduceRequest(partitions=[part], timeout_ms=timeout_ms, creates_topics=False)
            return (await produce.API.bind(self.services)(request)).partitions[0]

        return asyncio.ensure_future(send())

    def delete_records(self, before_offset: int, *, timeout_ms: int = 60_000) -> asyncio.Task[Any]:
        async def send() -> delete_records.RecordDeletionResult:
            part = delete_records.RecordsToDelete(topic="t", partition=0, before_offset=before_offset)
            request = delete_records.DeleteRecordsRequest(partitions=[part], timeout_ms=timeout_ms)
            return (await delete_records.API.bind(self.services)(request)).partitions[0]

        return asyncio.ensure_future(send())


def run(test: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
    loop = SimLoop()

    async def main() -> None:
        host = Host(loop)
        await test(host)
        await host.replicas.close()
        await host.state_changes.close()

    loop.run(main())
