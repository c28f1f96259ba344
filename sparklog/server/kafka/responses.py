"""Pieces of responses that several APIs share.

- Error messages, partitions grouped by topic, and addresses of brokers for clients of a listener.
- Bit sets for `*_authorized_operations` fields (KIP-430). There is no authorizer, so every client may do everything. If
  the request includes authorized operations, the response has all operations of the resource type, as in Apache Kafka
  without an authorizer; otherwise it has OPERATIONS_NOT_ASKED.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from sparklog.base.errors import KafkaError
from sparklog.cluster.model import BrokerInfo

Key = TypeVar("Key")
Part = TypeVar("Part")

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8  # org.apache.kafka.common.acl.AclOperation
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


OPERATIONS_NOT_ASKED = -(2**31)
TOPIC_OPERATIONS = _bits(_READ, _WRITE, _CREATE, _DESCRIBE, _DELETE, _ALTER, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
GROUP_OPERATIONS = _bits(_READ, _DESCRIBE, _DELETE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
CLUSTER_OPERATIONS = _bits(
    _CREATE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE, _ALTER, _DESCRIBE
)


def message_of(error: KafkaError | None) -> str | None:
    return None if error is None else str(error)


def by_topic(parts: Iterable[tuple[Key, Part]]) -> dict[Key, list[Part]]:
    """Return the parts of each topic. Topics and parts keep their order."""
    found: dict[Key, list[Part]] = {}
    for topic, part in parts:
        found.setdefault(topic, []).append(part)
    return found


def with_listener(brokers: Iterable[BrokerInfo], listener: str) -> list[BrokerInfo]:
    """Return the brokers that have the listener, whose clients can reach only these."""
    return [broker for broker in brokers if listener in broker.listeners]


def broker_address(broker: BrokerInfo, listener: str) -> dict[str, Any]:
    """Return `host` and `port` of a broker for clients of the listener. The broker must have it."""
    host, port = broker.listeners[listener]
    return {"host": host, "port": port}
