"""StopReplica: the controller says what this broker is to follow or lead no more. From broker to broker only.

- Refused as a whole as LeaderAndIsr is; FENCED_LEADER_EPOCH for a partition of which a newer leader epoch is known,
  unless its topic is being deleted.
- With deletion the log is gone when it is answered, but for its files, which go after file.delete.delay.ms; a partition
  that is not here is no error. Without, the log stays, and can be read by jobs.
- Who waits at the partition is told at once: NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.replica.messages import StopReplica, StopReplicaResponse
from sparklog.replica.state_changes import StateChanges


async def handle(request: StopReplica, *, state_changes: StateChanges) -> StopReplicaResponse:
    return await state_changes.stop(request)


API = Api(name="StopReplica", handle=handle)
