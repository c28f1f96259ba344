"""Configurations as clients see them: each key with the value in force, its source, and the values behind it.

- A topic's entries are all keys that a topic can have: the topic's own value, the broker's, or the built-in default.
  Keys for tests are included only if they are set.
- A subscription's entries are its keys, those without a value with their defaults.
- A broker's entries are its own keys and its defaults for topics. Those whose update mode is not read-only may be
  overridden at run time: by values for all brokers, and these by values for this one.
- A value equal to the built-in default has that as its source, even if it is set explicitly.
- Secrets have no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from sparklog.base.client_metrics import CLIENT_METRICS_KEYS
from sparklog.base.config import BROKER_KEYS, BrokerConfig
from sparklog.base.config_keys import READ_ONLY, Key, render
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.topic_config import BROKER_DEFAULTS_OF_TOPICS, TOPIC_KEYS
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


Value = tuple[str, object, ConfigSource]
"""A key's name, its value and the value's source."""


class ConfigSynonym(Struct, frozen=True, kw_only=True):
    """One value that a key has in some source; the first one is in force."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(Struct, frozen=True, kw_only=True):
    name: str
    type: str
    """As in `Bound.type`."""
    documentation: str
    is_read_only: bool
    is_sensitive: bool
    synonyms: Sequence[ConfigSynonym]
    """The value in force, then those that it overrides, down to the built-in default."""

    @property
    def value(self) -> str | None:
        """The value in force; None if it is secret."""
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        """Where the value in force comes from: the source of the first synonym."""
        return self.synonyms[0].source


def topic_entries(topic: Topic, broker: DynamicConfig) -> list[ConfigEntry]:
    """Return the configuration in force for a topic, in the order of `TOPIC_KEYS`."""
    entries = []
    for key in TOPIC_KEYS.values():
        values: list[Value] = []
        if key.name in topic.overrides:
            values.append((key.name, getattr(topic.config, key.field), ConfigSource.TOPIC_CONFIG))
        elif key.name.startswith(FOR_TESTS):
            continue
        values += _broker_values(key, key.broker_key or key.name, broker)
        entries.append(_entry(key, key.name, values, is_read_only=False))
    return entries


def client_metrics_entries(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Return a subscription's entries. configs: the keys that are set; empty: the subscription does not exist"""
    entries = []
    for name, key in CLIENT_METRICS_KEYS.items():
        values: list[Value] = [(name, key.default, ConfigSource.DEFAULT_CONFIG)]
        if name in configs:
            values.insert(0, (name, configs[name], ConfigSource.CLIENT_METRICS_CONFIG))
        entries.append(_entry(key, name, values, is_read_only=False))
    return entries


def broker_entries(broker: DynamicConfig) -> list[ConfigEntry]:
    """Return a broker's configuration, sorted by name."""
    keys = {**BROKER_KEYS, **BROKER_DEFAULTS_OF_TOPICS}
    return [
        _entry(key, name, _broker_values(key, name, broker), is_read_only=key.update_mode == READ_ONLY)
        for name, key in sorted(keys.items())
    ]


def _broker_values(key: Key, name: str, broker: DynamicConfig) -> list[Value]:
    """Return the broker's values of a key, the one in force first. name: the key's name in the broker's own entries"""
    given = (
        (broker.own, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (broker.for_all, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    )
    dynamic: list[Value] = [(name, overrides[name], source) for overrides, source in given if name in overrides]
    return dynamic + _defaults(key, name, _started_with(key, name, broker.started_with))


def _started_with(key: Key, name: str, config: BrokerConfig) -> object:
    return getattr(config if name in BROKER_KEYS else config.topic_defaults, key.field)


def _defaults(key: Key, name: str, value: object) -> list[Value]:
    default = (name, key.default, ConfigSource.DEFAULT_CONFIG)
    return [default] if value == key.default else [(name, value, ConfigSource.STATIC_BROKER_CONFIG), default]


def _entry(key: Key, name: str, values: Sequence[Value], *, is_read_only: bool) -> ConfigEntry:
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
