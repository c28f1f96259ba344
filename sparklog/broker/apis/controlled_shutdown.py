"""ControlledShutdown: a broker that is about to stop has others take over what it leads (broker to controller).

- The answer names the partitions that it leads still, as nobody else is in sync: the broker tries again some times,
  and stops in the end all the same (broker/handing_over.py).
- From the first request on the broker is elected for nothing, and its replicas leave the in-sync replicas of what it
  follows, so that no leader waits for it.
- STALE_BROKER_EPOCH: the broker has registered again meanwhile. BROKER_NOT_AVAILABLE: it is not registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.controller.controller import Controller


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest:
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse:
    remaining: Sequence[TopicPartition]


async def handle(request: ControlledShutdownRequest, *, controller: Controller) -> ControlledShutdownResponse:
    remaining = await controller.ask(
        lambda active: active.operations.shut_down(request.broker_id, request.broker_epoch)
    )
    return ControlledShutdownResponse(remaining=remaining)


API = Api(name="ControlledShutdown", handle=handle)
