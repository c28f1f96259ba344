"""ControlledShutdown: move the leaderships of a stopping broker to other brokers (broker to controller).

- The answer names the partitions that the broker still leads, as no other replica is in sync, and those whose ISR it
  cannot leave, as no other member has shown yet that it is alive. The broker retries a few times and then stops in any
  case (broker/controlled_shutdown.py).
- From the first request on the broker is elected for nothing, and leaves the ISR of the partitions it follows, so that
  no leader waits for it.
- STALE_BROKER_EPOCH: the broker has registered again meanwhile. BROKER_NOT_AVAILABLE: it is not registered.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import on_cluster
from sparklog.controller.controller import Controller


class ControlledShutdownRequest(Struct, frozen=True, kw_only=True):
    broker_id: int
    broker_epoch: int


class ControlledShutdownResponse(Struct, frozen=True, kw_only=True):
    remaining: Sequence[TopicPartition]


async def handle(request: ControlledShutdownRequest, *, controller: Controller) -> ControlledShutdownResponse:
    """Return the partitions that the broker still leads. Raises NotController and the errors above."""
    remaining = await controller.ask(
        lambda active: active.operations.shut_down(request.broker_id, request.broker_epoch)
    )
    return ControlledShutdownResponse(remaining=remaining)


API = Api(name="ControlledShutdown", handle=handle, rights=(on_cluster(AclOperation.CLUSTER_ACTION),))
