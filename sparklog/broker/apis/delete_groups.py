"""DeleteGroups: delete groups without members, with their committed offsets.

Key 42, versions 0 to 2, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import DeleteGroups, DeleteGroupsResponse


async def handle(request: DeleteGroups, *, groups: GroupCoordinator) -> DeleteGroupsResponse:
    return await groups.delete(request)


API = Api(name="DeleteGroups", handle=handle, key=42, versions=(0, 2))
