"""The cluster as values that never change: whoever holds one sees one moment of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from sparklog.base.addresses import Address
from sparklog.base.ids import INTERNAL_TOPICS, TopicPartition
from sparklog.base.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """Who has one partition; `leader` is -1 where nobody leads."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    """Those of `replicas` that a reassignment adds."""
    removing: tuple[int, ...] = ()
    """Those of `replicas` that a reassignment takes away, once those that it adds are in sync."""
    partition_epoch: int = 0
    """The version of the partition's node in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAssignment:
    """The brokers that have one partition, in their order of preference, and what a reassignment makes of them.

    While one is under way, `replicas` are its target and behind that those that it takes away (KIP-455).
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Who had it before; in another order, where target and origin overlap."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """Who is to have it."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    def reassign_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """On the way from `origin` to another target, whatever the target was until now."""
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin)))
        return ReplicaAssignment(
            replicas=replicas,
            adding=tuple(broker for broker in replicas if broker not in origin),
            removing=tuple(broker for broker in replicas if broker not in target),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic: its partitions in their order, its own configuration, and what that means with the defaults."""

    name: str
    topic_id: UUID
    """Its own for as long as it exists: a topic that is created again under the name has another (KIP-516)."""
    partitions: tuple[PartitionInfo, ...]
    overrides: Mapping[str, str]
    config: TopicConfig

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def named_partitions(self) -> Iterator[tuple[TopicPartition, PartitionInfo]]:
        return ((TopicPartition(self.name, number), info) for number, info in enumerate(self.partitions))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """One broker as the others and the clients see it."""

    broker_id: int
    grpc_address: str
    listeners: Mapping[str, Address]
    """Where clients that speak Kafka's protocol reach it, by the name of the listener."""
    rack: str
    version: str
    epoch: int = -1
    """Of this life of the broker: greater than that of any before it (`Node.created` of its node in the store)."""
