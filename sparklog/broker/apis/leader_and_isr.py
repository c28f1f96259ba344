"""LeaderAndIsr: the controller says which partitions this broker has, and who leads them. From broker to broker only.

- STALE_CONTROLLER_EPOCH from a controller that has been deposed; STALE_BROKER_EPOCH where it was meant for this broker
  before its restart; the request as a whole is refused.
- FENCED_LEADER_EPOCH for a partition of which a newer leader epoch is known, KAFKA_STORAGE_ERROR for one whose log
  cannot be used: the controller takes the replica for offline.
- One at a time; logs are opened in a thread. When it is answered the partitions are led, or their leaders followed.
- The same again changes nothing, so a controller that has had no answer repeats it.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.replica.messages import LeaderAndIsr, LeaderAndIsrResponse
from sparklog.replica.state_changes import StateChanges


async def handle(request: LeaderAndIsr, *, state_changes: StateChanges) -> LeaderAndIsrResponse:
    return await state_changes.become(request)


API = Api(name="LeaderAndIsr", handle=handle)
