"""Heartbeat: a member of a group is alive, and learns whether it has to join again.

Key 12, versions 0 to 4, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.requests import Heartbeat, HeartbeatResponse

API: Api[Heartbeat, HeartbeatResponse] = Api(
    name="Heartbeat", handle=lambda services, request: services.groups.heartbeat(request), key=12, versions=(0, 4)
)
