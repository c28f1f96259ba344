"""Executors die and slow tasks have copies: readers of committed records see the rows of one attempt of each task."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from sparklog.client import Admin
from sparklog.testing import RunningBroker
from support.clients.pipelines import TESTS, python_program
from support.clients.speculating_job import FATAL, ROWS, SLOW, numbers_of
from support.names import unique
from support.patience import PATIENCE_S, wait_until
from support.processes.spark_cluster import SparkCluster
from support.spark_topics import make_reader, rows_of

pytestmark = [pytest.mark.soak_only, pytest.mark.soak, pytest.mark.jvm]


def values(broker: RunningBroker, topic: str, isolation_level: str) -> Counter[int]:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    reader = make_reader({**options, "kafka.isolation.level": isolation_level})
    return Counter(int(row["value"]) for row in rows_of(reader))


def test_a_job_writes_its_rows_once_though_an_executor_dies_and_a_slow_task_has_a_copy(
    sparklog_broker: RunningBroker, tmp_path: Path
) -> None:
    topic = unique("executors")
    with Admin(bootstrap_servers=sparklog_broker.bootstrap) as admin, SparkCluster(tmp_path / "spark") as spark:
        admin.create_topic(topic, partitions=1)
        command = [*python_program("speculating_job"), spark.master, sparklog_broker.bootstrap, topic, str(tmp_path)]
        done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)

        assert done.returncode == 0, done.stderr[-3_000:] + spark.log()[-3_000:]
        assert values(sparklog_broker, topic, "read_committed") == Counter(range(ROWS))
        written = values(sparklog_broker, topic, "read_uncommitted")
        lost = written - Counter(range(ROWS))
        assert set(numbers_of(SLOW)) | set(numbers_of(FATAL)) <= set(lost)
        wait_until(
            lambda: not admin.find_hanging_transactions(topics=[topic], max_timeout_ms=0).found, "nothing stays open"
        )
