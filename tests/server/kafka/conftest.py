"""One broker with a Kafka listener for the tests of this folder; each test has topics and groups of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from wire import Wire

from sparklog.testing import RunningBroker, start_broker


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[RunningBroker]:
    with start_broker(listeners=("PLAINTEXT://127.0.0.1:0",)) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_address(kafka_broker: RunningBroker) -> tuple[str, int]:
    return kafka_broker.node.kafka_addresses["PLAINTEXT"]


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_address: tuple[str, int]) -> str:
    """The listener's address as clients want it."""
    return f"{kafka_address[0]}:{kafka_address[1]}"


@pytest.fixture
def wire(kafka_address: tuple[str, int]) -> Iterator[Wire]:
    with Wire(kafka_address) as connection:
        yield connection


@pytest.fixture(scope="session")
def new_name() -> Callable[[], str]:
    """A name of a topic or group that nobody has used."""
    numbers = itertools.count()
    return lambda: f"name-{next(numbers)}"
