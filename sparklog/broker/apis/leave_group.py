"""LeaveGroup: remove members at once, instead of when their sessions expire.

Key 13, versions 0 to 5, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import LeaveGroup, LeaveGroupResponse


async def handle(request: LeaveGroup, *, groups: GroupCoordinator) -> LeaveGroupResponse:
    return await groups.leave(request)


API = Api(name="LeaveGroup", handle=handle, key=13, versions=(0, 5))
