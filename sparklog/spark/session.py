"""A SparkSession on this machine, set up as small machines like it: for tests, the demo and jobs.

The defaults that Spark ships are for clusters. Here shuffles have as many partitions as there are cores, Delta keeps
its snapshots in as few, nothing listens but on the loopback interface, and Python workers talk to the JVM over a unix
socket, which reads about a third faster than TCP and saves a streaming trigger 40 ms.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from sparklog.spark.jars import delta_jars

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
IVY_SETTINGS = "spark.jars.ivySettings"
"""Spark's own name for the file that names a mirror of Maven Central."""


def local_settings(cores: int) -> dict[str, str]:
    """What a session on one machine with `cores` cores is set to, Delta apart."""
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.databricks.delta.snapshotPartitions": str(cores),
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(cores),
    }


def local_session(
    app_name: str,
    *,
    cores: int = 2,
    memory: str = "1g",
    delta: bool = True,
    settings: Mapping[str, str] | None = None,
    jars: Path | None = None,
    log_file: Path | None = None,
) -> SparkSession:
    """Start a session in this process, or return the one that runs.

    `memory` is the JVM's heap; `settings` come last and win. With `delta` Delta's jars are loaded from the folder
    `jars`, and fetched there before the first session: see `jars.delta_jars`, which raises ConfigError where it cannot.
    What the JVM and Python workers print goes to `log_file`, if there is one.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark warns about the name of many a machine
    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers need the packages of this interpreter
    builder = SparkSession.builder.master(f"local[{cores}]").appName(app_name).config("spark.driver.memory", memory)
    if delta:
        ivy_settings = (settings or {}).get(IVY_SETTINGS)
        found = delta_jars(jars, settings=ivy_settings)
        builder = builder.config("spark.jars", ",".join(map(str, found))).config(map=DELTA)
    builder = builder.config(map={**local_settings(cores), **(settings or {})})
    with _stderr_to(log_file) if log_file else nullcontext():
        return builder.getOrCreate()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Let processes that are started meanwhile have `path` as their standard error, for as long as they run."""
    sys.stderr.flush()
    ours = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
