"""Two queries of Spark: from a topic into another one, and from there into a Delta table.

    python -m support.clients.exactly_once_spark BOOTSTRAP SOURCE TARGET FOLDER

It prints `started` once its session has, and a line for each batch of the first query. Its folder has both checkpoints
and the table; and

    kill     is removed when the driver is to die between the commit of a batch and Spark's own commit log
    finish   tells it to end once everything is copied: the last line has the table's rows, and how many differ

The first attempt of a task fails after it has written its rows, in every third batch. A query that fails ends the
program with status 1.
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
from pyspark.sql.streaming import StreamingQuery

from sparklog.spark.session import local_session
from sparklog.spark.source.option_parsing import parse_write_options
from sparklog.spark.source.source import SparklogDataSource
from sparklog.spark.source.write import TopicStreamWriter
from support.patience import PATIENCE_S

AT_ONCE = 150
EVERY_S = 0.05
STARTED, BATCH = "started", "batch"
IMPATIENT = {"kafka.request.timeout.ms": "5000"}


class DyingWriter(TopicStreamWriter):
    folder: Path

    def write(self, iterator: Any) -> Any:
        message = super().write(iterator)
        task = TaskContext.get()
        assert task is not None
        batch_id = int(task.getLocalProperty("streaming.sql.batchId") or 0)
        if batch_id % 3 == 0 and task.partitionId() == 0 and task.attemptNumber() == 0:
            raise OSError("the first attempt fails")
        return message

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        kill = self.folder / "kill"
        if kill.exists():
            kill.unlink()
            os.killpg(int((self.folder / "driver").read_text()), signal.SIGKILL)
            time.sleep(PATIENCE_S)


class DyingSource(SparklogDataSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        options = {name: text for name, text in self.options.items() if name != "folder"}
        writer = DyingWriter(parse_write_options(options), schema)
        writer.folder = Path(self.options["folder"])
        return writer


def main(bootstrap: str, source: str, target: str, folder: str) -> None:
    place = Path(folder)
    (place / "driver").write_text(str(os.getpgid(0)))
    spark = local_session("exactly once", settings={"spark.master": "local[2,4]"})
    print(STARTED, flush=True)
    spark.dataSource.register(DyingSource)
    copying = (
        read(spark, bootstrap, source).option("maxOffsetsPerTrigger", AT_ONCE).load().select("value", "partition")
        .writeStream.format("dying").option("kafka.bootstrap.servers", bootstrap).options(**IMPATIENT)
        .option("topic", target).option("folder", folder).option("checkpointLocation", str(place / "copy")).start()
    )  # fmt: skip
    table = str(place / "table")
    landing = (
        read(spark, bootstrap, target).load().selectExpr("cast(cast(value AS string) AS int) AS number")
        .writeStream.format("delta").option("checkpointLocation", str(place / "landing")).start(table)
    )  # fmt: skip
    follow(copying, landing, place / "finish")
    for query in (copying, landing):
        query.processAllAvailable()
    numbers = spark.read.format("delta").load(table)
    print("table", numbers.count(), numbers.distinct().count(), flush=True)
    spark.stop()


def read(spark: SparkSession, bootstrap: str, topic: str) -> Any:
    reader = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest")


def follow(copying: StreamingQuery, landing: StreamingQuery, finish: Path) -> None:
    told = -1
    while not finish.exists():
        for query in (copying, landing):
            if error := query.exception():
                print(error, file=sys.stderr, flush=True)
                os._exit(1)
        progress = copying.lastProgress
        if progress is not None and progress.numInputRows and progress.batchId > told:
            told = progress.batchId
            print(BATCH, told, flush=True)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
