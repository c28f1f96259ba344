"""One broker for all tests of this folder, and a context for jobs: a reports folder of the test's own.

A test makes topics with `topics.create(…)` and runs a job with `run_job(JOB, context, parse_options(JOB, {…}))`. One
that stops or kills its broker starts its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparklog.jobs.job import JobContext
from sparklog.testing import start_broker
from support.spark_topics import Topics

MakeContext = Callable[..., JobContext]


@pytest.fixture(scope="session")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    data_dir = tmp_path_factory.mktemp("broker-of-jobs")
    groups = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 3}
    intervals = {"replica_high_watermark_checkpoint_interval_ms": 50}
    retention = {"log_retention_ms": -1}  # records of tests are of any time
    with start_broker(
        data_dir, kafka=True, auto_create_topics_enable=False, **retention, **intervals, **groups
    ) as broker:
        made = Topics(broker)
        yield made
        made.close()


@pytest.fixture
def make_context(spark: SparkSession, topics: Topics, tmp_path: Path) -> MakeContext:
    """Makes contexts of runs: on the folder's broker unless `client` says otherwise, with the test's own reports."""

    def make(**changes: Any) -> JobContext:
        client = {"bootstrap_servers": topics.bootstrap}
        return JobContext(**{"spark": spark, "reports": str(tmp_path / "reports"), "client": client, **changes})

    return make


@pytest.fixture
def context(make_context: MakeContext) -> JobContext:
    """The context of one run."""
    return make_context()
