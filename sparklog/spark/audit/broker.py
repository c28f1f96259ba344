"""The state of a running cluster: the store, read through any broker, and each broker's own logs and directories.

The order is such that changes meanwhile cause no false problems: first the store, then the brokers' logs, then their
folders. A log's high watermark is read before its segments. This module loads the gRPC client.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Maintenance
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.spark.audit.tables import AuditedReplica, AuditedSegment, ClusterView
from sparklog.spark.folders import belongs_to


class BrokerSource:
    """The replicas of a cluster, of the topics that `is_wanted` selects. `client`: options of clients."""

    def __init__(self, client: Mapping[str, Any], is_wanted: Callable[[str], bool] = lambda _: True) -> None:
        self._client = client
        self._is_wanted = is_wanted

    def view(self) -> ClusterView:
        """Return the current state. Raises SparklogError if a registered broker does not answer."""
        with Admin(**self._client) as admin, Maintenance(**self._client) as maintenance:
            cluster = admin.describe_cluster()
            names = [topic.name for topic in admin.list_topics(include_internal=True) if self._is_wanted(topic.name)]
            store = [
                (topic.name, part.partition, part.leader, part.leader_epoch, list(part.replicas),
                 list(part.in_sync_replicas))
                for topic in (admin.describe_topics(names) if names else ())
                for part in topic.partitions
            ]  # fmt: skip
            logs = [log for log in maintenance.describe_replicas() if self._is_wanted(log.partition.topic)]
            folders = self._folders(admin, cluster.cluster_id)
        return ClusterView(
            store=store,
            brokers=[broker.id for broker in cluster.brokers],
            replicas=[_replica(log, cluster.cluster_id) for log in logs],
            folders=folders,
        )

    def _folders(self, admin: Admin, cluster_id: str) -> list[tuple[Any, ...]]:
        """Return the folders that brokers report, and all others in log directories that this machine sees."""
        found = {}
        for broker, log_dirs in admin.describe_log_dirs().items():
            for log_dir in log_dirs:
                for part in log_dir.partitions:
                    name = TopicPartition(part.topic, part.partition)
                    found[broker, name] = f"{log_dir.path}/{name}"
                if log_dir.error is None and belongs_to(log_dir.path, cluster_id, broker):
                    found |= {(broker, name): f"{log_dir.path}/{name}" for name in _partitions_in(log_dir.path)}
        return [(broker, *name, folder) for (broker, name), folder in found.items() if self._is_wanted(name.topic)]


def _partitions_in(path: str) -> list[TopicPartition]:
    found = []
    for name in os.listdir(path):
        try:
            found.append(TopicPartition.parse(name))
        except ValueError:
            continue  # a checkpoint, or a folder that is being deleted
    return found


def _replica(log: LogDescription, cluster_id: str) -> AuditedReplica:
    *closed, last = log.segments
    is_compacted = "compact" in log.config.cleanup_policy
    return AuditedReplica(
        broker=log.broker_id,
        partition=log.partition,
        is_leader=log.is_leader,
        leader_epoch=log.leader_epoch,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
        gaps_to=max(log.cleaned_offset, last.base_offset if is_compacted else 0),
        compared_from=log.cleaned_offset,
        topic_id=log.topic_id,
        epochs=tuple((epoch, start) for epoch, start in log.epochs),
        known_to=log.log_end_offset,
        folder=log.folder if belongs_to(os.path.dirname(log.folder), cluster_id, log.broker_id) else "",
        segments=(*(_segment(each, each.next_offset) for each in closed), _segment(last, -1)),
    )


def _segment(segment: SegmentDescription, next_offset: int) -> AuditedSegment:
    return AuditedSegment(
        base_offset=segment.base_offset,
        next_offset=next_offset,
        size_bytes=segment.size_bytes,
        identity=segment.identity,
    )
