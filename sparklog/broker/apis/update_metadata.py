"""UpdateMetadata: receive changes of the cluster from the controller (controller to every broker).

- STALE_CONTROLLER_EPOCH: the controller has been deposed. STALE_BROKER_EPOCH: the request was meant for this broker
  before its restart.
- Stray logs are those of partitions that moved to other brokers while this broker was down, or while the controller
  that was to inform it failed. A full update deletes them, as in Apache Kafka since 3.6. A stray must be of a known
  partition and of a topic that is known by its id, and this broker must know of no later leader epoch. The topic's
  assignment must be sure: a store that had lost it, or changes of it, does not tell whether a replica was moved.
- For deleted topics, the groups' committed offsets are deleted too. A topic's new configuration is applied to its logs.
- A copy of each topic's configuration and replicas is kept, in case the cluster store is lost (broker/restoration.py).
"""

from __future__ import annotations

import logging

from sparklog.base.errors import StaleBrokerEpoch, StoreError
from sparklog.broker.api import Api
from sparklog.broker.registration import Registration
from sparklog.broker.topics import Topics
from sparklog.cluster.messages import UpdateMetadata, UpdateMetadataResponse
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo
from sparklog.group.coordinator import GroupCoordinator
from sparklog.log.directory.manager import LogManager
from sparklog.log.directory.topic_configs import KeptConfig
from sparklog.replica.messages import StopPartition, StopReplica
from sparklog.replica.state_changes import StateChanges

logger = logging.getLogger(__name__)


async def handle(
    request: UpdateMetadata,
    *,
    groups: GroupCoordinator,
    info: BrokerInfo,
    logs: LogManager,
    metadata: MetadataCache,
    registration: Registration,
    state_changes: StateChanges,
    topics: Topics,
) -> UpdateMetadataResponse:
    """Apply the update. Raises StaleControllerEpoch or StaleBrokerEpoch."""
    epoch = registration.epoch
    if request.broker_epoch < epoch:
        raise StaleBrokerEpoch(f"broker epoch {request.broker_epoch} is over: it is {epoch}")
    change = metadata.update(request)
    for topic in change.reconfigured:
        state_changes.update_config(topic.name, topic.config)
    if change.removed:
        groups.forget_topics({topic.name: topic.topic_id for topic in change.removed})
    if change.rearranged or change.removed or request.is_full:
        known = {topic.name: topic.topic_id for topic in metadata} if change.removed or request.is_full else None
        kept = {
            topic.name: KeptConfig.of(topic.topic_id, topic.overrides, dict(enumerate(topic.partitions)))
            for topic in change.rearranged
        }
        await state_changes.keep_topics(kept, known)
    if request.is_full and (strays := await _only_sure(_strays(info.broker_id, logs, metadata), topics)):
        logger.warning("deleting replicas that have moved to other brokers: %s", [str(stop.name) for stop in strays])
        await state_changes.stop(
            StopReplica(
                controller_id=request.controller_id,
                controller_epoch=request.controller_epoch,
                broker_epoch=request.broker_epoch,
                partitions=strays,
                number=request.number,
            )
        )
    return UpdateMetadataResponse()


def _strays(here: int, logs: LogManager, metadata: MetadataCache) -> tuple[StopPartition, ...]:
    """Return the stray logs. Never delete an in-sync copy, even of an unassigned broker: it may be the only one."""
    found = []
    for log in sorted(logs, key=lambda log: log.partition):
        topic = metadata.find_by_id(log.topic_id)
        info = metadata.find_partition(log.partition)
        if not (topic and topic.name == log.partition.topic and info):
            continue
        if here not in (*info.replicas, *info.in_sync_replicas):
            found.append(StopPartition(name=log.partition, leader_epoch=info.leader_epoch, delete=True))
    return tuple(found)


async def _only_sure(strays: tuple[StopPartition, ...], topics: Topics) -> tuple[StopPartition, ...]:
    """Return the strays of topics with a sure assignment; warn of the others."""
    if not strays:
        return strays
    try:
        unsure = await topics.find_unsure({stop.name.topic for stop in strays})
    except StoreError as error:
        logger.warning("stray replicas stay until the cluster store tells whether they were moved: %s", error)
        return ()
    for stop in strays:
        if stop.name.topic in unsure:
            logger.warning(
                "%s: its replica here stays, though it is not in the topic's assignment: the cluster store had lost "
                "the topic, or changes of it. Copy its folder before you move the partition here or delete the topic; "
                "remove it while this broker is stopped, if nobody wants it", stop.name,
            )  # fmt: skip
    return tuple(stop for stop in strays if stop.name.topic not in unsure)


API = Api(name="UpdateMetadata", handle=handle)
