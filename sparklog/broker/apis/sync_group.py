"""SyncGroup: distribute the assignments of a group's leader, each member's to that member.

A member waits for the leader. Key 14, versions 0 to 5, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import SyncGroup, SyncGroupResponse


async def handle(request: SyncGroup, *, groups: GroupCoordinator) -> SyncGroupResponse:
    return await groups.sync(request)


API = Api(name="SyncGroup", handle=handle, key=14, versions=(0, 5))
