"""DescribeConfigs: describe the configuration of topics and of the broker, with the source of each value (key 32).

- `broker/config_entries.py` says which keys are shown and what counts as a default.
- `keys` selects some of a resource's keys; unknown keys are left out, as in Kafka.
- Topics and brokers only. Kafka also has the log levels of a broker's loggers, and configurations of client metrics and
  of groups; requests for these are refused (INVALID_REQUEST).
- Versions 1 to 4, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sparklog.base.acls import AclOperation
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.errors import KafkaError
from sparklog.base.ids import check_topic
from sparklog.broker.api import Api
from sparklog.broker.config_entries import ConfigEntry, ConfigSource, broker_entries, topic_entries
from sparklog.broker.resources import ConfigResource, ResourceType, on_configs
from sparklog.cluster.metadata_cache import MetadataCache


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigQuery:
    resource: ConfigResource
    keys: Sequence[str] = ()
    """Keys to describe; empty: all of them."""
    is_of_all_brokers: bool = False
    """Whether only values that were set for all brokers are described."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsRequest:
    resources: Sequence[ConfigQuery]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceConfigs:
    resource: ConfigResource
    error: KafkaError | None = None
    entries: Sequence[ConfigEntry] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponse:
    resources: Sequence[ResourceConfigs]


async def handle(
    request: DescribeConfigsRequest, *, dynamic: DynamicConfig, metadata: MetadataCache
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(resources=[_describe(dynamic, metadata, query) for query in request.resources])


def _describe(config: DynamicConfig, metadata: MetadataCache, query: ConfigQuery) -> ResourceConfigs:
    resource = query.resource
    try:
        resource.check(config.started_with.broker_id)
        if resource.type == ResourceType.TOPIC:
            entries = topic_entries(metadata.get(check_topic(resource.name)), config)
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


API = Api(
    name="DescribeConfigs",
    handle=handle,
    rights=on_configs(
        AclOperation.DESCRIBE_CONFIGS, lambda element, error: ResourceConfigs(resource=element.resource, error=error)
    ),
    key=32,
    versions=(1, 4),
)
