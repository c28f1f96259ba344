"""ConsumerGroupHeartbeat: keep a member of a consumer group alive, and assign it partitions (key 68, KIP-848).

Versions 0 and 1, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse


async def handle(request: ConsumerGroupHeartbeat, *, groups: GroupCoordinator) -> ConsumerGroupHeartbeatResponse:
    return await groups.consumer_heartbeat(request)


API = Api(name="ConsumerGroupHeartbeat", handle=handle, key=68, versions=(0, 1))
