"""The composition root of a broker: `compose` makes all parts and connects them.

The broker (node.py) makes what exists before it has joined its cluster, and passes it as `Dependencies`. A function for
each larger part follows, in the order in which `compose` calls them.
"""

from __future__ import annotations

import random as randomness
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from msgspec import Struct

from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.config_keys import MAX_INT
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.errors import NetworkException, StoreError
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.base.listeners import protocols_of
from sparklog.broker.api import ApiVersion
from sparklog.broker.apis import APIS, PEER_APIS, telemetry
from sparklog.broker.client_telemetry import ClientTelemetry
from sparklog.broker.cluster_history import ClusterHistory
from sparklog.broker.consumer_lags import ConsumerLags
from sparklog.broker.fetch_sessions import MAX_PARTITIONS, FetchSessions
from sparklog.broker.follower_fetches import FollowerFetches
from sparklog.broker.internal_topics import create_internal
from sparklog.broker.metrics import Metrics
from sparklog.broker.peers import PartitionLeaders, PeersAndSelf, Serve
from sparklog.broker.recompression import Recompressor
from sparklog.broker.registration import Registration
from sparklog.broker.replacements import Replacements
from sparklog.broker.replica_moves import ReplicaMover
from sparklog.broker.rights import Accesses
from sparklog.broker.services import Services
from sparklog.broker.store_guard import StoreGuard
from sparklog.broker.strays import StrayReplicas
from sparklog.broker.topics import Topics
from sparklog.broker.verification import TransactionVerifier
from sparklog.cluster.acls import AclStore
from sparklog.cluster.brokers import GRPC
from sparklog.cluster.client_metrics import ClientMetricsStore
from sparklog.cluster.engines import session_timeout_ms
from sparklog.cluster.history import HISTORY_TOPIC, HistoryKind
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.partition_states import IsrWriter
from sparklog.cluster.peers import Peers
from sparklog.cluster.producer_ids import ProducerIds
from sparklog.cluster.quotas import QuotaStore
from sparklog.cluster.store import Store
from sparklog.cluster.topics import TopicStore
from sparklog.cluster.users import UserStore
from sparklog.controller.controller import Controller
from sparklog.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from sparklog.group.generations import Generation
from sparklog.log.directory.manager import LogManager
from sparklog.replica.fetcher import FetcherContext
from sparklog.replica.fetchers import ReplicaFetchers
from sparklog.replica.manager import OnLeadership, ReplicaManager
from sparklog.replica.partition import Partition
from sparklog.replica.segment_sync import Ask
from sparklog.replica.state_changes import StateChanges
from sparklog.replica.throttle import ReplicationThrottle
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.slices import Slices
from sparklog.security.authorizer import Authorizer
from sparklog.security.quotas import ClientQuotas
from sparklog.transaction.coordinator import TRANSACTIONS_TOPIC, TransactionCoordinator
from sparklog.transaction.marker_sender import MarkerSender


class Dependencies(Struct, frozen=True, kw_only=True):
    """What the parts of a broker are made from."""

    config: BrokerConfig
    """The configuration at the broker's start."""
    dynamic: DynamicConfig
    """The present configuration."""
    info: BrokerInfo
    """This broker as other brokers and clients see it."""
    cluster_id: str
    fs: Fs
    clock: Clock
    random: randomness.Random
    new_id: Callable[[], UUID]
    """Returns a random UUID, version 4."""
    store: Store
    """The cluster store, open."""
    store_guard: StoreGuard
    logs: LogManager
    """The logs, recovered."""
    metadata: MetadataCache
    metrics: Metrics
    client_quotas: ClientQuotas
    slices: Slices
    waiting: Purgatory[TopicPartition]
    """Requests that wait for a partition's high watermark."""
    peers: Peers | None
    """The connections to other brokers; None: there are none."""
    serve: Serve
    """Handles a request of this broker to itself."""

    def new_session_id(self) -> int:
        """Return a random id of a fetch session: from 1 to 2³¹ - 1, as 0 means no session."""
        return self.random.randint(1, MAX_INT)


