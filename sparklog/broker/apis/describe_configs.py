"""DescribeConfigs: the configuration of topics and of the broker, with where each value is from.

- A topic's entries are all the keys that a topic can set, each with the value in force: the topic's own, the
  broker's, or the built-in default. Keys for tests are shown only where they were set.
- A broker's entries are its own keys and its defaults for topics. They are read at its start, so they are read-only.
- No synonyms: each entry has the one value that is in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from sparklog.base.config import BROKER_DEFAULTS_OF_TOPICS, BROKER_KEYS, TOPIC_KEYS, BrokerConfig, Key, render
from sparklog.base.errors import KafkaError
from sparklog.broker.api import Api
from sparklog.broker.resources import ConfigResource, ResourceType
from sparklog.broker.services import Services
from sparklog.cluster.model import Topic


class ConfigSource(IntEnum):
    """Where a value is from."""

    DEFAULT_CONFIG = 0
    STATIC_BROKER_CONFIG = 1
    TOPIC_CONFIG = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str
    source: ConfigSource
    documentation: str
    is_read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsRequest:
    resources: Sequence[ConfigResource]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceConfigs:
    resource: ConfigResource
    error: KafkaError | None = None
    entries: Sequence[ConfigEntry] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponse:
    resources: Sequence[ResourceConfigs]


async def handle(services: Services, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(resources=[_describe(services, resource) for resource in request.resources])


def _describe(services: Services, resource: ConfigResource) -> ResourceConfigs:
    try:
        resource.check(services.config.broker_id)
        if resource.type == ResourceType.TOPIC:
            entries = _topic_entries(services.metadata.get(resource.name), services.config)
        else:
            entries = _broker_entries(services.config)
    except KafkaError as error:
        return ResourceConfigs(resource=resource, error=error)
    return ResourceConfigs(resource=resource, entries=entries)


def _topic_entries(topic: Topic, broker: BrokerConfig) -> list[ConfigEntry]:
    entries = []
    for key in TOPIC_KEYS.values():
        if key.name in topic.overrides:
            source = ConfigSource.TOPIC_CONFIG
        elif key.broker_key is None:
            continue  # an internal key is shown only where it was set
        else:
            source = _source(key, getattr(broker.topic_defaults, key.field))
        entries.append(_entry(key, key.name, getattr(topic.config, key.field), source, is_read_only=False))
    return entries


def _broker_entries(broker: BrokerConfig) -> list[ConfigEntry]:
    own = [(key, key.name, getattr(broker, key.field)) for key in BROKER_KEYS.values()]
    for_topics = [
        (key, name, getattr(broker.topic_defaults, key.field)) for name, key in BROKER_DEFAULTS_OF_TOPICS.items()
    ]
    return [
        _entry(key, name, value, _source(key, value), is_read_only=True)
        for key, name, value in sorted(own + for_topics, key=lambda entry: entry[1])
    ]


def _source(key: Key, value: object) -> ConfigSource:
    return ConfigSource.DEFAULT_CONFIG if value == key.default else ConfigSource.STATIC_BROKER_CONFIG


def _entry(key: Key, name: str, value: object, source: ConfigSource, *, is_read_only: bool) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=render(value),
        source=source,
        documentation=f"{key.doc} Allowed: {key.bound.text}.",
        is_read_only=is_read_only,
    )


API = Api(name="DescribeConfigs", handle=handle)
