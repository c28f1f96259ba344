"""Parts of responses that several APIs share.

- Error messages, partitions grouped by topic, and addresses of brokers for clients of a listener.
- Current leaders, for requests that went to the wrong broker or used another leader epoch (KIP-951). They are tagged
  fields: the leader's id and epoch in the partition, and the addresses of these leaders at the end of the response. The
  handlers look them up. The fields are absent without a leader, and if the leader does not have the listener that
  received the request.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, TypeVar

from sparklog.base.errors import KafkaError
from sparklog.cluster.model import BrokerInfo, CurrentLeader
from sparklog.server.kafka import packing
from sparklog.server.kafka.translation import KafkaCall

Key = TypeVar("Key")
Part = TypeVar("Part")


def message_of(error: KafkaError | None) -> str | None:
    """Return the text for a response's field `error_message`; None without an error."""
    return None if error is None else str(error)


def by_topic(parts: Iterable[tuple[Key, Part]]) -> dict[Key, list[Part]]:
    """Return the parts of each topic. Topics and parts keep their order."""
    found: dict[Key, list[Part]] = {}
    for topic, part in parts:
        found.setdefault(topic, []).append(part)
    return found


def with_listener(brokers: Iterable[BrokerInfo], listener: str) -> list[BrokerInfo]:
    """Return the brokers with this listener: its clients can reach only these."""
    return [broker for broker in brokers if listener in broker.listeners]


def broker_address(broker: BrokerInfo, listener: str) -> dict[str, Any]:
    """Return `host` and `port` of a broker for clients of the listener. The broker must have it."""
    host, port = broker.listeners[listener]
    return {"host": host, "port": port}


NODE_ENDPOINTS_TAG = 0
_LEADER = struct.Struct(">ii")
_NO_LEADER = _LEADER.pack(-1, -1)
_INT32 = struct.Struct(">i")


def current_leader(call: KafkaCall, leader: CurrentLeader | None) -> bytes:
    """Return a partition's LeaderIdAndEpoch; -1 and -1 without a leader."""
    if leader is None or call.session.listener not in leader.broker.listeners:
        return _NO_LEADER + packing.NO_TAGS
    return _LEADER.pack(leader.broker.broker_id, leader.leader_epoch) + packing.NO_TAGS


def node_endpoints(call: KafkaCall, leaders: Iterable[CurrentLeader | None]) -> bytes:
    """Return the tagged fields with NodeEndpoints of a response, one for each leader."""
    named = {
        leader.broker.broker_id: leader.broker
        for leader in leaders
        if leader and call.session.listener in leader.broker.listeners
    }
    endpoints = b"".join(_endpoint(call, named[broker_id]) for broker_id in sorted(named))
    return packing.tags({NODE_ENDPOINTS_TAG: packing.array(len(named), flexible=True) + endpoints})


def _endpoint(call: KafkaCall, broker: BrokerInfo) -> bytes:
    address = broker_address(broker, call.session.listener)
    return (
        _INT32.pack(broker.broker_id)
        + packing.string(address["host"], flexible=True)
        + _INT32.pack(address["port"])
        + packing.string(broker.rack or None, flexible=True)
        + packing.NO_TAGS
    )
