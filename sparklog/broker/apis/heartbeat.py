"""Heartbeat: keep a member of a group alive, and tell it whether it must rejoin.

Key 12, versions 0 to 4, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import Heartbeat, HeartbeatResponse


async def handle(request: Heartbeat, *, groups: GroupCoordinator) -> HeartbeatResponse:
    return await groups.heartbeat(request)


API = Api(name="Heartbeat", handle=handle, key=12, versions=(0, 4))
