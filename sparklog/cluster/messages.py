"""What the controller tells every broker about the cluster (gRPC service Replication)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from sparklog.cluster.model import BrokerInfo, PartitionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic whole, as the cluster store has it."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    overrides: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadata:
    """The live brokers, all of them; the topics that have changed, or all; the topics that are gone."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicState, ...] = ()
    deleted: tuple[str, ...] = ()
    is_full: bool = False
    """Topics that are not among `topics` do not exist."""
    broker_overrides: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Configuration keys of brokers that were changed while they run; those of all brokers."""
    number: int = 0
    """Grows with each request of a controller's to a broker: a copy that comes late is older than what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse:
    pass
