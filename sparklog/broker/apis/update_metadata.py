"""UpdateMetadata: the controller tells what has changed in the cluster (controller to every broker).

- STALE_CONTROLLER_EPOCH: it has been deposed. STALE_BROKER_EPOCH: it was meant for this broker before its restart.
- Topics that are gone take along what groups have committed for them; topics with another configuration give it to
  their logs.
"""

from __future__ import annotations

from sparklog.base.errors import StaleBrokerEpoch
from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.cluster.messages import UpdateMetadata, UpdateMetadataResponse


async def handle(services: Services, request: UpdateMetadata) -> UpdateMetadataResponse:
    """Raises StaleControllerEpoch or StaleBrokerEpoch."""
    epoch = services.registration.epoch
    if request.broker_epoch < epoch:
        raise StaleBrokerEpoch(f"broker epoch {request.broker_epoch} is over: it is {epoch}")
    change = services.metadata.update(request)
    for topic in change.reconfigured:
        services.replicas.update_config(topic.name, topic.config)
    if change.removed:
        services.groups.forget_topics([topic.name for topic in change.removed])
    return UpdateMetadataResponse()


API = Api(name="UpdateMetadata", handle=handle)
