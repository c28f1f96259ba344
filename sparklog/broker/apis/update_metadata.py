"""UpdateMetadata: the controller tells what has changed in the cluster (controller to every broker).

- STALE_CONTROLLER_EPOCH: it has been deposed. STALE_BROKER_EPOCH: it was meant for this broker before its restart.
- Logs of partitions that have moved to other brokers while this one was down, or while a controller that was to tell it
  failed, are deleted once the controller tells everything (as Apache Kafka does with strays since 3.6): only of a topic
  that is known by its id, of a partition that is known, and where this broker knows of no later leader epoch.
- Topics that are gone take along what groups have committed for them; topics with another configuration give it to
  their logs.
"""

from __future__ import annotations

import logging

from sparklog.base.errors import StaleBrokerEpoch
from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.cluster.messages import UpdateMetadata, UpdateMetadataResponse
from sparklog.replica.messages import StopPartition, StopReplica

logger = logging.getLogger(__name__)


async def handle(services: Services, request: UpdateMetadata) -> UpdateMetadataResponse:
    """Raises StaleControllerEpoch or StaleBrokerEpoch."""
    epoch = services.registration.epoch
    if request.broker_epoch < epoch:
        raise StaleBrokerEpoch(f"broker epoch {request.broker_epoch} is over: it is {epoch}")
    change = services.metadata.update(request)
    for topic in change.reconfigured:
        services.state_changes.update_config(topic.name, topic.config)
    if change.reconfigured:
        await services.state_changes.keep_configs({topic.name: topic.overrides for topic in change.reconfigured})
    if change.removed:
        services.groups.forget_topics({topic.name: topic.topic_id for topic in change.removed})
    if request.is_full and (strays := _strays(services)):
        logger.warning("deleting replicas that have moved to other brokers: %s", [str(stop.name) for stop in strays])
        await services.state_changes.stop(
            StopReplica(
                controller_id=request.controller_id,
                controller_epoch=request.controller_epoch,
                broker_epoch=request.broker_epoch,
                partitions=strays,
                number=request.number,
            )
        )
    return UpdateMetadataResponse()


def _strays(services: Services) -> tuple[StopPartition, ...]:
    """Who alone is in sync keeps its log, whoever the replicas are: nobody else has all that was acknowledged."""
    found = []
    for log in sorted(services.logs, key=lambda log: log.partition):
        topic = services.metadata.find_by_id(log.topic_id)
        info = services.metadata.find_partition(log.partition)
        if not (topic and topic.name == log.partition.topic and info):
            continue
        if services.info.broker_id not in (*info.replicas, *info.in_sync_replicas):
            found.append(StopPartition(name=log.partition, leader_epoch=info.leader_epoch, delete=True))
    return tuple(found)


API = Api(name="UpdateMetadata", handle=handle)
