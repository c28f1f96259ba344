"""A cluster of brokers without logs or clients, on simulated time: real controllers, a real store, scripted brokers.

A broker does what the controller says and keeps what it was told. A leader takes into its ISR whoever follows it in its
leader epoch, a moment later; `held_back` brokers never catch up. `silent` brokers have sessions and answer nothing.
`fail_write` breaks the controllers' n-th write.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from enum import Enum
from typing import Any
from uuid import UUID

from sparklog.base.addresses import Address
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConnectionLoss, KafkaError, KafkaStorageError, NetworkException, StoreError
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.brokers import load, register
from sparklog.cluster.elections import CONTROLLER_EPOCH
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.messages import UpdateMetadata, UpdateMetadataResponse
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo, ReplicaAssignment
from sparklog.cluster.partition_states import Leadership, alter_isr, read_states
from sparklog.cluster.store import Check, Operation, ensure_path
from sparklog.cluster.topics import TopicStore
from sparklog.controller.active import ActiveController
from sparklog.controller.controller import Controller
from sparklog.replica.messages import (
    AlterIsr,
    LeaderAndIsr,
    LeaderAndIsrPartitionState,
    LeaderAndIsrResponse,
    StopReplica,
    StopReplicaResponse,
)
from sparklog.testing.sim.clock import LoopClock
from sparklog.testing.sim.loop import SimLoop

CATCH_UP_S = 0.05
SETTLED_S = 5
FOREVER_S = 100_000


class Failure(Enum):
    """What becomes of the write that is to fail."""

    NOT_DONE = "not done"
    ANSWER_LOST = "done, and the answer lost"
    CONTROLLER_DIES = "done, and the controller's broker dies"


class ScriptedBroker:
    """One life of a broker."""

    def __init__(self, cluster: ScriptedCluster, broker_id: int, logs: set[TopicPartition]) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.logs = logs
        """Partitions that are on its disk; that stays when it dies."""
        self.store = WatchedStore(cluster, broker_id)
        self.states: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.metadata = MetadataCache()
        self.refuses_to_delete = False
        self.refuses_to_open = False
        self.is_alive = True
        info = BrokerInfo(
            broker_id=broker_id,
            grpc_address=f"b{broker_id}:1",
            listeners={"PLAINTEXT": Address(f"b{broker_id}", 2)},
            rack="",
            version="1",
        )
        directory = f"directory-{broker_id}"
        self.epoch = register(self.store, info, directory, time_ms=0)
        self.controller = Controller(
            store=self.store,
            directory_id=directory,
            peers=cluster,
            config=BrokerConfig(broker_id=broker_id, **cluster.settings),
            clock=LoopClock(asyncio.get_running_loop()),
        )

    def told(self, request: Any) -> Any:
        match request:
            case LeaderAndIsr():
                refused = [state.name for state in request.partitions if self._refuses(state.name)]
                for state in request.partitions:
                    if state.name not in refused:
                        self._become(state)
                return LeaderAndIsrResponse(errors={name: KafkaStorageError("it is not opened") for name in refused})
            case StopReplica():
                return StopReplicaResponse(errors=self._stop(request))
            case UpdateMetadata():
                self.metadata.update(request)
                if request.is_full:
                    self.logs.difference_update([name for name in self.logs if self._is_stray(name)])
                return UpdateMetadataResponse()

    def _refuses(self, name: TopicPartition) -> bool:
        return self.refuses_to_open and name not in self.logs

    def _become(self, state: LeaderAndIsrPartitionState) -> None:
        known = self.states.get(state.name)
        if known and known.leader_epoch >= state.leader_epoch:
            return
        self.states[state.name] = state
        self.logs.add(state.name)
        asyncio.get_running_loop().call_later(CATCH_UP_S, self.cluster.catch_up, state.name)

    def _is_stray(self, name: TopicPartition) -> bool:
        """As broker/apis/update_metadata.py says."""
        info, known = self.metadata.find_partition(name), self.states.get(name)
        if info is None or self.broker_id in info.replicas:
            return False
        return known is None or known.leader_epoch <= info.leader_epoch

    def _stop(self, request: StopReplica) -> dict[TopicPartition, KafkaError]:
        errors: dict[TopicPartition, KafkaError] = {}
        for stop in request.partitions:
            self.states.pop(stop.name, None)
            if stop.delete and self.refuses_to_delete:
                errors[stop.name] = KafkaStorageError("the disk has failed")
            elif stop.delete:
                self.logs.discard(stop.name)
        return errors


class WatchedStore(MemoryStore):
    """A broker's, in which the controllers' writes are counted."""

    def __init__(self, cluster: ScriptedCluster, broker_id: int) -> None:
        super().__init__(cluster.tree, call_soon=asyncio.get_running_loop().call_soon_threadsafe)
        self._cluster = cluster
        self._broker_id = broker_id

    def multi(self, operations: Iterable[Operation]) -> None:
        work = tuple(operations)
        is_controllers = isinstance(work[0], Check) and work[0].path == CONTROLLER_EPOCH
        failure = self._cluster.count_write() if is_controllers else None
        if failure is Failure.NOT_DONE:
            raise ConnectionLoss("the write is to fail")
        super().multi(work)
        self._cluster.note_assignments()
        if failure is Failure.CONTROLLER_DIES:
            self._cluster.kill(self._broker_id)
        if failure:
            raise ConnectionLoss("the answer is to be lost")


class ScriptedCluster:
    """Implements Peers for all controllers."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.tree = MemoryTree()
        self.brokers: dict[int, ScriptedBroker] = {}
        self.disks: dict[int, set[TopicPartition]] = {}
        self.held_back: set[int] = set()
        self.silent: set[int] = set()
        self.writes = 0
        self.strangers: list[int] = []
        """Replicas that a controller named to a broker before the store named them."""
        self._named: dict[TopicPartition, set[int]] = {}
        self._failure: tuple[int, Failure] | None = None
        self.store = MemoryStore(self.tree)
        """For the test itself."""
        self.topics = TopicStore(self.store, TopicConfig())
        self.topics.make_paths()
        ensure_path(self.store, "/admin")

    # What happens to brokers

    async def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            broker = ScriptedBroker(self, broker_id, self.disks.setdefault(broker_id, set()))
            self.brokers[broker_id] = broker
            await broker.controller.start()
        await self.settle()

    def kill(self, broker_id: int) -> None:
        broker = self.brokers.pop(broker_id)
        broker.is_alive = False
        broker.store.abandon()
        self.tree.expire(broker.store.session_id)

    async def settle(self) -> None:
        """Let everything happen that follows from what has happened."""
        await asyncio.sleep(SETTLED_S)
        assert not self.strangers

    # What is asked of the cluster

    async def create(self, topic: str, *replicas: tuple[int, ...], overrides: dict[str, str] | None = None) -> None:
        self.topics.add(topic, UUID(int=len(self.topics.names()) + 1), replicas, overrides or {})
        await self.settle()

    async def delete(self, topic: str) -> None:
        self.topics.mark_deleted(topic, self.topics.load_assignment(topic).topic_id)
        await self.settle()

    async def ask(self, function: Callable[[ActiveController], Coroutine[Any, Any, Any]]) -> Any:
        [active] = [broker for broker in self.brokers.values() if broker.controller.is_active]
        return await active.controller.ask(function)

    async def reassign(self, targets: dict[TopicPartition, tuple[int, ...] | None], *, may_resize: bool = True) -> Any:
        return await self.ask(lambda active: active.operations.reassign(targets, may_resize=may_resize))

    async def elect(self, names: list[TopicPartition] | None, *, is_unclean: bool = False) -> Any:
        answers = await self.ask(lambda active: active.operations.elect_leaders(names, is_unclean=is_unclean))
        return {name: answer.name if isinstance(answer, KafkaError) else answer for name, answer in answers.items()}

    def fail_write(self, number: int, failure: Failure) -> None:
        """The controllers' `number`-th write from now on, counted from 1."""
        self.writes, self._failure = 0, (number, failure)

    def count_write(self) -> Failure | None:
        self.writes += 1
        if self._failure and self.writes == self._failure[0]:
            return self._failure[1]
        return None

    # What is there

    def assignment(self, name: TopicPartition) -> ReplicaAssignment:
        return self.topics.load_assignment(name.topic).partitions[name.partition]

    def state(self, name: TopicPartition) -> Leadership:
        return read_states(self.store, [name])[name]

    def logs(self, name: TopicPartition) -> list[int]:
        """The brokers, dead ones too, on whose disks the partition is."""
        return sorted(broker_id for broker_id, logs in self.disks.items() if name in logs)

    def json(self, path: str) -> Any:
        return json.loads(self.store.get(path).data)

    def controller(self) -> int:
        [active] = [broker_id for broker_id, broker in self.brokers.items() if broker.controller.is_active]
        return active

    # Peers

    async def call(self, broker: BrokerInfo, request: Any, *, timeout_ms: int) -> Any:
        if isinstance(request, LeaderAndIsr):
            self._look_for_strangers(request)
        await asyncio.sleep(0.001)
        found = self.brokers.get(broker.broker_id)
        if found is None or broker.broker_id in self.silent or found.epoch != request.broker_epoch:
            raise NetworkException(f"nobody is at {broker.grpc_address}")
        answer = found.told(request)
        await asyncio.sleep(0.001)
        return answer

    async def close(self) -> None:
        return None

    def catch_up(self, name: TopicPartition) -> None:
        """Who follows the partition's leader comes into the ISR."""
        for leader in list(self.brokers.values()):
            state = leader.states.get(name)
            if state is None or state.leader != leader.broker_id:
                continue
            lives = {each: info.epoch for each, info in load(self.store).items()}
            joining = {
                each: lives[each]
                for each in state.replicas
                if each not in state.isr and each not in self.held_back and self._follows(each, state)
            }
            if not joining:
                continue
            try:
                altered = alter_isr(
                    leader.store,
                    AlterIsr(
                        name=name,
                        topic_id=state.topic_id,
                        leader=state.leader,
                        leader_epoch=state.leader_epoch,
                        controller_epoch=0,
                        isr=(*state.isr, *joining),
                        partition_epoch=state.partition_epoch,
                        joining=joining,
                    ),
                )
            except (StoreError, KafkaError):
                continue  # it is not the leader any more, and will be told
            leader.states[name] = _with(state, altered.isr, altered.partition_epoch)

    def note_assignments(self) -> None:
        """Note the replicas that the store names."""
        for topic in self.topics.names():
            for number, assignment in enumerate(self.topics.load_assignment(topic).partitions):
                self._named.setdefault(TopicPartition(topic, number), set()).update(assignment.replicas)

    def _look_for_strangers(self, request: LeaderAndIsr) -> None:
        """A replica that the store does not name yet could join the ISR, and the next controller would not know it."""
        self.note_assignments()
        for state in request.partitions:
            self.strangers += set(state.replicas) - self._named.get(state.name, set())

    def _follows(self, broker_id: int, state: LeaderAndIsrPartitionState) -> bool:
        broker = self.brokers.get(broker_id)
        told = broker.states.get(state.name) if broker else None
        return told is not None and told.leader_epoch == state.leader_epoch


def _with(state: LeaderAndIsrPartitionState, isr: tuple[int, ...], partition_epoch: int) -> LeaderAndIsrPartitionState:
    values = {field: getattr(state, field) for field in LeaderAndIsrPartitionState.__struct_fields__}
    return LeaderAndIsrPartitionState(**{**values, "isr": isr, "partition_epoch": partition_epoch})


def simulated(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test on simulated time; what nobody has caught fails it."""
    loop = SimLoop()
    loop.run(asyncio.wait_for(test(), FOREVER_S))
    assert loop.errors == []
