"""LeaveGroup: members leave at once, instead of when their sessions end.

Key 13, versions 0 to 5, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.requests import LeaveGroup, LeaveGroupResponse

API: Api[LeaveGroup, LeaveGroupResponse] = Api(
    name="LeaveGroup", handle=lambda services, request: services.groups.leave(request), key=13, versions=(0, 5)
)
