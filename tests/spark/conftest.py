"""One broker for all tests of this folder; each test has topics of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparklog.testing import start_broker
from support.spark_topics import Topics

Read = Callable[..., DataFrame]


@pytest.fixture(scope="session")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    data_dir = tmp_path_factory.mktemp("broker")
    retention = {"log_retention_ms": -1, "log_retention_check_interval_ms": 50}  # records of tests are of any time
    intervals = {"replica_high_watermark_checkpoint_interval_ms": 50}
    groups = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 3}
    with start_broker(data_dir, auto_create_topics_enable=False, **retention, **intervals, **groups) as broker:
        made = Topics(broker)
        yield made
        made.close()


@pytest.fixture
def read(spark: SparkSession, topics: Topics) -> Read:
    """A topic as a DataFrame."""

    def load(topic: str, **options: Any) -> DataFrame:
        reader = spark.read.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
        return reader.option("subscribe", topic).options(**options).load()

    return load
