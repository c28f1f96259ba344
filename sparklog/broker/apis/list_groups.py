"""ListGroups: the groups that this broker coordinates.

Key 16, versions 0 to 5, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.group.requests import ListGroups, ListGroupsResponse


async def handle(services: Services, request: ListGroups) -> ListGroupsResponse:
    return await services.groups.list(request)


API = Api(name="ListGroups", handle=handle, key=16, versions=(0, 5))
