"""The pytest plugin: fixtures for every project that has sparklog installed."""

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
    """A running broker on an empty folder, for one test; `sparklog_broker.bootstrap` is its address.

    `sparklog_broker.kafka` is the one for Kafka's clients.
    """
    # Imported here, because pytest imports this module in every project that has sparklog installed.
    module = importlib.import_module("sparklog.testing.broker")
    with module.start_broker(tmp_path / "sparklog-data", kafka=True) as broker:
        yield broker


@pytest.fixture
def sparklog_cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """Three running brokers that are a cluster, on an empty folder, for one test.

    `sparklog_cluster.bootstrap` has their addresses, `sparklog_cluster.kafka` those for Kafka's clients. `stop_broker`
    and `start_broker` stop and start one of them.
    """
    module = importlib.import_module("sparklog.testing.cluster")
    with module.start_cluster(3, tmp_path / "sparklog-cluster", kafka=True) as cluster:
        yield cluster
