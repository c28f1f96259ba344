"""DescribeGroups: describe groups of the classic protocol, with their members.

Key 15, versions 0 to 6, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import DescribeGroups, DescribeGroupsResponse


async def handle(request: DescribeGroups, *, groups: GroupCoordinator) -> DescribeGroupsResponse:
    return await groups.describe(request)


API = Api(name="DescribeGroups", handle=handle, key=15, versions=(0, 6))
