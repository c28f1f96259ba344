"""A context that is made by hand, with both machines on a store in memory; what they send is kept."""

from __future__ import annotations

import copy
from itertools import count
from typing import Any
from uuid import UUID

from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.elections import elect
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.topics import TopicStore
from sparklog.controller.context import ControllerContext
from sparklog.controller.fenced_store import FencedStore
from sparklog.controller.outbox import Outbox, Request
from sparklog.controller.partition_state_machine import PartitionStateMachine
from sparklog.controller.replica_state_machine import ReplicaStateMachine

BROKERS = (1, 2, 3)


class MachinesWorld:
    def __init__(self, topics: dict[str, list[tuple[int, ...]]]) -> None:
        self.store = MemoryStore(MemoryTree())
        topic_store = TopicStore(self.store, TopicConfig())
        topic_store.make_paths()
        elected = elect(self.store, 1, "d1", time_ms=0)
        assert not isinstance(elected, int)
        self.context = ControllerContext(epoch=elected.epoch, epoch_version=elected.epoch_version)
        self.context.brokers = {
            broker_id: BrokerInfo(
                broker_id=broker_id, grpc_address=f"b{broker_id}:1", listeners={}, rack="", version="", epoch=broker_id
            )
            for broker_id in BROKERS
        }
        for number, (name, replicas) in enumerate(topics.items()):
            topic_store.add(name, UUID(int=number), replicas, {})
            self.context.add_topic(name, UUID(int=number), topic_store.load_assignment(name).partitions)
        self.sent: list[tuple[int, Request]] = []
        self.outbox = Outbox(self.context, 1, lambda broker, request: self.sent.append((broker, request)), count(1))
        fenced = FencedStore(self.store, elected.epoch_version)
        self.partitions = PartitionStateMachine(self.context, fenced, self.outbox, defaults=TopicConfig)
        self.replicas = ReplicaStateMachine(self.context, fenced, self.outbox)

    def snapshot(self) -> Any:
        return copy.deepcopy(self.context)
