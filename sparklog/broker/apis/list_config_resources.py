"""ListConfigResources: list the resources whose configuration can be described (key 74, KIP-1142).

- Topics, the broker, and subscriptions to client metrics. Broker loggers and groups have no configuration here, so none
  are listed; Kafka lists those that have been configured. An unknown type gets UNSUPPORTED_VERSION, as in Kafka.
- Versions 0 (client metrics only) and 1, as in Kafka 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.config import BrokerConfig
from sparklog.broker.api import Api
from sparklog.broker.resources import ConfigResource, ResourceType
from sparklog.broker.rights import on_cluster
from sparklog.cluster.client_metrics import ClientMetricsStore
from sparklog.cluster.metadata_cache import MetadataCache


class ListConfigResourcesRequest(Struct, frozen=True, kw_only=True):
    types: Sequence[ResourceType]


class ListConfigResourcesResponse(Struct, frozen=True, kw_only=True):
    resources: Sequence[ConfigResource]


async def handle(
    request: ListConfigResourcesRequest,
    *,
    client_metrics_store: ClientMetricsStore,
    config: BrokerConfig,
    metadata: MetadataCache,
) -> ListConfigResourcesResponse:
    """Return the resources of the requested types: topics, then this broker, then subscriptions."""
    found = []
    if ResourceType.TOPIC in request.types:
        found += [ConfigResource(ResourceType.TOPIC, topic.name) for topic in metadata]
    if ResourceType.BROKER in request.types:
        found.append(ConfigResource(ResourceType.BROKER, str(config.broker_id)))
    if ResourceType.CLIENT_METRICS in request.types:
        subscriptions = await asyncio.to_thread(client_metrics_store.load)
        found += [ConfigResource(ResourceType.CLIENT_METRICS, name) for name in subscriptions]
    return ListConfigResourcesResponse(resources=found)


API = Api(
    name="ListConfigResources",
    handle=handle,
    rights=(on_cluster(AclOperation.DESCRIBE_CONFIGS),),
    key=74,
    versions=(0, 1),
)
