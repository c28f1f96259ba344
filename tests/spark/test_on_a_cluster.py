"""A Spark cluster of two workers, to which spark.archives ships the wheel. One sees the broker's log directory.

The log directory `/proc/self/cwd/data/log` differs between processes. An executor finds a link there, from the archive
`data`, to a folder of its worker. The broker and the driver find the broker's own folder.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from deltalake import DeltaTable

from sparklog import __version__
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Producer
from sparklog.spark.jars import delta_jars
from sparklog.spark.session import local_settings
from sparklog.testing import start_broker
from support import ROOT
from support.environments import build_wheel, make_environment, pack, variables
from support.patience import PATIENCE_S
from support.processes.broker import BrokerProcess
from support.processes.java import spark_options
from support.processes.spark_cluster import HOSTS, MEMORY, SparkCluster

pytestmark = [pytest.mark.soak_only, pytest.mark.soak, pytest.mark.jvm, pytest.mark.timeout(1800)]

LOG = "/proc/self/cwd/data/log"
PYTHON = "./environment/bin/python"
"""On the driver and on executors: Spark runs tasks of Python data sources with the path of the driver's Python."""
SEES, DOES_NOT_SEE = HOSTS
PARTITIONS, RECORDS = 4, 400
VALUE = "x" * 100
CLIENTS = ROOT / "tests" / "support" / "clients"
JOBS = ("compaction", "retention", "offset_replay", "isr_audit")


