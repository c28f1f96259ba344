"""A Spark job with two executors, of which one is killed, and with a task so slow that Spark starts a copy of it.

    python -m support.clients.speculating_job MASTER BOOTSTRAP TOPIC FOLDER

The job writes the numbers from 0 to ROWS - 1 to the topic. The first attempt of task SLOW writes its rows and waits
until Spark kills it, that of task FATAL writes its rows and kills its executor. Each leaves a file in the folder.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from sparklog.spark.session import local_settings
from sparklog.spark.source.option_parsing import parse_write_options
from sparklog.spark.source.source import SparklogDataSource
from sparklog.spark.source.write import TopicWriter
from support.patience import PATIENCE_S
from support.processes.java import spark_options
from support.processes.spark_cluster import MEMORY

ROWS, TASKS = 40, 4
SLOW, FATAL = 1, 2
SETTINGS = {
    "spark.executor.memory": MEMORY,
    "spark.executor.extraJavaOptions": spark_options(),
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.python.unix.domain.socket.enabled": "false",  # executors have no folder for it
}


class DisturbedWriter(TopicWriter):
    folder: Path

    def write(self, iterator: Any) -> Any:
        message = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        if number in (SLOW, FATAL) and _is_first(self.folder / str(number)):
            if number == FATAL:
                os.kill(_executor(), signal.SIGKILL)
            time.sleep(PATIENCE_S)
        return message


class DisturbedSource(SparklogDataSource):
    @classmethod
    def name(cls) -> str:
        return "disturbed"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        options = {name: text for name, text in self.options.items() if name != "folder"}
        writer = DisturbedWriter(parse_write_options(options), schema, overwrite)
        writer.folder = Path(self.options["folder"])
        return writer


def main(master: str, bootstrap: str, topic: str, folder: str) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("speculation")
    session = builder.config(map={**local_settings(2), **SETTINGS}).getOrCreate()
    session.dataSource.register(DisturbedSource)
    rows = session.range(0, ROWS, 1, TASKS).selectExpr("cast(id AS string) value")
    writer = rows.write.format("disturbed").option("kafka.bootstrap.servers", bootstrap).option("folder", folder)
    writer.option("topic", topic).mode("append").save()
    session.stop()


def numbers_of(task: int) -> range:
    return range(task * ROWS // TASKS, (task + 1) * ROWS // TASKS)


def _is_first(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _executor() -> int:
    """The process id: a Python worker's parent is a daemon, whose parent is the executor."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(daemon.rpartition(")")[2].split()[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
