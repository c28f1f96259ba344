"""The controller's reads of the cluster store: each function reads the nodes for one event, and sets the watches.

All functions block; they are called in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from sparklog.base.acls import AclBinding
from sparklog.base.client_metrics import ClientMetricsConfigs
from sparklog.base.errors import LostStates, NoNode
from sparklog.base.ids import TopicPartition
from sparklog.base.quotas import ClientQuota
from sparklog.cluster.acls import ACL_CHANGES, ACL_PATHS, EXTENDED_ACL_CHANGES, AclStore
from sparklog.cluster.brokers import BROKER_IDS, DISK_EVENTS, load
from sparklog.cluster.client_metrics import ClientMetricsStore
from sparklog.cluster.config_nodes import CLIENT_METRICS, CLIENTS, CONFIG_CHANGES, IPS, USERS
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.partition_states import ISR_CHANGES, Leadership, read_states
from sparklog.cluster.quotas import QuotaStore
from sparklog.cluster.store import Store, ensure_paths
from sparklog.cluster.topics import (
    BROKER_CONFIGS,
    CONFIGS,
    DELETIONS,
    TOPICS,
    TopicAssignment,
    TopicStore,
    decode_assignment,
)
from sparklog.controller.store_watches import StoreEvent, StoreWatches

NAMED = 10
"""Maximum number of partitions that an error names."""
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
_PATHS = (
    BROKER_IDS, TOPICS, CONFIGS, BROKER_CONFIGS, USERS, CLIENTS, IPS, CLIENT_METRICS, CONFIG_CHANGES,
    DELETIONS, ISR_CHANGES, DISK_EVENTS, *ACL_PATHS,
)  # fmt: skip
ACL_NOTICES = (ACL_CHANGES, EXTENDED_ACL_CHANGES)


class TopicChanges(Struct, frozen=True, kw_only=True):
    """The names of all topics, and those that are new or have changed since they were last read."""

    names: frozenset[str]
    read: Mapping[str, TopicAssignment]
    overrides: Mapping[str, Mapping[str, str]]


class ChangeNotices(Struct, frozen=True, kw_only=True):
    """Nodes that name changes; they are deleted once the changes have been handled."""

    paths: tuple[str, ...]
    values: tuple[Mapping[str, Any], ...]


class ClusterState(Struct, frozen=True, kw_only=True):
    """The cluster's state at a controller's election, without the brokers."""

    topics: TopicChanges
    states: Mapping[TopicPartition, Leadership]
    deletions: tuple[str, ...]
    broker_overrides: Mapping[int, Mapping[str, str]]
    acls: frozenset[AclBinding]
    quotas: tuple[ClientQuota, ...]
    client_metrics: ClientMetricsConfigs
    notices: tuple[str, ...]
    """Paths of the notices of changes that this state includes."""


def read_cluster(store: Store, watches: StoreWatches, topic_store: TopicStore) -> ClusterState:
    """Return the cluster's state, with all watches set.

    Notices are read before the state: a later change has a notice of its own. Raises LostStates if partitions that are
    not deleted have lost their states: they would count as new, with all replicas in sync.
    """
    ensure_paths(store, _PATHS)
    notices = [
        f"{path}/{name}"
        for path, event in (
            (ISR_CHANGES, StoreEvent.ISR_CHANGES),
            (CONFIG_CHANGES, StoreEvent.CONFIGS),
            (DISK_EVENTS, StoreEvent.DISKS),
            *((path, StoreEvent.ACLS) for path in ACL_NOTICES),
        )
        for name in watches.children(store, path, event)
    ]
    watch_requests(store, watches)
    topics = read_topics(store, watches, topic_store)
    names = [
        TopicPartition(topic, number)
        for topic, assignment in topics.read.items()
        for number in range(len(assignment.partitions))
    ]
    states = read_states(store, names)
    deletions = tuple(watches.children(store, DELETIONS, StoreEvent.DELETIONS))
    _check_states(topics.read, states, deletions)
    return ClusterState(
        topics=topics,
        states=states,
        deletions=deletions,
        broker_overrides=topic_store.load_broker_overrides(),
        acls=AclStore(store).load(),
        quotas=read_quotas(store),
        client_metrics=read_client_metrics(store),
        notices=tuple(notices),
    )


def _check_states(
    topics: Mapping[str, TopicAssignment], states: Mapping[TopicPartition, Leadership], deletions: Collection[str]
) -> None:
    lost = [
        name
        for topic, assignment in topics.items()
        if topic not in deletions
        for name in assignment.lost_states(topic, states)
    ]
    if lost:
        more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
        raise LostStates(
            dict.fromkeys(name.topic for name in lost),
            f"the cluster store has lost the states of {', '.join(map(str, lost[:NAMED]))}{more}",
        )


def read_brokers(store: Store, watches: StoreWatches) -> dict[int, BrokerInfo]:
    """Return the live brokers by id."""
    return load(store, watches.watch(BROKER_IDS, StoreEvent.BROKERS))


def read_topics(store: Store, watches: StoreWatches, topic_store: TopicStore) -> TopicChanges:
    """Return the names of all topics, and the content of topics that have changed since they were last read."""
    names = watches.children(store, TOPICS, StoreEvent.TOPICS)
    read = {}
    for name in names:
        path = f"{TOPICS}/{name}"
        if not watches.is_set(path) and (node := watches.get(store, path, StoreEvent.TOPICS)):
            read[name] = decode_assignment(node.data, node.version)
    overrides = {name: topic_store.load_overrides(name) for name in read}
    return TopicChanges(names=frozenset(names), read=read, overrides=overrides)


def read_assignments(store: Store, topics: Iterable[str]) -> dict[str, TopicAssignment]:
    """Return the assignments of those `topics` that exist."""
    found = {}
    for name in topics:
        with suppress(NoNode):
            node = store.get(f"{TOPICS}/{name}")
            found[name] = decode_assignment(node.data, node.version)
    return found


def read_deletions(store: Store, watches: StoreWatches) -> list[str]:
    """Return the names of the topics with a deletion request, sorted."""
    return watches.children(store, DELETIONS, StoreEvent.DELETIONS)


def read_notices(store: Store, watches: StoreWatches, path: str, event: StoreEvent) -> ChangeNotices:
    """Return the notices under `path` with their contents, sorted. event: caused by later notices"""
    paths, values = [], []
    for name in watches.children(store, path, event):
        try:
            data = store.get(f"{path}/{name}").data
        except NoNode:
            continue
        paths.append(f"{path}/{name}")
        values.append(json.loads(data))
    return ChangeNotices(paths=tuple(paths), values=tuple(values))


def watch_requests(store: Store, watches: StoreWatches) -> None:
    """Watch the nodes in which older tools leave requests."""
    for path in (REASSIGN_PARTITIONS, PREFERRED_ELECTION):
        watches.exists(store, path, StoreEvent.REQUESTS)


def read_overrides(topic_store: TopicStore, topics: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the topics' own configurations, by name."""
    return {topic: topic_store.load_overrides(topic) for topic in topics}


def read_acls(store: Store, watches: StoreWatches) -> tuple[list[str], frozenset[AclBinding]]:
    """Return the paths of the notices, and the ACLs, which are read after them."""
    notices = [f"{path}/{name}" for path in ACL_NOTICES for name in watches.children(store, path, StoreEvent.ACLS)]
    return notices, AclStore(store).load()


def read_quotas(store: Store) -> tuple[ClientQuota, ...]:
    """Return all client quotas."""
    return tuple(QuotaStore(store).load())


def read_client_metrics(store: Store) -> ClientMetricsConfigs:
    """Return all subscriptions to metrics of clients, by name."""
    return ClientMetricsStore(store).load()


def configured(notices: ChangeNotices, kind: str) -> list[str]:
    """Return the names whose configuration has changed; kind: topics, brokers, users, clients, ips or client-metrics"""
    entities = [str(value.get("entity_path", "")).partition("/") for value in notices.values]
    return sorted({name for found, _, name in entities if found == kind})
