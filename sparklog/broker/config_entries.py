"""Configurations as clients see them: each key with the value in force, its source, and the values behind it.

- A topic's entries are all keys that a topic can have: the topic's own value, the broker's, or the built-in default.
  Keys for tests are included only if they are set.
- A subscription's entries are its keys, those without a value with their defaults.
- A broker's entries are its own keys and its defaults for topics. Except for the keys in `CHANGEABLE` they are read at
  the broker's start, so they are read-only.
- A value equal to the built-in default has that as its source, even if it is set explicitly.
- Secrets have no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from sparklog.base.client_metrics import CLIENT_METRICS_KEYS
from sparklog.base.config import BROKER_KEYS, BrokerConfig
from sparklog.base.config_keys import Key, render
from sparklog.base.topic_config import BROKER_DEFAULTS_OF_TOPICS, TOPIC_KEYS
from sparklog.broker.resources import CHANGEABLE
from sparklog.cluster.model import Topic

SECRET = "PASSWORD"
FOR_TESTS = "internal."


class ConfigSource(IntEnum):
    """The source of a value."""

    DEFAULT_CONFIG = 0
    STATIC_BROKER_CONFIG = 1
    TOPIC_CONFIG = 2
    DYNAMIC_BROKER_CONFIG = 3
    """Set for this broker while it runs."""
    DYNAMIC_DEFAULT_BROKER_CONFIG = 4
    """Set for all brokers while they run."""
    CLIENT_METRICS_CONFIG = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """One value that a key has in some source; the first one is in force."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    type: str
    """As in `Bound.type`."""
    documentation: str
    is_read_only: bool
    is_sensitive: bool
    synonyms: Sequence[ConfigSynonym]
    """The value in force, then those it overrides, down to the built-in default."""

    @property
    def value(self) -> str | None:
        """The value in force; None if it is secret."""
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source


def topic_entries(topic: Topic, broker: BrokerConfig) -> list[ConfigEntry]:
    """Return the configuration in force for a topic, in the order of `TOPIC_KEYS`."""
    entries = []
    for key in TOPIC_KEYS.values():
        values = []
        if key.name in topic.overrides:
            values.append((key.name, getattr(topic.config, key.field), ConfigSource.TOPIC_CONFIG))
        elif key.name.startswith(FOR_TESTS):
            continue
        values += _defaults(key, key.broker_key or key.name, getattr(broker.topic_defaults, key.field))
        entries.append(_entry(key, key.name, values, is_read_only=False))
    return entries


def client_metrics_entries(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Return the keys of a subscription. configs: those that are set; empty: the subscription does not exist"""
    entries = []
    for name, key in CLIENT_METRICS_KEYS.items():
        values: list[tuple[str, object, ConfigSource]] = [(name, key.default, ConfigSource.DEFAULT_CONFIG)]
        if name in configs:
            values.insert(0, (name, configs[name], ConfigSource.CLIENT_METRICS_CONFIG))
        entries.append(_entry(key, name, values, is_read_only=False))
    return entries


def broker_entries(
    broker: BrokerConfig, own_overrides: Mapping[str, str], overrides_of_all: Mapping[str, str]
) -> list[ConfigEntry]:
    """Return a broker's static configuration with the dynamic changes to it or to all brokers, sorted by name."""
    given = (
        (own_overrides, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (overrides_of_all, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    )

    def values(key: Key, name: str, started_with: object) -> list[tuple[str, object, ConfigSource]]:
        dynamic: list[tuple[str, object, ConfigSource]] = [
            (name, overrides[name], source) for overrides, source in given if name in overrides
        ]
        return dynamic + _defaults(key, name, started_with)

    own = [(key, name, getattr(broker, key.field)) for name, key in BROKER_KEYS.items()]
    for_topics = [
        (key, name, getattr(broker.topic_defaults, key.field)) for name, key in BROKER_DEFAULTS_OF_TOPICS.items()
    ]
    return [
        _entry(key, name, values(key, name, value), is_read_only=name not in CHANGEABLE)
        for key, name, value in sorted(own + for_topics, key=lambda entry: entry[1])
    ]


def _defaults(key: Key, name: str, value: object) -> list[tuple[str, object, ConfigSource]]:
    default = (name, key.default, ConfigSource.DEFAULT_CONFIG)
    return [default] if value == key.default else [(name, value, ConfigSource.STATIC_BROKER_CONFIG), default]


def _entry(
    key: Key, name: str, values: Sequence[tuple[str, object, ConfigSource]], *, is_read_only: bool
) -> ConfigEntry:
    is_secret = key.bound.type == SECRET
    return ConfigEntry(
        name=name,
        type=key.bound.type,
        documentation=f"{key.doc} Allowed: {key.bound.text}.",
        is_read_only=is_read_only,
        is_sensitive=is_secret,
        synonyms=[
            ConfigSynonym(name=where, value=None if is_secret else render(value), source=source)
            for where, value, source in values
        ],
    )
