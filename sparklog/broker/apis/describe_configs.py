"""DescribeConfigs: describe the configuration of topics and others, with the source of each value (key 32).

- `broker/config_entries.py` says which keys are shown and what counts as a default.
- `keys` selects some of a resource's keys; unknown keys are left out, as in Kafka.
- Topics, brokers and subscriptions to client metrics only; those that do not exist have the defaults, as in Kafka.
  Kafka also has the log levels of a broker's loggers, and configurations of groups; requests for these are refused
  (INVALID_REQUEST). Subscriptions are read from the cluster store, so they are as the last change left them.
- Versions 1 to 4, as in Kafka 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.acls import AclOperation
from sparklog.base.client_metrics import ClientMetricsConfigs
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.errors import KafkaError
from sparklog.base.ids import check_topic
from sparklog.broker.api import Api
from sparklog.broker.config_entries import (
    ConfigEntry,
    ConfigSource,
    broker_entries,
    client_metrics_entries,
    topic_entries,
)
from sparklog.broker.resources import ConfigResource, ResourceType, on_configs
from sparklog.cluster.client_metrics import ClientMetricsStore
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.security.authorizer import Authorizer


class ConfigQuery(Struct, frozen=True, kw_only=True):
    resource: ConfigResource
    keys: Sequence[str] = ()
    """Keys to describe; empty: all of them."""
    is_of_all_brokers: bool = False
    """Whether only values that were set for all brokers are described."""


class DescribeConfigsRequest(Struct, frozen=True, kw_only=True):
    resources: Sequence[ConfigQuery]


class ResourceConfigs(Struct, frozen=True, kw_only=True):
    resource: ConfigResource
    error: KafkaError | None = None
    entries: Sequence[ConfigEntry] = ()


class DescribeConfigsResponse(Struct, frozen=True, kw_only=True):
    resources: Sequence[ResourceConfigs]


async def handle(
    request: DescribeConfigsRequest,
    *,
    client_metrics_store: ClientMetricsStore,
    dynamic: DynamicConfig,
    metadata: MetadataCache,
) -> DescribeConfigsResponse:
    """Return the entries of each resource, in their order; a resource that is refused has an error instead."""
    subscriptions: ClientMetricsConfigs = {}
    if any(query.resource.type == ResourceType.CLIENT_METRICS for query in request.resources):
        subscriptions = await asyncio.to_thread(client_metrics_store.load)
    found = [_describe(dynamic, metadata, subscriptions, query) for query in request.resources]
    return DescribeConfigsResponse(resources=found)


def _describe(
    config: DynamicConfig, metadata: MetadataCache, subscriptions: ClientMetricsConfigs, query: ConfigQuery
) -> ResourceConfigs:
    resource = query.resource
    try:
        resource.check(config.started_with.broker_id)
        if resource.type == ResourceType.TOPIC:
            entries = topic_entries(metadata.get(check_topic(resource.name)), config)
        elif resource.type == ResourceType.CLIENT_METRICS:
            entries = client_metrics_entries(subscriptions.get(resource.name, {}))
        else:
            entries = broker_entries(config)
    except KafkaError as error:
        return ResourceConfigs(resource=resource, error=error)
    if query.is_of_all_brokers:
        entries = _set_for_all(entries)
    if query.keys:
        entries = [entry for entry in entries if entry.name in query.keys]
    return ResourceConfigs(resource=resource, entries=entries)


def _set_for_all(entries: Iterable[ConfigEntry]) -> list[ConfigEntry]:
    """Return the entries that were set for all brokers, without what this broker overrides them with."""
    found = []
    for entry in entries:
        sources = [each.source for each in entry.synonyms]
        if ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG in sources:
            first = sources.index(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
            found.append(replace(entry, synonyms=entry.synonyms[first:]))
    return found


def _generation(*, authorizer: Authorizer, dynamic: DynamicConfig, metadata: MetadataCache) -> int:
    return authorizer.version + dynamic.generation + metadata.generation


API = Api(
    name="DescribeConfigs",
    handle=handle,
    rights=on_configs(
        AclOperation.DESCRIBE_CONFIGS, lambda element, error: ResourceConfigs(resource=element.resource, error=error)
    ),
    key=32,
    versions=(1, 4),
    cached_by=_generation,
)
