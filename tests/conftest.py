"""What all tests share."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from support import CACHE, GOLDEN
from support.processes.java import end_spark, spark_options
from support.runs.seeds import examples
from support.scenarios.texts import CheckScenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Examples are not timed: a first call may compile, and the machine may be busy with other tests. Each run chooses
# others, so that fewer at once find as much in the end, and the fast tests stay fast.
# A method that runs several times in a row, as under stress, has another self each time.
repeatable = [HealthCheck.differing_executors]
settings.register_profile("sparklog", deadline=None, max_examples=examples(60), suppress_health_check=repeatable)
settings.load_profile("sparklog")

pytest_plugins = ["pytester", "support.runs.flaky", "support.runs.leftovers"]

TESTS = Path(__file__).parent
os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_options())
# Kafka's messages come with strategies for Hypothesis where that is installed. A process that is started in a folder of
# its own would make Hypothesis' tables of Unicode there, for two seconds.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(TESTS.parent / ".hypothesis"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write what comes of each command into the texts in tests/*/scenarios; review it as a diff",
    )


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a JVM or start processes, and keep those with a SparkSession in two processes."""
    for item in items:
        folder = folder_of(item.path)
        needs_spark = "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("spark") is not None
        if needs_spark or folder == "kafka":
            item.add_marker(pytest.mark.jvm)
        if needs_spark:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group(f"spark-{'source' if uses_source(item) else 'jobs'}"))
        if needs_spark or folder in ("clients", "kafka") or uses_processes(item.module):
            item.add_marker(pytest.mark.processes)
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=is_short)


def pytest_collection() -> None:
    """Modules and tests are no garbage: a collection every so many of them would find nothing."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules stay until the end: no garbage collection need look through them."""
    gc.enable()
    gc.collect()
    gc.freeze()


def is_short(item: pytest.Item) -> bool:
    """Whether it starts no JVM of its own. Those that do take longest, and go first: none is left at the end."""
    return item.get_closest_marker("jvm") is None or item.get_closest_marker("spark") is not None


@cache
def folder_of(path: Path) -> str:
    """The folder of tests/ that has the module."""
    return path.relative_to(TESTS).parts[0]


def uses_source(item: pytest.Item) -> bool:
    """Whether the test is one of those of Spark's source, or of the audits, which take about half of the time."""
    return "spark" in item.path.relative_to(TESTS).parts or "audit" in item.path.name


@cache
def uses_processes(module: ModuleType) -> bool:
    """Whether the module imports what starts processes."""
    homes = {
        getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", "")
        for value in vars(module).values()
    }
    return any(str(home).startswith(("subprocess", "multiprocessing", "support.processes")) for home in homes)


@pytest.fixture
def check_scenario(request: pytest.FixtureRequest) -> CheckScenario:
    """Plays a scenario, and compares what comes of it with its text; `--rewrite-scenarios` writes that text first."""

    def check(path: Path, play: Callable[[str], str]) -> None:
        played = play(path.read_text())
        if request.config.getoption("--rewrite-scenarios"):
            path.write_text(played)
        assert played == path.read_text()

    return check


@pytest.fixture(scope="session")
def golden() -> Path:
    """Partition folders that Apache Kafka wrote, with Kafka's own dump beside each file."""
    return GOLDEN


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one SparkSession of a process, with Delta and with Spark's own Kafka source, which `make test` fetches."""
    # Loaded here: tests without a JVM need not wait for pyspark.
    from sparklog.spark.jars import delta_jars
    from sparklog.spark.session import local_session
    from support.streams import patient_starts

    jars = [*delta_jars(), *(CACHE / "spark-kafka").glob("*.jar")]
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.session.timeZone": "UTC",
        # Compiling costs more than it saves: each query runs once, on few rows.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.autoCompact.enabled": "false",
        # A Python process that does not begin to read within 15 s, which is Spark's own limit, is slow and not lost.
        "spark.python.authenticate.socketTimeout": "300s",
        # Nor is there anything to find out about queries while they run. The demo, and jobs as processes, have both.
        "spark.sql.adaptive.enabled": "false",
    }
    session = local_session("sparklog tests", settings=settings)
    with patient_starts():
        yield session
    end_spark(session)
