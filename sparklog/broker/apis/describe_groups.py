"""DescribeGroups: groups of the classic protocol, with their members.

Key 15, versions 0 to 6, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.requests import DescribeGroups, DescribeGroupsResponse

API: Api[DescribeGroups, DescribeGroupsResponse] = Api(
    name="DescribeGroups", handle=lambda services, request: services.groups.describe(request), key=15, versions=(0, 6)
)
