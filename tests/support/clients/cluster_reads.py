"""Everything that a session on a Spark cluster does with topics, by spark-submit, where only the wheel is.

    spark-submit … cluster_reads.py BOOTSTRAP METRICS FOLDER ELSEWHERE

ELSEWHERE is what one worker sees instead of the log directory, and may remove. The topic `orders` has an archive. What
was read goes to FOLDER/found.json: rows are lists of partition, offset and value. Reads of `orders` have beside
them the bytes that the broker has sent meanwhile.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog.spark import count
from sparklog.spark.explain import explain

Row = list[Any]


def main(bootstrap: str, metrics: str, folder: str, elsewhere: str) -> None:
    spark = SparkSession.builder.appName("reads").getOrCreate()
    broker = {"kafka.bootstrap.servers": bootstrap}

    def read(topic: str, **options: str) -> list[Row]:
        return rows_of(spark.read.format("sparklog").options(**broker, subscribe=topic, **options).load())

    def copy_stream(to: str) -> None:
        orders = spark.readStream.format("sparklog").options(**broker, subscribe="orders")
        rows = orders.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "100").load()
        written = rows.selectExpr("key", "value").writeStream.format("sparklog").options(**broker, topic=to)
        written.option("checkpointLocation", f"{folder}/{to}").trigger(availableNow=True).start().awaitTermination()

    def measured(**options: str) -> tuple[list[Row], float]:
        before = sent(metrics)
        rows = read("orders", **options)
        return rows, sent(metrics) - before

    found: dict[str, Any] = {"pythons": pythons(spark)}
    found["another's folder"] = measured()
    found["fetch"] = measured(readMode="fetch")
    Path(elsewhere).unlink()
    found["no folder"] = measured()
    found["history"] = measured(readMode="history")
    found["count"] = count({**broker, "subscribe": "orders"}).total
    found["explain"] = str(explain({**broker, "subscribe": "orders"}))
    orders = spark.read.format("sparklog").options(**broker, subscribe="orders").load()
    for _ in range(2):  # the second is the first once more
        again = orders.selectExpr("key", "value").write.format("sparklog").options(**broker, topic="copied")
        again.options(txnAppId="copy", txnVersion="1").mode("append").save()
    found["copied"] = read("copied")
    copy_stream("streamed")
    found["streamed"] = read("streamed")
    Path(folder, "found.json").write_text(json.dumps(found))
    spark.stop()


def sent(metrics: str) -> float:
    """Bytes of `orders` that the broker has sent."""
    with urlopen(f"http://{metrics}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith('sparklog_bytes_out_total{topic="orders"}'))


def rows_of(frame: DataFrame) -> list[Row]:
    rows = frame.selectExpr("partition", "offset", "CAST(value AS STRING)").collect()
    return sorted([*row] for row in rows)


def pythons(spark: SparkSession) -> list[Row]:
    """The Python and the sparklog of each executor."""

    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable], "sparklog": [sparklog.__file__]})

    found = spark.range(0, 8, 1, 8).mapInArrow(find, "python string, sparklog string").distinct().collect()
    return sorted([*row] for row in found)


if __name__ == "__main__":
    main(*sys.argv[1:])
