"""A SparkSession on this machine, with settings for small machines: for tests, the demo and jobs.

Spark's defaults are for clusters. In this session, shuffles and Delta's snapshots have one partition per core, and all
ports are on the loopback interface. Python workers talk to the JVM over a Unix socket, which reads about a third faster
than TCP and saves a streaming trigger 40 ms.
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
"""Spark's setting for the Ivy settings file, which can name a mirror of Maven Central."""


def local_settings(cores: int) -> dict[str, str]:
    """Return the settings of a session on one machine with `cores` cores, without those for Delta."""
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
    """Start a session in this process, or return the running one.

    `memory` is the JVM's heap; `settings` override all other settings. With `delta`, Delta's jars are loaded from the
    folder `jars`, and fetched there before the first session: see `jars.delta_jars`, which raises ConfigError if it
    cannot fetch them. The standard error of the JVM and the Python workers goes to `log_file`, if given.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark warns if the host name resolves to a loopback
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
    """Append the standard error of processes that start inside of the block to `path`, for as long as they run."""
    sys.stderr.flush()
    ours = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
