"""Who leads a partition, in answers to requests that went to another broker or by another epoch (KIP-951).

Both are tagged fields: the leader's id and epoch in the partition, the addresses of the leaders that were named at the
end of the response. There is one broker, so it is always the leader.
"""

from __future__ import annotations

import struct

from sparklog.server.kafka import packing
from sparklog.server.kafka.addresses import broker_address
from sparklog.server.kafka.translation import Call

NODE_ENDPOINTS_TAG = 0
_LEADER = struct.Struct(">ii")
_INT32 = struct.Struct(">i")


def current_leader(call: Call, leader_epoch: int) -> bytes:
    """LeaderIdAndEpoch."""
    return _LEADER.pack(call.broker.services.info.broker_id, leader_epoch) + packing.NO_TAGS


def node_endpoints(call: Call) -> bytes:
    """The tagged fields of a response that has NodeEndpoints: this broker, as the request's listener has it."""
    info = call.broker.services.info
    address = broker_address(info, call.session.listener)
    endpoint = (
        _INT32.pack(info.broker_id)
        + packing.string(address["host"], flexible=True)
        + _INT32.pack(address["port"])
        + packing.string(info.rack or None, flexible=True)
        + packing.NO_TAGS
    )
    return packing.tags({NODE_ENDPOINTS_TAG: packing.array(1, flexible=True) + endpoint})
