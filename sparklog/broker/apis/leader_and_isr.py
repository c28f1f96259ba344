"""LeaderAndIsr: receive this broker's partitions and their leaders (controller to broker).

- The whole request is refused with STALE_CONTROLLER_EPOCH if the controller has been deposed, and with
  STALE_BROKER_EPOCH if it was meant for this broker before its restart.
- A partition gets FENCED_LEADER_EPOCH if a newer leader epoch is known, and KAFKA_STORAGE_ERROR if its log cannot be
  used: the controller then considers the replica offline.
- Requests are handled one at a time; logs are opened in a thread. Once the answer has come, the partitions are led, or
  their leaders followed.
- A repeated request changes nothing, so a controller that has received no answer repeats it.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.replica.messages import LeaderAndIsr, LeaderAndIsrResponse
from sparklog.replica.state_changes import StateChanges


async def handle(request: LeaderAndIsr, *, state_changes: StateChanges) -> LeaderAndIsrResponse:
    return await state_changes.become(request)


API = Api(name="LeaderAndIsr", handle=handle)
