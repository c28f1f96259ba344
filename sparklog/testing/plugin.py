"""The pytest plugin: fixtures that any project gets by having sparklog installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sparklog.testing.broker import RunningBroker


@pytest.fixture
def sparklog_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A running broker on an empty folder, for one test; `sparklog_broker.bootstrap` is its address.

    `sparklog_broker.kafka` is the one for Kafka's clients.
    """
    # Imported here, as pytest imports this module in every project that has sparklog, wanted or not.
    module = importlib.import_module("sparklog.testing.broker")
    with module.start_broker(tmp_path / "sparklog-data", kafka=True) as broker:
        yield broker
