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
    """The state of a topic, as in the cluster store."""

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
    """All ACLs; None: unchanged."""
    quotas: tuple[ClientQuota, ...] | None = None
    """All client quotas; None: unchanged."""
    client_metrics: ClientMetricsConfigs | None = None
    """All subscriptions to metrics of clients; None: unchanged."""
    number: int = 0
    """Grows with each request of a controller to a broker, so that the broker can refuse a late copy."""
    full_since: int = 0
    """The `number` of the first part, if this is one part of a large full update; 0: it is not. `is_full` is False in
    parts, so that an earlier version, which does not know parts, applies them as changes of their topics."""
    ends_full: bool = False
    """Whether this is the last part: the topics of all parts are all topics."""
    store_id: str = ""
    """The id of the controller's cluster store; empty: not known."""

    @property
    def begins_full(self) -> bool:
        """Whether this is a full update, or the first part of one."""
        return self.is_full or 0 < self.full_since == self.number


class UpdateMetadataResponse(Struct, frozen=True, kw_only=True):
    pass