class ClusterWithBroker:
    """A cluster, a broker, and the folder of a driver that has the whole environment."""

    def __init__(self, folder: Path) -> None:
        self.spark = SparkCluster(folder / "spark")
        self.driver = folder / "driver"
        self.log_dir = folder / "log"
        self.elsewhere = self.spark.work_dir(DOES_NOT_SEE) / "log"
        self.reports = folder / "reports"
        self.archive = folder / "archive"
        at_broker = folder / "broker"
        for owner in (at_broker, self.driver):
            (owner / "data").mkdir(parents=True)
            (owner / "data" / "log").symlink_to(self.log_dir)
        self.log_dir.mkdir()
        self.broker = BrokerProcess(at_broker, log_dirs=(LOG,), cwd=at_broker, serves_metrics=True)
        self.bin = make_environment(self.driver / "environment", build_wheel(folder / "dist"), "sparklog[spark]")
        pack(self.bin.parent, folder / "environment.tar.gz", "pyspark", "pyspark-*")
        self.data = folder / "data.tar.gz"
        self._ship_the_link(folder / "shipped")
        self.archives = f"{folder}/environment.tar.gz#environment,{self.data}#data"
        self.conf = folder / "conf"
        self._configure()

    def _ship_the_link(self, shipped: Path) -> None:
        """To <work dir>/log, from <work dir>/<application>/<number>/data/log."""
        shipped.mkdir()
        (shipped / "log").symlink_to("../../../log")
        subprocess.run(["tar", "-czf", self.data, "-C", shipped, "log"], check=True, timeout=PATIENCE_S)

    def _configure(self) -> None:
        settings = {
            **local_settings(2),
            "spark.executor.memory": MEMORY,
            "spark.executor.extraJavaOptions": spark_options(),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both executors take part from the first task on
            "spark.python.unix.domain.socket.enabled": "false",  # executors have no folder for it
            "spark.sql.session.timeZone": "UTC",
            # Compiling costs more than it saves: each query runs once, on few rows.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.databricks.delta.autoCompact.enabled": "false",
        }
        self.conf.mkdir()
        lines = (f"{name} {value}" for name, value in settings.items())
        (self.conf / "spark-defaults.conf").write_text("\n".join(lines))

    def run(self, *command: str | Path, status: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment beside it. more: variables of the process's environment"""
        own = {
            "SPARK_CONF_DIR": str(self.conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"],
            "SPARKLOG_BOOTSTRAP": self.broker.grpc,
            "SPARKLOG_DELTA_JARS": str(delta_jars()[0].parent),
            "SPARKLOG_REPORTS": str(self.reports),
            **more,
        }
        done = subprocess.run(
            [self.bin / command[0], *command[1:]],
            check=False, capture_output=True, text=True, timeout=4 * PATIENCE_S,
            cwd=self.driver, env=variables(self.bin, **own),
        )  # fmt: skip
        assert done.returncode == status, f"{command}\n{done.stdout}{done.stderr[-5_000:]}\n{self.spark.log()[-3_000:]}"
        return done

    def submit(self, *arguments: str | Path, archives: str = "", **more: str) -> str:
        """Run a script by spark-submit; what it prints."""
        command = ("spark-submit", "--master", self.spark.master, "--archives", archives or self.archives)
        return self.run(*command, *arguments, **{"PYSPARK_PYTHON": PYTHON, **more}).stdout


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterWithBroker]:
    made = ClusterWithBroker(tmp_path_factory.mktemp("company"))
    with made.broker, made.spark:
        fill(made.broker.grpc, str(made.archive))
        (made.spark.work_dir(SEES) / "log").symlink_to(made.log_dir)
        made.elsewhere.symlink_to(log_of_another_broker(made.driver / "other"))
        yield made


def fill(bootstrap: str, archive: str) -> None:
    """Records in several segments, of which only the last is open; keys repeat. A group has read some."""
    small = {"internal.segment.bytes": "3000"}
    with Admin(bootstrap_servers=bootstrap) as admin:
        kept = {**small, "retention.archive": archive, "retention.bytes": "6000"}
        admin.create_topic("orders", partitions=PARTITIONS, configs=kept)
        admin.create_topic("versions", partitions=PARTITIONS, configs={**small, "cleanup.policy": "compact"})
        for topic in ("copied", "streamed"):
            admin.create_topic(topic, partitions=1)
        with Producer(bootstrap_servers=bootstrap, batch_size=0, linger_ms=0) as producer:
            for number in range(RECORDS):
                for topic in ("orders", "versions"):
                    value = f"{number}-{VALUE}".encode()
                    producer.send(topic, value, key=b"%d" % (number % 20), partition=number % PARTITIONS)
        admin.alter_group_offsets("readers", {TopicPartition("orders", 0): 7})


def log_of_another_broker(folder: Path) -> Path:
    """A log directory of another broker: the same topic with other records."""
    with start_broker(folder) as other, Admin(bootstrap_servers=other.bootstrap) as admin:
        admin.create_topic("orders", partitions=PARTITIONS)
        with Producer(bootstrap_servers=other.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send("orders", b"of another broker", partition=number % PARTITIONS)
    return folder


@pytest.fixture(scope="module")
def jobs(company: ClusterWithBroker) -> ClusterWithBroker:
    """Run all jobs: three by spark-submit, and one by the command line."""
    for name in JOBS[:-1]:
        script = company.run("sparklog", "jobs", "script", name).stdout.strip()
        company.submit(script)
    conf = ("--conf", f"spark.archives={company.archives}")
    company.run("sparklog", "jobs", "run", JOBS[-1], "--master", company.spark.master, *conf, PYSPARK_PYTHON=PYTHON)
    return company


@pytest.fixture(scope="module")
def found(jobs: ClusterWithBroker) -> dict[str, Any]:
    """The records that a session has read and written."""
    jobs.submit(CLIENTS / "cluster_reads.py", jobs.broker.grpc, jobs.broker.metrics, jobs.driver, jobs.elsewhere)
    result: dict[str, Any] = json.loads((jobs.driver / "found.json").read_text())
    return result


def test_each_executor_has_the_python_and_the_wheel_of_the_archive(
    company: ClusterWithBroker, found: dict[str, Any]
) -> None:
    pythons = [Path(python) for python, _ in found["pythons"]]
    assert {python.parents[4] for python in pythons} == {company.spark.work_dir(host) for host in HOSTS}
    for python, (_, module) in zip(pythons, found["pythons"], strict=True):
        assert Path(module).is_relative_to(python.parents[1])


def test_a_task_reads_files_where_it_sees_the_brokers_folder_and_fetches_elsewhere(found: dict[str, Any]) -> None:
    """Retention has left the newest segments. The read returns no record of the other broker."""
    fetched, whole = found["fetch"]
    assert fetched
    assert fetched == expected(fetched[0][1])
    for way in ("another's folder", "no folder"):
        rows, size = found[way]
        assert rows == fetched
        assert 0 < size < whole


def test_history_is_read_as_one_table(found: dict[str, Any]) -> None:
    rows, _ = found["history"]
    assert rows == expected(0)
    assert len(found["fetch"][0]) < len(rows)


def test_counts_and_explanations_come_from_the_driver(found: dict[str, Any]) -> None:
    assert found["count"] == len(found["fetch"][0])
    assert found["explain"].count(f"from files in {LOG}/orders-") == PARTITIONS


def test_a_job_that_runs_again_and_a_stream_write_each_row_once(found: dict[str, Any]) -> None:
    values = sorted(value for _, _, value in found["fetch"][0])
    assert sorted(value for _, _, value in found["copied"]) == values
    assert sorted(value for _, _, value in found["streamed"]) == values


def test_a_job_of_each_kind_runs_and_reports(jobs: ClusterWithBroker) -> None:
    runs = DeltaTable(jobs.reports / "runs").to_pyarrow_table(columns=["job", "status", "error"]).to_pylist()
    assert sorted((run["job"], run["status"], run["error"]) for run in runs) == [(job, 0, None) for job in sorted(JOBS)]
    assert outcomes(jobs, "compaction") == [("versions", number, "compacted") for number in range(PARTITIONS)]
    assert outcomes(jobs, "retention") == [("orders", number, "done") for number in range(PARTITIONS)]
    offsets = DeltaTable(jobs.reports / "consumer_offsets").to_pyarrow_table()
    assert offsets.select(["group_id", "partition", "offset"]).to_pylist() == [
        {"group_id": "readers", "partition": 0, "offset": 7}
    ]
    audited = {(topic, partition) for topic, partition, _ in outcomes(jobs, "isr_audit")}
    assert audited >= {(topic, number) for topic in ("orders", "versions") for number in range(PARTITIONS)}


def test_an_environment_that_pip_has_made_at_the_workers_serves_as_well(
    company: ClusterWithBroker, tmp_path: Path
) -> None:
    """It has sparklog without an extra: a Spark installation brings PySpark along."""
    installed = make_environment(tmp_path / "installed", build_wheel(tmp_path / "dist"), "sparklog")
    count = (CLIENTS / "cluster_count.py", company.broker.grpc, "versions")
    home = str(Path(pyspark.__file__).parent)
    assert "records" in company.submit(*count, PYSPARK_PYTHON=str(installed / "python"), SPARK_HOME=home)


def test_a_read_says_in_one_sentence_what_executors_lack(company: ClusterWithBroker, tmp_path: Path) -> None:
    lacking = make_environment(tmp_path / "lacking", None, "pyarrow", "numpy")
    pack(lacking.parent, tmp_path / "lacking.tar.gz")
    archives = f"{tmp_path}/lacking.tar.gz#environment,{company.data}#data"
    said = company.submit(CLIENTS / "cluster_count.py", company.broker.grpc, "versions", archives=archives)
    python = rf"{company.spark.work_dir('')}/.*/environment/bin/python"
    assert re.search(sentence(python), said), said


def test_a_job_says_in_one_sentence_what_executors_lack(company: ClusterWithBroker, tmp_path: Path) -> None:
    lacking = make_environment(tmp_path / "lacking", None) / "python"
    given = ("--master", company.spark.master, "--conf", f"spark.pyspark.python={lacking}")
    done = company.run("sparklog", "jobs", "run", "isr_audit", *given, status=2)
    [said] = [line for line in done.stderr.splitlines() if line.startswith("sparklog: isr_audit could not run: ")]
    assert re.search(f"{sentence(str(lacking))}$", said), said


def sentence(python: str) -> str:
    """A pattern. sparklog is what is looked for first."""
    return (
        rf"ImportError: the Python on {socket.gethostname()} \({python}\) has no sparklog; executors need sparklog "
        rf"{re.escape(__version__)} and its packages, as the driver has them: install them there, or ship an "
        "environment with spark.archives"
    )


def outcomes(company: ClusterWithBroker, job: str) -> list[tuple[str, int, str]]:
    report = DeltaTable(company.reports / job).to_pyarrow_table(columns=["topic", "partition", "outcome"]).to_pylist()
    return sorted(tuple(row.values()) for row in report)


def expected(first: int) -> list[list[Any]]:
    """The rows of `orders` from this offset on."""
    numbers = ((number % PARTITIONS, number // PARTITIONS, f"{number}-{VALUE}") for number in range(RECORDS))
    return sorted([*row] for row in numbers if row[1] >= first)
