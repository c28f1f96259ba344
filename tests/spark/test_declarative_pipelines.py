"""The declarative pipeline of the recipes, run by Spark's own command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparklog.client import Admin, Producer
from sparklog.testing import RunningBroker
from support import ROOT
from support.docs.markdown import blocks
from support.patience import PATIENCE_S
from support.processes.java import spark_options
from support.spark_topics import make_reader, rows_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE_S)]
MARK = "tests/spark/test_declarative_pipelines.py"
DEFAULTS = """
spark.sql.shuffle.partitions 1
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
spark.ui.enabled false
"""
"""For few rows: what is made for many takes longer than they do."""


@pytest.fixture
def project(sparklog_broker: RunningBroker, tmp_path: Path) -> Path:
    """The folder of the guide's pipeline, with the addresses of this test."""
    spec, flows, _ = [block for block in blocks(ROOT / "docs/guides/recipes.md") if block.reason == MARK]
    text = spec.text.replace("/srv/orders", str(tmp_path)).replace("127.0.0.1:9094", sparklog_broker.bootstrap)
    (tmp_path / "spark-pipeline.yml").write_text(text)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(flows.text)
    return tmp_path


def run(project: Path) -> None:
    """Run the guide's command there."""
    command = [block.text for block in blocks(ROOT / "docs/guides/recipes.md") if block.reason == MARK][-1]
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=project,
        env={
            **os.environ,
            "PATH": paths,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(project / "conf"),
            "SPARK_SUBMIT_OPTS": spark_options(),
        },
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def table(project: Path, name: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in pq.read_table(project / "spark-warehouse" / name).to_pylist())


def test_a_pipeline_reads_a_topic_and_writes_another_once(sparklog_broker: RunningBroker, project: Path) -> None:
    with Admin(bootstrap_servers=sparklog_broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=2)
        admin.create_topic("large")

    def send(*orders: tuple[str, int]) -> None:
        with Producer(bootstrap_servers=sparklog_broker.bootstrap) as producer:
            for customer, amount in orders:
                producer.send("orders", f'{{"amount": {amount}}}', key=customer)

    def large() -> list[tuple[bytes, bytes]]:
        rows = rows_of(make_reader({"bootstrap.servers": sparklog_broker.bootstrap, "subscribe": "large"}))
        return [(row["key"], row["value"]) for row in rows]

    send(("alice", 12), ("bob", 7), ("alice", 3), ("bob", 30))
    run(project)
    assert table(project, "totals") == [("alice", 15), ("bob", 37)]
    assert sorted(large()) == [(b"alice", b'{"amount":12}'), (b"bob", b'{"amount":30}')]
