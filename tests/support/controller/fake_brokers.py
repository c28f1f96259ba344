"""Brokers that do what a controller tells them and nothing more, each with a real Controller, on one store in memory.

Time is the loop's: nothing waits for it. A fake broker keeps what it was told, refuses what real ones refuse, and says
where it differs from the store.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec import structs

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    KafkaError,
    KafkaStorageError,
    NetworkException,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownServerError,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.brokers import register
from sparklog.cluster.config_nodes import CONFIG_CHANGES
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.messages import UpdateMetadata, UpdateMetadataResponse
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo, ReplicaAssignment
from sparklog.cluster.partition_states import Leadership, alter_isr, read_states
from sparklog.cluster.store import SessionState
from sparklog.cluster.topics import TopicAssignment, TopicStore
from sparklog.controller.controller import Controller
from sparklog.replica.messages import (
    AlterIsr,
    LeaderAndIsr,
    LeaderAndIsrPartitionState,
    LeaderAndIsrResponse,
    StopReplica,
    StopReplicaResponse,
)

SETTLED_S = 5
"""Longer than any back-off of the controller's."""


class LoopClock:
    def time_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


class FakeBroker:
    """One broker; each start is another life of it."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.is_cut = False
        """Others do not reach it."""
        self.failed: set[TopicPartition] = set()
        """Replicas whose disk has failed."""
        self.undeletable: set[TopicPartition] = set()
        self.logs: set[TopicPartition] = set()
        """What is on its disk."""
        self.is_up = False

    async def start(self) -> None:
        self.is_up = True
        self.partitions: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.metadata = MetadataCache()
        self.seen = (0, 0)
        self.store = MemoryStore(self.world.tree, call_soon=asyncio.get_running_loop().call_soon)
        self.store.listen(self._session_changed)
        config = BrokerConfig(broker_id=self.broker_id, **self.world.config)
        self.controller = Controller(
            store=self.store,
            directory_id=f"d{self.broker_id}",
            peers=Reach(self.world, self),
            config=config,
            clock=LoopClock(),
        )
        self.epoch = self._register()
        await self.controller.start()

    async def stop(self) -> None:
        """In order: the store hears of it."""
        self.is_up = False
        await self.controller.stop()
        self.store.close()

    def kill(self) -> None:
        """At once; its session is still there."""
        self.is_up = False
        self.store.abandon()
        if self.controller._task:
            self.controller._task.cancel()
        self.controller._step_down()

    def expire(self) -> None:
        """The store gives it up."""
        self.world.tree.expire(self.store.session_id)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self.is_up:
            asyncio.get_running_loop().call_soon(self._register_again)

    def _register_again(self) -> None:
        self.epoch = self._register()

    def _register(self) -> int:
        info = BrokerInfo(
            broker_id=self.broker_id, grpc_address=f"b{self.broker_id}:9094", listeners={}, rack="", version="1"
        )
        return register(self.store, info, f"d{self.broker_id}", time_ms=0)

    # What it is told

    def answer(self, request: Any) -> Any:
        if request.broker_epoch != self.epoch:
            raise StaleBrokerEpoch(f"this is {self.epoch}, not {request.broker_epoch}")
        if (request.controller_epoch, request.number) < self.seen:
            raise StaleControllerEpoch(f"{self.seen} was seen")
        self.seen = (request.controller_epoch, request.number)
        self.world.requests.append((self.broker_id, request))
        match request:
            case LeaderAndIsr():
                return self._become(request)
            case StopReplica():
                return self._stop(request)
            case UpdateMetadata():
                self.metadata.update(request)
                return UpdateMetadataResponse()
        raise AssertionError(request)

    def _become(self, request: LeaderAndIsr) -> LeaderAndIsrResponse:
        errors: dict[TopicPartition, KafkaError] = {}
        for state in request.partitions:
            if state.name in self.failed:
                errors[state.name] = KafkaStorageError("the disk has failed")
                continue
            known = self.partitions.get(state.name)
            if known and known.leader_epoch > state.leader_epoch:
                continue
            self.partitions[state.name] = state
            self.logs.add(state.name)
        return LeaderAndIsrResponse(errors=errors)

    def _stop(self, request: StopReplica) -> StopReplicaResponse:
        errors: dict[TopicPartition, KafkaError] = {}
        for stop in request.partitions:
            if stop.delete and stop.name in self.undeletable:
                errors[stop.name] = UnknownServerError("busy")
                continue
            self.partitions.pop(stop.name, None)
            if stop.delete:
                self.logs.discard(stop.name)
        return StopReplicaResponse(errors=errors)


class Reach:
    """Implements Peers, for one broker."""

    def __init__(self, world: World, caller: FakeBroker) -> None:
        self._world = world
        self._caller = caller

    async def call(self, broker: BrokerInfo, request: Any, *, timeout_ms: int) -> Any:
        await asyncio.sleep(0.001)
        target = self._world.brokers[broker.broker_id]
        if not self._caller.is_up or not target.is_up or (target.is_cut and target is not self._caller):
            raise NetworkException(f"broker {broker.broker_id} cannot be reached")
        answer = target.answer(request)
        await asyncio.sleep(0.001)
        return answer

    async def close(self) -> None:
        return


class World:
    """The cluster, and what an administrator and the partitions' leaders do to it."""

    def __init__(self, **config: Any) -> None:
        self.config = config
        self.tree = MemoryTree()
        self.brokers: dict[int, FakeBroker] = {}
        self.requests: list[tuple[int, Any]] = []
        self.store = MemoryStore(self.tree)
        self.topics = TopicStore(self.store, TopicConfig())
        self.topics.make_paths()

    async def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            broker = self.brokers.setdefault(broker_id, FakeBroker(self, broker_id))
            await broker.start()

    async def settle(self, seconds: float = SETTLED_S) -> None:
        await asyncio.sleep(seconds)

    def controllers(self) -> list[FakeBroker]:
        return [broker for broker in self.brokers.values() if broker.is_up and broker.controller.is_active]

    @property
    def controller(self) -> FakeBroker:
        (only,) = self.controllers()
        return only

    # What others do to the store

    def create_topic(self, name: str, replicas: list[tuple[int, ...]], **overrides: str) -> None:
        number = len(self.topics.names()) + 1
        self.topics.add(name, UUID(int=number), replicas, overrides)

    def add_partitions(self, name: str, replicas: list[tuple[int, ...]]) -> None:
        old = self.topics.load_assignment(name)
        added = tuple(ReplicaAssignment(replicas=each) for each in replicas)
        self.topics.set_assignment(name, structs.replace(old, partitions=(*old.partitions, *added)))

    def configure(self, name: str, overrides: Mapping[str, str]) -> None:
        self.store.set(f"/config/topics/{name}", json.dumps({"version": 1, "config": dict(overrides)}).encode())
        notice = {"version": 2, "entity_path": f"topics/{name}"}
        self.store.create(f"{CONFIG_CHANGES}/config_change_", json.dumps(notice).encode(), sequential=True)

    def set_isr(self, name: TopicPartition, isr: tuple[int, ...]) -> None:
        """As the leader does, with what it knows."""
        state = self.state(name)
        alter_isr(
            self.store,
            AlterIsr(
                name=name,
                topic_id=self.topics.load_assignment(name.topic).topic_id,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                controller_epoch=state.controller_epoch,
                isr=isr,
                partition_epoch=state.version,
                joining={each: self.brokers[each].epoch for each in isr if each not in state.isr},
            ),
        )

    def lose_disk(self, broker_id: int, name: TopicPartition) -> None:
        self.brokers[broker_id].failed.add(name)
        notice = json.dumps({"version": 1, "broker": broker_id, "event": 1}).encode()
        self.store.create("/log_dir_event_notification/log_dir_event_", notice, sequential=True)

    # What is to be seen

    def state(self, name: TopicPartition) -> Leadership:
        return read_states(self.store, [name])[name]

    def find_state(self, name: TopicPartition) -> Leadership | None:
        return read_states(self.store, [name]).get(name)

    def names(self) -> list[TopicPartition]:
        loaded: list[tuple[str, TopicAssignment]] = [
            (each, self.topics.load_assignment(each)) for each in self.topics.names()
        ]
        return [TopicPartition(topic, number) for topic, found in loaded for number in range(len(found.partitions))]

    def differences(self) -> list[str]:
        """Where a broker that is up and can be reached was not told what the store says."""
        if len(self.controllers()) != 1:
            return ["there is no controller" if not self.controllers() else "there are several controllers"]
        found = []
        marked = set(self.topics.marked_deleted())
        states = read_states(self.store, [name for name in self.names() if name.topic not in marked])
        live = {broker.broker_id: broker.epoch for broker in self.brokers.values() if broker.is_up}
        for broker in self.brokers.values():
            if not broker.is_up or broker.is_cut:
                continue
            seen = {info.broker_id: info.epoch for info in broker.metadata.brokers.values()}
            if seen != live:
                found.append(f"{broker.broker_id} sees the brokers {seen}, not {live}")
            if broker.metadata.controller_id != self.controller.broker_id:
                found.append(f"{broker.broker_id} takes {broker.metadata.controller_id} for the controller")
            for name, state in states.items():
                found += self._differences_of(broker, name, state)
        return found

    def _differences_of(self, broker: FakeBroker, name: TopicPartition, state: Leadership) -> list[str]:
        info = broker.metadata.find_partition(name)
        wanted = (state.leader, state.leader_epoch, state.isr, state.version)
        seen = info and (info.leader, info.leader_epoch, info.in_sync_replicas, info.partition_epoch)
        found = [] if seen == wanted else [f"{broker.broker_id} shows {name} as {seen}, not {wanted}"]
        replicas = self.topics.load_assignment(name.topic).partitions[name.partition].replicas
        if broker.broker_id not in replicas or name in broker.failed:
            return found
        told = broker.partitions.get(name)
        if told is None or (told.leader, told.leader_epoch) != wanted[:2]:
            found.append(f"{broker.broker_id} has {name} as {told}, not {wanted}")
        return found
