"""The parts of one broker. composition.py makes them; a handler of an API names those that it uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import ApiVersion, Handlers
from sparklog.broker.client_telemetry import ClientTelemetry
from sparklog.broker.cluster_history import ClusterHistory
from sparklog.broker.consumer_lags import ConsumerLags
from sparklog.broker.fetch_sessions import FetchSessions
from sparklog.broker.follower_fetches import FollowerFetches
from sparklog.broker.metrics import Metrics
from sparklog.broker.recompression import Recompressor
from sparklog.broker.registration import Registration
from sparklog.broker.replacements import Replacements
from sparklog.broker.replica_moves import ReplicaMover
from sparklog.broker.rights import Accesses
from sparklog.broker.store_guard import StoreGuard
from sparklog.broker.strays import StrayReplicas
from sparklog.broker.topics import Topics
from sparklog.broker.verification import TransactionVerifier
from sparklog.cluster.acls import AclStore
from sparklog.cluster.client_metrics import ClientMetricsStore
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.peers import Peers
from sparklog.cluster.producer_ids import ProducerIds
from sparklog.cluster.quotas import QuotaStore
from sparklog.cluster.users import UserStore
from sparklog.controller.controller import Controller
from sparklog.group.coordinator import GroupCoordinator
from sparklog.log.directory.manager import LogManager
from sparklog.replica.fetchers import ReplicaFetchers
from sparklog.replica.manager import ReplicaManager
from sparklog.replica.state_changes import StateChanges
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.slices import Slices
from sparklog.security.authorizer import Authorizer
from sparklog.security.quotas import ClientQuotas
from sparklog.transaction.coordinator import TransactionCoordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of one broker, by topic. The parameters of handlers have the names of these fields."""

    # The broker

    api_versions: tuple[ApiVersion, ...]
    """The Kafka APIs that this broker announces."""
    config: BrokerConfig
    """The configuration at the broker's start."""
    dynamic: DynamicConfig
    """The present configuration."""
    clock: Clock
    slices: Slices
    """Cuts long work into slices, and serves other requests between them."""
    metrics: Metrics

    # The cluster

    cluster_id: str
    info: BrokerInfo
    """This broker as other brokers and clients see it."""
    metadata: MetadataCache
    """The cluster's state, as the controller has sent it."""
    peers: Peers
    """Calls to the other brokers and to this one."""
    topics: Topics
    """Creates, alters and deletes topics."""
    producer_ids: ProducerIds
    users: UserStore
    acl_store: AclStore
    quota_store: QuotaStore
    client_metrics_store: ClientMetricsStore
    registration: Registration
    store_guard: StoreGuard
    controller: Controller
    history: ClusterHistory

    # Rights, quotas and metrics of clients

    authorizer: Authorizer
    accesses: Accesses
    client_quotas: ClientQuotas
    client_telemetry: ClientTelemetry

    # Logs and replicas

    logs: LogManager
    replicas: ReplicaManager
    state_changes: StateChanges
    """Carries out the controller's LeaderAndIsr and StopReplica requests."""
    fetchers: ReplicaFetchers
    """Fetch from the leaders of the partitions that this broker follows."""
    replica_mover: ReplicaMover
    strays: StrayReplicas
    replacements: Replacements

    # Fetch and Produce

    waiting: Purgatory[TopicPartition]
    """Fetches that wait for records, and produces that wait for replicas, by the partition's high watermark."""
    fetch_sessions: FetchSessions
    session_waiting: Purgatory[int]
    """Fetches with a session that wait for records, by the session's id."""
    follower_fetches: FollowerFetches
    recompressor: Recompressor

    # Groups and transactions

    groups: GroupCoordinator
    consumer_lags: ConsumerLags
    transactions: TransactionCoordinator
    verifier: TransactionVerifier

    handlers: Handlers = field(init=False)
    """The handlers of all APIs, bound to these parts. A handler may call other handlers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "handlers", Handlers(self))

    def figures(self) -> dict[str, int]:
        """Return current figures by the names of their metrics, without the prefix `sparklog_`."""
        replicas = tuple(self.replicas)
        led = [replica for replica in replicas if replica.partition.is_leader]
        changes, history = self.replicas.isr_changes, self.history
        return {
            "partitions": len(replicas),
            "leaders": len(led),
            "offline_partitions": len(self.replicas.offline),
            "failed_log_dirs": len(self.logs.failed_dirs),
            "full_log_dirs": len(self.logs.full_dirs),
            "under_replicated_partitions": sum(replica.partition.is_under_replicated for replica in led),
            "under_min_isr_partitions": sum(
                len(each.partition.in_sync_replicas) < each.config.min_insync_replicas for each in led
            ),
            "follower_max_lag": self.fetchers.max_lag,
            "active_controller": int(self.controller.is_active),
            "history_waiting": history.waiting,
            "isr_shrinks_total": changes.shrinks,
            "isr_expands_total": changes.expands,
            "isr_update_failures_total": changes.failures,
            "history_written_total": history.written,
            "history_dropped_total": history.dropped,
            "client_metrics_dropped_total": self.client_telemetry.dropped,
            "store_connected": int(self.registration.is_connected),
            "store_sessions_expired_total": self.registration.expired_sessions,
        }
