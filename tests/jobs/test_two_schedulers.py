"""Two servers of one schedule: each job runs in both at once, on the same topics and into the same reports."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Producer
from sparklog.testing import RunningBroker, start_broker
from support.patience import PATIENCE_S, wait_until
from support.spark_topics import make_reader, rows_of

pytestmark = [pytest.mark.soak_only, pytest.mark.soak, pytest.mark.jvm, pytest.mark.timeout(1200)]

JOBS = ("compaction", "retention", "offset_replay", "isr_audit")
KEYS = 20
CONFIG = """
reports = "{reports}"
stop.timeout.ms = 300000
parallel.runs = 4

[client]
bootstrap.servers = "{bootstrap}"

[spark]
master = "local[1]"
sql.codegen.wholeStage = "false"
sql.codegen.factoryMode = "NO_CODEGEN"
sql.adaptive.enabled = "false"
"""
SCHEDULE = """
[schedule.{job}]
cron = "* * * * * *"
"""
COMPACTION = """[schedule.compaction]
topics = ["versions"]"""


class Writer:
    """Writes to both topics, and commits an offset, until it is closed."""

    def __init__(self, bootstrap: str) -> None:
        self.written = 0
        """Records in each topic."""
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)

    def _write(self) -> None:
        with Producer(bootstrap_servers=self._bootstrap) as producer, Admin(bootstrap_servers=self._bootstrap) as admin:
            for first in count(0, KEYS):
                for topic in ("orders", "versions"):
                    for number in range(first, first + KEYS):
                        producer.send(topic, b"%d" % number, key=b"%d" % (number % KEYS), partition=0)
                producer.flush()
                self.written = first + KEYS
                admin.alter_group_offsets("readers", {TopicPartition("orders", 0): self.written})
                if self._stop.wait(0.1):
                    break


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    archive = str(tmp_path / "archive")
    with start_broker(tmp_path / "log", offsets_topic_num_partitions=1) as running:
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            small = {"internal.segment.bytes": "5000"}
            kept = {**small, "retention.archive": archive, "retention.bytes": "10000"}
            admin.create_topic("orders", partitions=1, configs=kept)
            admin.create_topic("versions", partitions=1, configs={**small, "cleanup.policy": "compact"})
        yield running


def runs_in(reports: Path) -> list[dict[str, Any]]:
    try:
        return list(DeltaTable(reports / "runs").to_pyarrow_table().to_pylist())
    except TableNotFoundError:
        return []


def jobs_at_once(reports: Path) -> set[str]:
    """The jobs of which two servers have had a run at the same time."""
    return {
        one["job"]
        for one, other in product(runs_in(reports), repeat=2)
        if one["job"] == other["job"] and one["application_id"] != other["application_id"]
        if one["started"] < other["ended"] and other["started"] < one["ended"]
    }


def test_two_servers_of_one_schedule_harm_nothing_and_the_reports_tell_them_apart(
    broker: RunningBroker, tmp_path: Path
) -> None:
    reports = tmp_path / "reports"
    config = tmp_path / "jobs.toml"
    schedules = "".join(SCHEDULE.format(job=job) for job in JOBS).replace("[schedule.compaction]", COMPACTION)
    config.write_text(CONFIG.format(reports=reports, bootstrap=broker.bootstrap) + schedules)
    command = [sys.executable, "-m", "sparklog", "jobs", "serve", "--config", str(config)]
    tell = (tmp_path / "servers").read_text
    writer = Writer(broker.bootstrap)
    try:
        with (tmp_path / "servers").open("w") as log:
            servers = [subprocess.Popen(command, stdout=log, stderr=log) for _ in range(2)]
            try:
                wait_until(
                    lambda: tell().count("begins") >= 2 * len(JOBS), "both have begun all jobs", tell=tell, every_s=1
                )
                wait_until(lambda: runs_in(reports), "the first run has ended", tell=tell, every_s=1)
                for job in JOBS:
                    wait_until(lambda job=job: job in jobs_at_once(reports), f"{job} runs twice", tell=tell, every_s=1)
            finally:
                for server in servers:
                    server.send_signal(signal.SIGTERM)
                statuses = [server.wait(3 * PATIENCE_S) for server in servers]
    finally:
        writer.close()
    assert statuses == [0, 0], tell()
    runs = runs_in(reports)
    gave_way = [run for run in runs if run["status"]]
    assert {run["job"] for run in gave_way} <= {"offset_replay"}, gave_way
    assert all(": another run " in run["error"] for run in gave_way), gave_way
    assert len({run["run_id"] for run in runs}) == len(runs)
    for job in JOBS:
        assert len({run["application_id"] for run in runs if run["job"] == job}) == 2

    options = {"kafka.bootstrap.servers": broker.bootstrap}
    orders = rows_of(make_reader({**options, "subscribe": "orders", "readMode": "history"}))
    assert [int(row["value"]) for row in orders] == list(range(writer.written))
    newest = {row["key"]: int(row["value"]) for row in rows_of(make_reader({**options, "subscribe": "versions"}))}
    assert newest == {b"%d" % key: writer.written - KEYS + key for key in range(KEYS)}
    history = DeltaTable(reports / "consumer_offsets_history").to_pyarrow_table(columns=["offset"])
    offsets = sorted(history["offset"].to_pylist())
    assert offsets == [KEYS * number for number in range(1, len(offsets) + 1)]
