"""Current leaders in answers to requests that went to the wrong broker or used another leader epoch (KIP-951).

They are tagged fields: the leader's id and epoch in the partition, and the addresses of these leaders at the end of the
response. They reflect this broker's metadata. No leader is named if there is none, or if the leader does not have the
listener that received the request.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from sparklog.base.ids import TopicPartition
from sparklog.cluster.model import BrokerInfo
from sparklog.server.kafka import packing
from sparklog.server.kafka.responses import broker_address
from sparklog.server.kafka.translation import KafkaCall

NODE_ENDPOINTS_TAG = 0
_LEADER = struct.Struct(">ii")
_NOBODY = _LEADER.pack(-1, -1)
_INT32 = struct.Struct(">i")


def current_leader(call: KafkaCall, topic: str | None, partition: int) -> bytes:
    """Return the partition's LeaderIdAndEpoch; -1 and -1 if no leader is named."""
    name = TopicPartition(topic or "", partition)
    info = call.broker.metadata.find_partition(name)
    if info is None or _reachable_leader(call, name) is None:
        return _NOBODY + packing.NO_TAGS
    return _LEADER.pack(info.leader, info.leader_epoch) + packing.NO_TAGS


def node_endpoints(call: KafkaCall, names: Iterable[tuple[str | None, int]]) -> bytes:
    """Return the tagged fields with NodeEndpoints of a response: each leader of these partitions once."""
    leaders = {}
    for topic, partition in names:
        if leader := _reachable_leader(call, TopicPartition(topic or "", partition)):
            leaders[leader.broker_id] = leader
    endpoints = b"".join(_endpoint(call, leaders[broker_id]) for broker_id in sorted(leaders))
    return packing.tags({NODE_ENDPOINTS_TAG: packing.array(len(leaders), flexible=True) + endpoints})


def _reachable_leader(call: KafkaCall, name: TopicPartition) -> BrokerInfo | None:
    leader = call.broker.metadata.leader_of(name)
    return leader if leader and call.session.listener in leader.listeners else None


def _endpoint(call: KafkaCall, broker: BrokerInfo) -> bytes:
    address = broker_address(broker, call.session.listener)
    return (
        _INT32.pack(broker.broker_id)
        + packing.string(address["host"], flexible=True)
        + _INT32.pack(address["port"])
        + packing.string(broker.rack or None, flexible=True)
        + packing.NO_TAGS
    )
