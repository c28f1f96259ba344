"""A broker's configuration at run time, and the keys that it ignores."""

from __future__ import annotations

import pytest

from sparklog.base.config import CHANGEABLE, BrokerConfig, find_broker_key
from sparklog.base.config_keys import CLUSTER_WIDE, PER_BROKER, render
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.topic_config import BROKER_DEFAULTS_OF_TOPICS, TopicConfig


def test_its_own_keys_come_before_those_of_all_brokers_and_these_before_its_file() -> None:
    config = DynamicConfig(BrokerConfig(max_connections=5, topic_defaults=TopicConfig(retention_ms=6)))
    config.set_overrides({"max.connections": "7", "log.retention.ms": "8"}, {"max.connections": "9"})
    assert (config.current.max_connections, config.current.topic_defaults.retention_ms) == (9, 8)
    config.set_overrides({"max.connections": "7"}, {})
    assert (config.current.max_connections, config.current.topic_defaults.retention_ms) == (7, 6)
    config.set_overrides({}, {})
    assert config.current == config.started_with


@pytest.mark.parametrize("name", CHANGEABLE)
def test_each_key_that_may_change_takes_its_default(name: str) -> None:
    key = find_broker_key(name)
    config = DynamicConfig(BrokerConfig())
    config.set_overrides({name: render(key.default)}, {})
    assert config.current == BrokerConfig()


def test_defaults_of_topics_may_all_change() -> None:
    assert {CHANGEABLE[name] for name in BROKER_DEFAULTS_OF_TOPICS} == {CLUSTER_WIDE}
    assert CHANGEABLE["cordoned.log.dirs"] == PER_BROKER
    assert "listeners" not in CHANGEABLE


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [("num.partitions", "3", "read-only"), ("log.segment.bytes", "x", "whole number"), ("no.such", "1", "unknown key")],
)
def test_keys_of_another_version_in_the_store_are_ignored(
    name: str, value: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = DynamicConfig(BrokerConfig())
    config.set_overrides({name: value, "max.connections": "3"}, {})
    assert config.current == BrokerConfig(max_connections=3)
    assert why in caplog.text