def compose(dependencies: Dependencies) -> Services:
    """Return the parts of a broker, not yet started. Call it on the event loop that uses them."""
    config, clock, store = dependencies.config, dependencies.clock, dependencies.store
    dynamic, metadata = dependencies.dynamic, dependencies.metadata
    peers = PeersAndSelf(config.broker_id, dependencies.serve, PEER_APIS, dependencies.peers)
    topics = _topics(dependencies)
    producer_ids = ProducerIds(
        store, config.broker_id, time_ms=dependencies.clock.time_ms, above=dependencies.logs.greatest_producer_id
    )
    history = _history(dependencies, peers, topics, producer_ids)
    fetch_sessions = _fetch_sessions(dependencies)
    session_waiting: Purgatory[int] = Purgatory()
    follower_fetches = _follower_fetches(dependencies)

    def partition_changed(name: TopicPartition) -> None:
        dependencies.waiting.check(name)
        follower_fetches.changed(name)
        for session_id in fetch_sessions.changed(name):
            session_waiting.check(session_id)

    def leadership_changed(name: TopicPartition, is_leader: bool, leader_epoch: int) -> None:
        # Both coordinators are made below: they write through the replicas.
        groups.partitions.leadership_changed(name, is_leader, leader_epoch)
        transactions.partitions.leadership_changed(name, is_leader, leader_epoch)

    replicas = _replicas(dependencies, follower_fetches, history, partition_changed, leadership_changed)
    groups = _groups(dependencies, replicas, topics, history)
    transactions = _transactions(dependencies, replicas, topics, producer_ids, peers)
    registration = _registration(dependencies, replicas)
    fetchers = _fetchers(dependencies, peers, replicas, registration)
    state_changes = _state_changes(dependencies, replicas, fetchers, registration)
    authorizer = Authorizer.of(config, clock.time_ms)
    return Services(
        api_versions=_api_versions(config),
        config=config,
        dynamic=dynamic,
        clock=clock,
        slices=dependencies.slices,
        metrics=dependencies.metrics,
        cluster_id=dependencies.cluster_id,
        info=dependencies.info,
        metadata=metadata,
        peers=peers,
        topics=topics,
        producer_ids=producer_ids,
        users=UserStore(store),
        acl_store=AclStore(store),
        quota_store=QuotaStore(store),
        client_metrics_store=ClientMetricsStore(store),
        registration=registration,
        store_guard=dependencies.store_guard,
        controller=_controller(dependencies, peers, history),
        history=history,
        authorizer=authorizer,
        accesses=Accesses(authorizer, metadata, creates_topics=config.auto_create_topics_enable),
        client_quotas=dependencies.client_quotas,
        client_telemetry=ClientTelemetry(dependencies.new_id),
        logs=dependencies.logs,
        replicas=replicas,
        state_changes=state_changes,
        fetchers=fetchers,
        replica_mover=_replica_mover(dependencies, state_changes),
        strays=StrayReplicas(config.broker_id, dependencies.logs, metadata, state_changes, topics),
        replacements=Replacements(replicas, clock, dependencies.metrics, lambda: dependencies.new_id().hex),
        waiting=dependencies.waiting,
        fetch_sessions=fetch_sessions,
        session_waiting=session_waiting,
        follower_fetches=follower_fetches,
        recompressor=Recompressor(),
        groups=groups,
        consumer_lags=_consumer_lags(dependencies, replicas, groups, peers),
        transactions=transactions,
        verifier=_verifier(dependencies, replicas, transactions, peers),
    )


def _topics(dependencies: Dependencies) -> Topics:
    return Topics(
        dependencies.dynamic,
        TopicStore(dependencies.store, dependencies.config.topic_defaults),
        dependencies.metadata,
        dependencies.random.randrange,
        dependencies.logs.check_room,
        dependencies.store_guard.until_sure,
    )


def _history(dependencies: Dependencies, peers: Peers, topics: Topics, producer_ids: ProducerIds) -> ClusterHistory:
    config = dependencies.config
    return ClusterHistory(
        broker_id=config.broker_id,
        is_enabled=config.cluster_history_enable,
        clock=dependencies.clock,
        metadata=dependencies.metadata,
        peers=peers,
        new_producer_id=producer_ids.next,
        create_topic=partial(
            create_internal, topics, config, HISTORY_TOPIC, 1, config.offsets_topic_replication_factor
        ),
    )


