"""ListGroups: the groups that this broker coordinates.

Key 16, versions 0 to 5, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.requests import ListGroups, ListGroupsResponse

API: Api[ListGroups, ListGroupsResponse] = Api(
    name="ListGroups", handle=lambda services, request: services.groups.list(request), key=16, versions=(0, 5)
)
