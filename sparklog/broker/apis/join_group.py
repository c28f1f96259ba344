"""JoinGroup: join a group, or its next generation.

The answer waits until all members have joined or the rebalance timeout has passed. Key 11, versions 0 to 9, as in
Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import JoinGroup, JoinGroupResponse


async def handle(request: JoinGroup, *, groups: GroupCoordinator) -> JoinGroupResponse:
    return await groups.join(request)


API = Api(name="JoinGroup", handle=handle, key=11, versions=(0, 9))
