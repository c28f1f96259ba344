"""The history of a cluster as a table: the queries of docs/concepts/history.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from sparklog.client import Admin, Maintenance
from sparklog.cluster.history import HISTORY
from sparklog.testing import RunningCluster, start_cluster
from support.names import unique
from support.patience import PATIENCE_MS, wait_until

DOCS = Path(__file__).parents[2] / "docs" / "concepts" / "history.md"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with start_cluster(2, controlled_shutdown_retry_backoff_ms=100) as running:
        for node in running.nodes.values():  # the topic comes once there are as many brokers as it has replicas
            metadata = node.broker.services.metadata
            assert running.run(metadata.wait_until(partial(metadata.leader_of, HISTORY), PATIENCE_MS))
        yield running


def statements() -> list[str]:
    blocks = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
    return [each.strip() for block in blocks for each in block.split(";") if each.strip()]


def until_there_are(find: Callable[[], list[Row]], count: int) -> list[Row]:
    def enough() -> list[Row] | None:
        found = find()
        return found if len(found) >= count else None

    return wait_until(enough, f"there are {count}", tell=find)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def test_who_led_a_partition_at_a_time_is_a_query(spark: SparkSession, cluster: RunningCluster) -> None:
    records, table, who_led = statements()
    topic, run_id = unique("orders"), unique("run")

    def look() -> None:
        spark.sql(records.replace("'127.0.0.1:9094'", f"'{cluster.bootstrap}'"))
        spark.sql(table)

    def kinds(kind: str, **having: Any) -> list[Row]:
        look()
        rows = spark.table("cluster_history").where(f"kind = '{kind}'")
        for name, value in having.items():
            rows = rows.where(rows[name] == value)
        found: list[Row] = rows.orderBy("offset").collect()
        return found

    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions=1, replication_factor=2)
    first = until_there_are(lambda: kinds("leader elected", topic=topic), 1)[0]
    between = now()
    cluster.stop_broker(first.leader)
    second = until_there_are(lambda: kinds("leader elected", topic=topic), 2)[1]

    def leader_at(moment: str) -> int:
        [row] = spark.sql(who_led.replace("2026-03-01 14:05:00", moment).replace("orders", topic)).collect()
        return int(row.leader)

    assert leader_at(between) == first.leader
    assert leader_at(now()) == second.leader != first.leader
    assert (second.reason, second.previous_leader) == ("controlled shutdown", first.leader)

    with Maintenance(bootstrap_servers=cluster.bootstrap) as maintenance:
        maintenance.note_job_run("compaction", run_id, started_ms=1, status=1, rows=7, findings=2, error=None)
    [run] = until_there_are(lambda: kinds("job run", run_id=run_id), 1)
    assert (run.job, run.run_id, run.status, run.rows, run.findings) == ("compaction", run_id, 1, 7, 2)
    cluster.start_broker(first.leader)
