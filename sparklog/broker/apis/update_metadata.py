"""UpdateMetadata: receive changes of the cluster from the controller (controller to every broker).

- STALE_CONTROLLER_EPOCH: the controller has been deposed. STALE_BROKER_EPOCH: the request was meant for this broker
  before its restart, or the broker has not registered yet. INCONSISTENT_CLUSTER_ID: the controller's cluster store is
  another one, which was lost.
- A full update deletes the logs of partitions that have moved to other brokers (broker/strays.py).
- A full update of very many topics comes in parts; it is complete with the last one.
- The committed offsets of deleted topics are deleted too; after a full update a little later (broker/store_guard.py).
- A topic's new configuration is applied to its logs, also if only a default has changed.
- Copies of each topic's configuration and replicas, and of the keys set for brokers at run time, are kept in case the
  cluster store is lost (broker/restoration.py).
"""

from __future__ import annotations

from sparklog.base.acls import AclOperation
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.broker.api import Api
from sparklog.broker.client_telemetry import ClientTelemetry
from sparklog.broker.rights import on_cluster
from sparklog.broker.store_guard import StoreGuard
from sparklog.broker.strays import StrayReplicas
from sparklog.cluster.messages import UpdateMetadata, UpdateMetadataResponse
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.topics import broker_nodes
from sparklog.group.coordinator import GroupCoordinator
from sparklog.log.directory.topic_configs import TopicCopy
from sparklog.replica.state_changes import StateChanges
from sparklog.security.authorizer import Authorizer
from sparklog.security.quotas import ClientQuotas


async def handle(
    request: UpdateMetadata,
    *,
    authorizer: Authorizer,
    client_quotas: ClientQuotas,
    client_telemetry: ClientTelemetry,
    dynamic: DynamicConfig,
    groups: GroupCoordinator,
    metadata: MetadataCache,
    state_changes: StateChanges,
    store_guard: StoreGuard,
    strays: StrayReplicas,
) -> UpdateMetadataResponse:
    """Apply the update; the answer is empty.

    Raises StaleControllerEpoch, StaleBrokerEpoch or InconsistentClusterId.
    """
    store_guard.check_controller(request.store_id)
    state_changes.check_broker_epoch(request.broker_epoch)
    change = metadata.update(request)
    if request.acls is not None:
        authorizer.set_acls(request.acls)
    if request.quotas is not None:
        client_quotas.set_quotas(request.quotas)
    if request.client_metrics is not None:
        client_telemetry.set_subscriptions(request.client_metrics)
    if change.reconfigured:
        state_changes.update_configs({topic.name: topic.config for topic in change.reconfigured})
    if change.removed or change.is_full:
        removed = {topic.name: topic.topic_id for topic in change.removed}

        async def forget() -> None:
            if removed:
                groups.forget_topics(removed)
            await state_changes.keep_topics({}, {topic.name: topic.topic_id for topic in metadata})

        if change.is_full:
            store_guard.when_sure(removed, forget)
        else:
            await forget()
    if change.rearranged:
        kept = {
            topic.name: TopicCopy.of(topic.topic_id, topic.overrides, dict(enumerate(topic.partitions)))
            for topic in change.rearranged
        }
        await state_changes.keep_topics(kept, None)
    if change.has_other_broker_keys or change.is_full:
        await state_changes.keep_brokers(broker_nodes(dynamic.for_all, dynamic.own, dynamic.started_with.broker_id))
    if change.is_full:
        await strays.delete()
    return UpdateMetadataResponse()


API = Api(name="UpdateMetadata", handle=handle, rights=(on_cluster(AclOperation.CLUSTER_ACTION),))
