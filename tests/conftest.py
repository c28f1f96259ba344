"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# Examples are not timed: a first call may compile, and the machine may be busy with other tests.
settings.register_profile("sparklog", deadline=None)
settings.load_profile("sparklog")

TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-scenarios", action="store_true", help="write what happens into tests/group/scenarios")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a JVM: `make test` runs them in one process, so that there is one SparkSession."""
    for item in items:
        in_kafka = item.path.relative_to(TESTS).parts[0] == "kafka"
        if in_kafka or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.jvm)


@pytest.fixture(scope="session")
def golden() -> Path:
    """Partition folders that Apache Kafka wrote, with Kafka's own dump beside each file."""
    return TESTS / "data" / "golden"
