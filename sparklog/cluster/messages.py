"""Messages in which the controller describes the cluster to every broker (gRPC service Replication)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct, field

from sparklog.base.acls import AclBinding
from sparklog.base.client_metrics import ClientMetricsConfigs
from sparklog.base.quotas import ClientQuota
from sparklog.cluster.model import BrokerInfo, PartitionInfo


class TopicState(Struct, frozen=True, kw_only=True):
    """The whole state of a topic, as in the cluster store."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    overrides: Mapping[str, str]


class UpdateMetadata(Struct, frozen=True, kw_only=True):
    """All live brokers; the topics that have changed, or all topics; the topics that were deleted."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicState, ...] = ()
    deleted: tuple[str, ...] = ()
    is_full: bool = False
    """Whether `topics` has all topics: any other topic does not exist."""
    broker_overrides: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """All configuration keys that were changed at run time, by broker id; under ALL_BROKERS those for all brokers."""
    acls: frozenset[AclBinding] | None = None
    """All ACLs; None: they are as the broker knows them."""
    quotas: tuple[ClientQuota, ...] | None = None
    """All client quotas; None: they are as the broker knows them."""
    client_metrics: ClientMetricsConfigs | None = None
    """All subscriptions to metrics of clients; None: they are as the broker knows them."""
    number: int = 0
    """Grows with each request of a controller to a broker, so that the broker can refuse a late copy."""
    full_since: int = 0
    """Number of the first part, if this is a part of a full update that is too large for one request; 0: it is none.
    A part is not full: a broker that does not know of parts takes it for a change of its topics."""
    ends_full: bool = False
    """Whether it is the last part: the topics of all parts are all topics."""


class UpdateMetadataResponse(Struct, frozen=True, kw_only=True):
    pass
