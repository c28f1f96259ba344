"""The pytest plugin: every project that has sparklog installed gets these fixtures."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sparklog.testing.broker import RunningBroker
    from sparklog.testing.cluster import RunningCluster


@pytest.fixture
def sparklog_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """Yield a running broker on an empty folder, and stop it after the test. It has groups and transactions.

    `sparklog_broker.bootstrap` is its address for sparklog's client, `sparklog_broker.kafka` the one for Kafka's.
    """
    # pytest loads this plugin in every project that has sparklog, so only a test that uses the fixture pays the import.
    module = importlib.import_module("sparklog.testing.broker")
    with module.start_broker(tmp_path / "sparklog-data", kafka=True) as broker:
        yield broker


@pytest.fixture
def sparklog_cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """Yield a running cluster of three brokers on an empty folder, and stop it after the test.

    `sparklog_cluster.bootstrap` lists the addresses for sparklog's client, `sparklog_cluster.kafka` those for Kafka's.
    `stop_broker` and `start_broker` stop and restart one broker.
    """
    module = importlib.import_module("sparklog.testing.cluster")
    with module.start_cluster(3, tmp_path / "sparklog-cluster", kafka=True) as cluster:
        yield cluster
