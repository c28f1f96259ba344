"""StopReplica: stop following or leading partitions (controller to broker).

- The whole request is refused as in LeaderAndIsr. A partition gets FENCED_LEADER_EPOCH if a newer leader epoch is
  known, unless its topic is being deleted.
- With deletion, the log is gone once the answer has come; its files are deleted after file.delete.delay.ms. A partition
  that is not here is no error. Without deletion, the log stays and jobs can read it.
- Requests that wait for the partition are answered at once: NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.replica.messages import StopReplica, StopReplicaResponse
from sparklog.replica.state_changes import StateChanges


async def handle(request: StopReplica, *, state_changes: StateChanges) -> StopReplicaResponse:
    return await state_changes.stop(request)


API = Api(name="StopReplica", handle=handle)
