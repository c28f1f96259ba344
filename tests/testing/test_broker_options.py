"""The keyword arguments of `start_broker` and `start_cluster`, for type checkers, are the configuration keys."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path

import pytest

from sparklog.base.config import BROKER_KEYS, BrokerConfig
from sparklog.base.topic_config import BROKER_DEFAULTS_OF_TOPICS, TopicConfig
from sparklog.testing import BrokerOptions, start_broker, start_cluster
from support.type_checker import errors_in

pytestmark = pytest.mark.slow

GIVEN = {tuple[str, ...]: str | tuple[str, ...]}
"""How a key of a type may be given, where that is not this type alone."""
USES = """
from typing import Any
from sparklog.testing import BrokerOptions, start_broker, start_cluster

options: BrokerOptions = {"num_partitions": 3}
settings: dict[str, Any] = {"num_partitions": "3"}
start_broker(**options)
start_broker("/tmp/data", kafka=True, **settings)
start_broker(listeners=("PLAINTEXT://127.0.0.1:0",), log_retention_ms=-1)
start_cluster(3, auto_create_topics_enable=False)
"""
MISUSES = """
from sparklog.testing import start_broker, start_cluster
start_broker(num_partitons=3)
start_broker(log_retention_ms="an hour")
start_cluster(3, auto_create_topics_enable="no")
"""


def test_they_have_the_names_and_the_types_of_the_configuration():
    broker, topic = typing.get_type_hints(BrokerConfig), typing.get_type_hints(TopicConfig)
    kept = {name: broker[key.field] for name, key in BROKER_KEYS.items()}
    kept |= {name: topic[key.field] for name, key in BROKER_DEFAULTS_OF_TOPICS.items()}
    given = {name.replace(".", "_"): GIVEN.get(kind, kind) for name, kind in kept.items()}
    assert typing.get_type_hints(BrokerOptions) == given
    assert not BrokerOptions.__required_keys__


@pytest.mark.parametrize("start", [start_broker, start_cluster])
def test_both_fixtures_take_them(start):
    parameters = inspect.signature(start, eval_str=True).parameters
    assert parameters["config"].annotation == typing.Unpack[BrokerOptions]


@pytest.mark.slow
def test_a_type_checker_takes_what_they_take_and_nothing_else(tmp_path: Path) -> None:
    found = errors_in(tmp_path, uses=USES, misuses=MISUSES)
    assert found == [("misuses", str(line)) for line in range(3, 6)]
