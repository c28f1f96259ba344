"""What is decided in a cluster, as it is written to the topic `__cluster_history` for whoever asks later.

A record's key is the partition, or the kind; its value is JSON:

    {"version": 1, "time_ms": 1700000000000, "broker": 1, "kind": "leader elected", "topic": "t", "partition": 0,
     "leader": 2, "leader_epoch": 5, "isr": [2, 3], "reason": "offline", "controller_epoch": 3}
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Protocol

from sparklog.base.ids import TopicPartition

HISTORY_TOPIC = "__cluster_history"


class Kind(Enum):
    """What has happened; the value stands in the record."""

    CONTROLLER_ELECTED = "controller elected"
    BROKERS_CHANGED = "brokers changed"
    LEADER_ELECTED = "leader elected"
    REPLICAS_OFFLINE = "replicas offline"
    ISR_CHANGED = "ISR changed"
    REASSIGNMENT_BEGUN = "reassignment begun"
    REASSIGNMENT_COMPLETED = "reassignment completed"
    TOPIC_DELETED = "topic deleted"


class Note(Protocol):
    """Takes down what was decided. Returns at once, and raises nothing."""

    def __call__(self, kind: Kind, name: TopicPartition | str = "", /, **details: Any) -> None:
        """`name`: a partition, or a topic, or ''."""
        ...


def note_nothing(kind: Kind, name: TopicPartition | str = "", /, **details: Any) -> None:
    """Where nobody asks later."""


def encode_note(
    kind: Kind, name: TopicPartition | str, details: dict[str, Any], *, time_ms: int, broker_id: int
) -> tuple[bytes, bytes]:
    """A record's key and value."""
    where: dict[str, Any] = {}
    if isinstance(name, TopicPartition):
        where = {"topic": name.topic, "partition": name.partition}
    elif name:
        where = {"topic": name}
    value = {"version": 1, "time_ms": time_ms, "broker": broker_id, "kind": kind.value, **where, **details}
    return str(name or kind.value).encode(), json.dumps(value, separators=(",", ":")).encode()