def _fetch_sessions(dependencies: Dependencies) -> FetchSessions:
    slots = dependencies.config.max_incremental_fetch_session_cache_slots
    return FetchSessions(slots, dependencies.new_session_id, MAX_PARTITIONS, tracks_changes=True)


def _follower_fetches(dependencies: Dependencies) -> FollowerFetches:
    dynamic, slots = dependencies.dynamic, dependencies.config.max_incremental_fetch_session_cache_slots
    changes = dependencies.logs.changes
    return FollowerFetches(
        slots,
        dependencies.new_session_id,
        rate=lambda: dynamic.current.leader_replication_throttled_rate,
        version=lambda: changes.number,
    )


def _replicas(
    dependencies: Dependencies,
    follower_fetches: FollowerFetches,
    history: ClusterHistory,
    partition_changed: Callable[[TopicPartition], None],
    leadership_changed: OnLeadership,
) -> ReplicaManager:
    config, metadata = dependencies.config, dependencies.metadata

    def epoch_of(broker_id: int) -> int | None:
        info = metadata.brokers.get(broker_id)
        return info.epoch if info else None

    return ReplicaManager(
        partition_changed,
        broker_id=config.broker_id,
        clock=dependencies.clock,
        max_lag_ms=config.replica_lag_time_max_ms,
        alter_isr=IsrWriter(dependencies.store, lambda: dependencies.store_guard.is_lost).write,
        broker_epoch_of=epoch_of,
        exists=metadata.has,
        on_log_end=follower_fetches.changed,
        on_replicas=follower_fetches.replicas_changed,
        on_isr_change=partial(_note_isr, history),
        on_leadership=leadership_changed,
    )


def _groups(
    dependencies: Dependencies, replicas: ReplicaManager, topics: Topics, history: ClusterHistory
) -> GroupCoordinator:
    config = dependencies.config
    partitions, factor = config.offsets_topic_num_partitions, config.offsets_topic_replication_factor
    return GroupCoordinator(
        config=config,
        clock=dependencies.clock,
        topics=dependencies.metadata,
        replicas=replicas,
        waiting=dependencies.waiting,
        create_offsets_topic=partial(create_internal, topics, config, OFFSETS_TOPIC, partitions, factor),
        new_id=dependencies.new_id,
        slices=dependencies.slices,
        on_generation=partial(_note_generation, history),
    )


def _transactions(
    dependencies: Dependencies, replicas: ReplicaManager, topics: Topics, producer_ids: ProducerIds, peers: Peers
) -> TransactionCoordinator:
    config = dependencies.config
    partitions = config.transaction_state_log_num_partitions
    factor = config.transaction_state_log_replication_factor
    return TransactionCoordinator(
        config=config,
        clock=dependencies.clock,
        topics=dependencies.metadata,
        replicas=replicas,
        waiting=dependencies.waiting,
        create_topic=partial(create_internal, topics, config, TRANSACTIONS_TOPIC, partitions, factor),
        new_producer_id=producer_ids.next,
        markers=MarkerSender(PartitionLeaders(dependencies.metadata, peers)),
        slices=dependencies.slices,
    )


def _registration(dependencies: Dependencies, replicas: ReplicaManager) -> Registration:
    config = dependencies.config
    return Registration(
        dependencies.store,
        dependencies.info,
        dependencies.logs.ownership.directory_id,
        dependencies.clock,
        timeout_ms=2 * session_timeout_ms(config),
        on_connected=replicas.resume_isr_changes,
        protocols={**protocols_of(config.listener_security_protocol_map), GRPC: config.grpc_security_protocol},
    )


def _fetchers(
    dependencies: Dependencies, peers: Peers, replicas: ReplicaManager, registration: Registration
) -> ReplicaFetchers:
    config, metadata = dependencies.config, dependencies.metadata
    return ReplicaFetchers(
        FetcherContext(
            replicas=replicas,
            config=config,
            ask=_ask_leader(config, metadata, peers),
            throttle=ReplicationThrottle(lambda: dependencies.dynamic.current.follower_replication_throttled_rate),
            broker_epoch=lambda: registration.epoch,
            log_changes=lambda: dependencies.logs.changes.number,
        )
    )


