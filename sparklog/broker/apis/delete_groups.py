"""DeleteGroups: delete groups without members, with all that they have committed.

Key 42, versions 0 to 2, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.requests import DeleteGroups, DeleteGroupsResponse

API: Api[DeleteGroups, DeleteGroupsResponse] = Api(
    name="DeleteGroups", handle=lambda services, request: services.groups.delete(request), key=42, versions=(0, 2)
)
