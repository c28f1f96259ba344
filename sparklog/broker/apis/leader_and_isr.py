"""LeaderAndIsr and StopReplica: the controller's requests on this broker's replicas.

LeaderAndIsr: receive this broker's partitions and their leaders.

- The whole request is refused with STALE_CONTROLLER_EPOCH if the controller has been deposed, with STALE_BROKER_EPOCH
  if it was meant for this broker before its restart or the broker has not registered yet, and with
  INCONSISTENT_CLUSTER_ID if the controller's cluster store is another one, which was lost.
- A partition gets FENCED_LEADER_EPOCH if a newer leader epoch is known, and KAFKA_STORAGE_ERROR if its log cannot be
  used: the controller then considers the replica offline.
- Requests are handled one at a time; logs are opened in a thread. Once the answer has come, the partitions are led, or
  their leaders followed.
- A repeated request changes nothing, so a controller that has received no answer repeats it.

StopReplica: stop following or leading partitions.

- The whole request is refused as in LeaderAndIsr. A partition gets FENCED_LEADER_EPOCH if a newer leader epoch is
  known, unless its topic is being deleted.
- With deletion, the log is gone once the answer has come; its files are deleted after file.delete.delay.ms. A partition
  that is not here is no error. Without deletion, the log stays and jobs can read it.
- Requests that wait for the partition are answered at once: NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from sparklog.base.acls import AclOperation
from sparklog.broker.api import Api
from sparklog.broker.rights import on_cluster
from sparklog.broker.store_guard import StoreGuard
from sparklog.replica.messages import LeaderAndIsr, LeaderAndIsrResponse, StopReplica, StopReplicaResponse
from sparklog.replica.state_changes import StateChanges


async def become(
    request: LeaderAndIsr, *, state_changes: StateChanges, store_guard: StoreGuard
) -> LeaderAndIsrResponse:
    """Return the errors of those partitions that have one.

    Raises StaleControllerEpoch, StaleBrokerEpoch or InconsistentClusterId.
    """
    store_guard.check_controller(request.store_id)
    return await state_changes.become(request)


async def stop(request: StopReplica, *, state_changes: StateChanges, store_guard: StoreGuard) -> StopReplicaResponse:
    """Return the errors of those partitions that have one. Raises as `become` does."""
    store_guard.check_controller(request.store_id)
    return await state_changes.stop(request)


LEADER_AND_ISR = Api(
    name="LeaderAndIsr",
    summary="receive this broker's partitions and their leaders (controller to broker)",
    handle=become,
    rights=(on_cluster(AclOperation.CLUSTER_ACTION),),
)
STOP_REPLICA = Api(
    name="StopReplica",
    summary="stop following or leading partitions (controller to broker)",
    handle=stop,
    rights=(on_cluster(AclOperation.CLUSTER_ACTION),),
)