def _state_changes(
    dependencies: Dependencies, replicas: ReplicaManager, fetchers: ReplicaFetchers, registration: Registration
) -> StateChanges:
    def newest_change() -> int:
        with suppress(StoreError):
            return dependencies.store.newest_change()
        return 0

    def ask_again() -> None:
        registration.ask_again(lambda: bool(state_changes.pending))

    state_changes = StateChanges(
        dependencies.fs,
        dependencies.logs,
        replicas,
        fetchers,
        clock=dependencies.clock,
        topic_defaults=lambda: dependencies.dynamic.current.topic_defaults,
        newest_change=newest_change,
        broker_epoch=lambda: registration.epoch,
        on_pending=ask_again,
    )
    return state_changes


def _api_versions(config: BrokerConfig) -> tuple[ApiVersion, ...]:
    """Return the APIs that the broker announces; those of client metrics only if it keeps any."""
    telemetry_apis = (telemetry.GET_TELEMETRY_SUBSCRIPTIONS, telemetry.PUSH_TELEMETRY)
    hidden = () if config.telemetry_max_bytes else telemetry_apis
    return tuple(ApiVersion(api.key, *api.versions) for api in APIS if api.key is not None and api not in hidden)


def _controller(dependencies: Dependencies, peers: Peers, history: ClusterHistory) -> Controller:
    return Controller(
        store=dependencies.store,
        directory_id=dependencies.logs.ownership.directory_id,
        peers=peers,
        config=dependencies.config,
        clock=dependencies.clock,
        note=history.note,
        store_id=dependencies.store_guard.store_id,
        is_own_store=dependencies.store_guard.is_intact,
        on_lost_states=dependencies.store_guard.lose_states,
    )


def _replica_mover(dependencies: Dependencies, state_changes: StateChanges) -> ReplicaMover:
    dynamic = dependencies.dynamic
    return ReplicaMover(
        dependencies.logs.moves,
        lambda: dynamic.current.replica_alter_log_dirs_io_max_bytes_per_second,
        state_changes.write_high_watermark,
    )


def _consumer_lags(
    dependencies: Dependencies, replicas: ReplicaManager, groups: GroupCoordinator, peers: Peers
) -> ConsumerLags:
    return ConsumerLags(
        broker_id=dependencies.config.broker_id,
        clock=dependencies.clock,
        metadata=dependencies.metadata,
        replicas=replicas,
        groups=groups,
        peers=peers,
        slices=dependencies.slices,
    )


def _verifier(
    dependencies: Dependencies, replicas: ReplicaManager, transactions: TransactionCoordinator, peers: Peers
) -> TransactionVerifier:
    dynamic = dependencies.dynamic
    return TransactionVerifier(
        is_enabled=lambda: dynamic.current.transaction_partition_verification_enable,
        replicas=replicas,
        metadata=dependencies.metadata,
        peers=peers,
        coordinator_of=lambda name: TopicPartition(TRANSACTIONS_TOPIC, transactions.partition_for(name)),
    )


def _ask_leader(config: BrokerConfig, metadata: MetadataCache, peers: Peers) -> Ask:
    timeout_ms = config.replica_socket_timeout_ms + config.replica_fetch_wait_max_ms

    async def ask(leader: int, request: Any) -> Any:
        info = metadata.brokers.get(leader)
        if info is None:
            raise NetworkException(f"broker {leader} is not alive")
        return await peers.call(info, request, timeout_ms=timeout_ms)

    return ask


def _note_isr(history: ClusterHistory, partition: Partition, before: tuple[int, ...]) -> None:
    history.note(
        HistoryKind.ISR_CHANGED,
        partition.name,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.in_sync_replicas),
        partition_epoch=partition.partition_epoch,
        previous_isr=list(before),
    )


def _note_generation(history: ClusterHistory, begun: Generation) -> None:
    history.note(
        HistoryKind.GROUP_GENERATION,
        group=begun.group_id,
        protocol=begun.group_type,
        generation=begun.number,
        members=begun.members,
    )
