"""The history of a cluster: a record for each decision, in the topic `__cluster_history`.

The topic has one partition, so that the records have one order. A record's key is its subject: `orders-0`, `orders`,
`broker 2`, `group billing`, `job compaction`. Its value is JSON, with these fields for its kind:

    all of them              version (1), time_ms, by (the broker that recorded it), kind
    controller elected       controller_epoch
    broker up                broker, broker_epoch, restarted (its end had not been seen)
    broker down              broker
    leader elected           topic, partition, leader, leader_epoch, isr, partition_epoch, controller_epoch, reason
                             (new, offline, preferred, reassignment, controlled shutdown, unclean), previous_leader,
                             unclean (the leader was not in sync: records may be lost)
    replicas offline         as leader elected, up to controller_epoch; offline. A leader of -1: none
    ISR changed              topic, partition, leader, leader_epoch, isr, partition_epoch, previous_isr; by the leader
    reassignment begun       topic, partition, origin, target
    reassignment cancelled   topic, partition, origin, target (what it was)
    reassignment completed   topic, partition, replicas
    topic created            topic, partitions, replicas (of partition 0), configs (its own)
    partitions added         topic, partitions (how many there are now)
    topic deleted            topic
    config changed           topic, configs (all of its own); or broker (-1: all), keys
    acls changed             created, deleted (ACLs as text)
    quotas changed           quotas (by entity as text: all of its own)
    client metrics changed   subscriptions (keys of those that have changed, by name; none: it is gone)
    group generation         group, protocol (classic, consumer), generation (the group epoch where it is consumer),
                             members; by the coordinator
    job run                  job, run_id, started_ms, status (0 done, 1 findings, 2 could not run), rows, findings,
                             error, schedule; time_ms is its end
    history dropped          dropped (number of this broker's records that could not be kept)

Fields may be added; none changes its meaning.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Protocol

from msgspec import Struct

from sparklog.base.ids import TopicPartition

HISTORY_TOPIC = "__cluster_history"
HISTORY = TopicPartition(HISTORY_TOPIC, 0)


class HistoryKind(Enum):
    """The kind of a decision, as in the field `kind`."""

    CONTROLLER_ELECTED = "controller elected"
    BROKER_UP = "broker up"
    BROKER_DOWN = "broker down"
    LEADER_ELECTED = "leader elected"
    REPLICAS_OFFLINE = "replicas offline"
    ISR_CHANGED = "ISR changed"
    REASSIGNMENT_BEGUN = "reassignment begun"
    REASSIGNMENT_CANCELLED = "reassignment cancelled"
    REASSIGNMENT_COMPLETED = "reassignment completed"
    TOPIC_CREATED = "topic created"
    PARTITIONS_ADDED = "partitions added"
    TOPIC_DELETED = "topic deleted"
    CONFIG_CHANGED = "config changed"
    ACLS_CHANGED = "acls changed"
    QUOTAS_CHANGED = "quotas changed"
    CLIENT_METRICS_CHANGED = "client metrics changed"
    GROUP_GENERATION = "group generation"
    JOB_RUN = "job run"
    HISTORY_DROPPED = "history dropped"


class HistoryRecorder(Protocol):
    """Records a decision. Returns at once, and raises nothing."""

    def __call__(self, kind: HistoryKind, name: TopicPartition | str = "", /, **details: Any) -> None:
        """Record a decision. name: a partition, a topic, or empty"""
        ...


class AppendHistory(Struct, frozen=True, kw_only=True):
    """A broker's records for the leader of the topic's partition: one batch with sequence numbers."""

    records: bytes
    timeout_ms: int


class AppendHistoryResponse(Struct, frozen=True, kw_only=True):
    """All in-sync replicas have the batch."""

    base_offset: int


def note_nothing(kind: HistoryKind, name: TopicPartition | str = "", /, **details: Any) -> None:
    """Discard a decision: no history is kept."""


def encode_note(
    kind: HistoryKind, name: TopicPartition | str, details: dict[str, Any], *, time_ms: int, by: int
) -> tuple[bytes, bytes]:
    """Return a record's key and value."""
    where: dict[str, Any] = {}
    if isinstance(name, TopicPartition):
        where = {"topic": name.topic, "partition": name.partition}
    elif name:
        where = {"topic": name}
    value = {"version": 1, "time_ms": time_ms, "by": by, "kind": kind.value, **where, **details}
    about = str(name) or next((f"{each} {details[each]}" for each in ("broker", "group", "job") if each in details), "")
    return (about or kind.value).encode(), json.dumps(value, separators=(",", ":")).encode()
