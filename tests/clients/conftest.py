"""One broker process that clients of every kind talk to; each test has topics of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from sparklog.client import Admin
from support.processes.broker import BrokerProcess
from support.processes.java import KafkaTools


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("process")) as process:
        yield process


@pytest.fixture(scope="session")
def kafka_tools() -> Iterator[KafkaTools]:
    with closing(KafkaTools()) as tools:
        yield tools


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.grpc) as opened:
        yield opened
