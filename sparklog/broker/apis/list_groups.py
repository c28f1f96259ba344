"""ListGroups: list the groups that this broker coordinates.

Key 16, versions 0 to 5, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import ListGroups, ListGroupsResponse


async def handle(request: ListGroups, *, groups: GroupCoordinator) -> ListGroupsResponse:
    return await groups.list(request)


API = Api(name="ListGroups", handle=handle, key=16, versions=(0, 5))
