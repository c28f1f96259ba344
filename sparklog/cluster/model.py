"""Immutable values that describe the cluster at one moment."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from sparklog.base.addresses import Address
from sparklog.base.ids import INTERNAL_TOPICS, TopicPartition
from sparklog.base.topic_config import TopicConfig


class PartitionInfo(Struct, frozen=True, kw_only=True):
    """Leader, replicas and ISR of one partition; `leader` is -1 if the partition has none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    """The part of `replicas` that a reassignment adds."""
    removing: tuple[int, ...] = ()
    """The part of `replicas` that a reassignment removes once the added replicas are in sync."""
    partition_epoch: int = 0
    """The version of the partition's node in the store."""

    @property
    def is_restored(self) -> bool:
        """Whether the store had lost the partition's ISR: it has no leader until the replicas are compared."""
        return not self.in_sync_replicas and self.leader_epoch >= 0


class ReplicaAssignment(Struct, frozen=True, kw_only=True):
    """The replicas of one partition, in their order of preference, and its reassignment.

    During a reassignment, `replicas` has the target first and then the replicas to remove (KIP-455).
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Replicas before the reassignment; their order may differ if target and origin overlap."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas after the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    def reassign_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """Return the assignment that moves from `origin` to `target`. A former target is dropped."""
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin)))
        return ReplicaAssignment(
            replicas=replicas,
            adding=tuple(broker for broker in replicas if broker not in origin),
            removing=tuple(broker for broker in replicas if broker not in target),
        )

    def without(self, brokers: Collection[int]) -> ReplicaAssignment:
        """Return the assignment with these replicas gone."""
        return ReplicaAssignment(
            replicas=tuple(broker for broker in self.replicas if broker not in brokers),
            adding=tuple(broker for broker in self.adding if broker not in brokers),
            removing=tuple(broker for broker in self.removing if broker not in brokers),
        )


class Topic(Struct, frozen=True, kw_only=True):
    """One topic: its partitions in order, its own configuration, and the effective configuration with the defaults."""

    name: str
    topic_id: UUID
    """Constant while the topic exists; a new topic of the same name gets another id (KIP-516)."""
    partitions: tuple[PartitionInfo, ...]
    overrides: Mapping[str, str]
    config: TopicConfig

    @property
    def is_internal(self) -> bool:
        """Whether it is one of the brokers' own topics, such as `__consumer_offsets`."""
        return self.name in INTERNAL_TOPICS

    def named_partitions(self) -> Iterator[tuple[TopicPartition, PartitionInfo]]:
        """Yield the partitions with their names, in their order."""
        return ((TopicPartition(self.name, number), info) for number, info in enumerate(self.partitions))


class BrokerInfo(Struct, frozen=True, kw_only=True):
    """One broker as other brokers and clients see it."""

    broker_id: int
    grpc_address: str
    listeners: Mapping[str, Address]
    """Addresses for clients of Kafka's protocol, by listener name."""
    rack: str
    version: str
    epoch: int = -1
    """Broker epoch, greater at each registration (`Node.created` of the broker's node in the store)."""


class CurrentLeader(NamedTuple):
    """A live broker that leads a partition, and its leader epoch."""

    broker: BrokerInfo
    leader_epoch: int
