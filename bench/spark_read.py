"""Reading 100-byte records in Spark:  python -m bench.spark_read [--help]

    ceiling     a Python source whose tasks yield one prebuilt Arrow batch again and again: none can be faster
    segments    sparklog, straight from segment files
    value only  sparklog with the schema "value binary": other columns are not decoded
    fetch       sparklog, through the broker
    arrow       the same files without Spark, by sparklog.arrow in one thread: noop reads all columns, count the offsets
    kafka       Spark's own Kafka source; with --kafka HOST:PORT of an Apache Kafka, which gets as many records of the
                same sizes

Each is read --runs times (3) per query; the best counts. noop hands every row to a sink that drops it, so all columns
cross from Python to the JVM and become rows; count and sum(length(value)) do not make rows of all columns.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.harness import broker_process
from sparklog.arrow import record_batches
from sparklog.arrow.columns import TableShape
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Producer
from sparklog.spark.columns import table_schema
from sparklog.spark.jars import fetch_command
from sparklog.spark.session import local_session
from sparklog.spark.spark_api import arrow_schema

TOPIC = "bench"
LOG_FILE = Path(tempfile.gettempdir()) / "sparklog-bench-spark.log"
ROWS_PER_TABLE = 50_000
CEILING_ROWS = 10_000
KEY_BYTES, VALUE_BYTES = 8, 100
KAFKA_IVY = Path(__file__).with_name("ivy.xml")
CACHE = Path(__file__).parents[1] / ".cache"

Query = Callable[[DataFrame], Any]
QUERIES: dict[str, Query] = {
    "noop": lambda frame: frame.write.format("noop").mode("overwrite").save(),
    "count": lambda frame: frame.count(),
    "sum(length(value))": lambda frame: frame.agg(f.sum(f.length("value"))).collect(),
}
ARROW_QUERIES: dict[str, Callable[[Path], Any]] = {
    "noop": lambda path: sum(batch.num_rows for batch in record_batches(path, TOPIC)),
    "count": lambda path: sum(batch.num_rows for batch in record_batches(path, TOPIC, columns=["offset"])),
    "sum(length(value))": lambda path: sum(
        pc.sum(pc.binary_length(batch.column(0))).as_py() for batch in record_batches(path, TOPIC, columns=["value"])
    ),
}


def random_binary(rows: int, size: int, generator: np.random.Generator) -> pa.Array:
    data = generator.integers(0, 256, rows * size, dtype=np.uint8).tobytes()
    return pa.Array.from_buffers(pa.binary(size), rows, [None, pa.py_buffer(data)]).cast(pa.binary())


def records(rows: int, first: int = 0) -> pa.Table:
    """Return records with random keys and values, a millisecond apart."""
    generator = np.random.default_rng(first)
    return pa.table(
        {
            "key": random_binary(rows, KEY_BYTES, generator),
            "value": random_binary(rows, VALUE_BYTES, generator),
            "timestamp": pa.array(np.arange(first, first + rows), pa.timestamp("ms", "UTC")),
        }
    )


class CeilingReader(DataSourceReader):
    """Reader whose tasks yield one prebuilt batch until they have yielded their share."""

    def __init__(self, rows: int, tasks: int, schema: StructType) -> None:
        self._batches_per_task = rows // tasks // CEILING_ROWS
        self._tasks = tasks
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        table = records(CEILING_ROWS).combine_chunks()
        columns: dict[str, Any] = {name: table[name].chunk(0) for name in ("key", "value")}
        columns["timestamp"] = table["timestamp"].chunk(0).cast(pa.timestamp("us", "UTC"))
        columns["offset"] = pa.array(np.arange(CEILING_ROWS))
        columns["timestampType"] = pa.array(np.zeros(CEILING_ROWS, np.int32))
        made = iter([pa.RecordBatch.from_pydict(columns)])
        [batch] = TableShape(arrow_schema(self._schema)).apply(made, TopicPartition(TOPIC, 0))
        for _ in range(self._batches_per_task):
            yield batch


class CeilingSource(DataSource):
    """Source whose speed no other source in Python can exceed."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> StructType:
        return table_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(int(self.options["rows"]), int(self.options["tasks"]), schema)


def fill(bootstrap: str, rows: int, partitions: int) -> None:
    """Create the topic and write `rows` records to it."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(
            TOPIC, partitions=partitions, configs={"retention.ms": "-1", "segment.bytes": str(128 << 20)}
        )
    with Producer(bootstrap_servers=bootstrap) as producer:
        for first in range(0, rows, ROWS_PER_TABLE):
            table = records(min(ROWS_PER_TABLE, rows - first), first)
            producer.send_table(TOPIC, table, partition=first // ROWS_PER_TABLE % partitions).result()


def fill_kafka(spark: SparkSession, bootstrap: str, rows: int, partitions: int) -> str:
    """Write as many records of the same sizes to a new topic of an Apache Kafka, through Spark; return its name."""
    topic = f"{TOPIC}-{datetime.now(UTC):%Y%m%d%H%M%S}"
    frame = spark.range(rows, numPartitions=partitions).select(
        f.substring(f.unhex(f.md5(f.col("id").cast("string"))), 1, KEY_BYTES).alias("key"),
        f.unhex(f.substring(f.repeat(f.sha2(f.col("id").cast("string"), 512), 2), 1, 2 * VALUE_BYTES)).alias("value"),
    )
    frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()
    return topic


def measure(
    name: str, load: Callable[[], Any], rows: int, runs: int, queries: Mapping[str, Callable[[Any], Any]] = QUERIES
) -> None:
    """Print the best of `runs` for every query, in millions of rows per second."""
    rates = []
    for query in queries.values():
        best = min(timed(query, load()) for _ in range(runs))
        rates.append(rows / best / 1e6)
    print(f"{name:<12}" + "".join(f"{rate:>20.2f}" for rate in rates), flush=True)


def timed(query: Callable[[Any], Any], source: Any) -> float:
    started = time.perf_counter()
    query(source)
    return time.perf_counter() - started


def kafka_jars() -> list[str]:
    """Return the jars of Spark's own Kafka source; fetch them if they are missing."""
    folder = CACHE / "spark-kafka"
    if not folder.exists():
        subprocess.run(fetch_command(folder, cache=CACHE / "ivy", ivy_file=KAFKA_IVY), check=True)
    return sorted(map(str, folder.glob("*.jar")))


def main() -> None:
    arguments = parse_arguments()
    packages = {"spark.jars": ",".join(kafka_jars())} if arguments.kafka else {}
    spark = local_session("bench", delta=False, cores=arguments.cores, settings=packages, log_file=LOG_FILE)
    spark.dataSource.register(CeilingSource)
    read = spark.read.format("sparklog").option("minPartitions", arguments.tasks)
    print(f"{'M rows/s':<12}" + "".join(f"{name:>20}" for name in QUERIES), flush=True)
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as data, broker_process(data=data) as broker:
        fill(broker.bootstrap, arguments.records, arguments.partitions)
        topic = read.option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", TOPIC)
        ceiling = spark.read.format("ceiling").option("rows", arguments.records).option("tasks", arguments.tasks)
        sources: dict[str, Callable[[], DataFrame]] = {
            "ceiling": ceiling.load,
            "segments": topic.option("readMode", "segments").load,
        }
        for name, load in sources.items():
            measure(name, load, arguments.records, arguments.runs)
        only = spark.read.schema("value binary").format("sparklog").option("minPartitions", arguments.tasks)
        only = only.option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", TOPIC)
        measure("value only", only.load, arguments.records, arguments.runs)
        measure("fetch", topic.option("readMode", "fetch").load, arguments.records, arguments.runs)
        measure("arrow", lambda: Path(data), arguments.records, arguments.runs, ARROW_QUERIES)
        if arguments.kafka:
            name = fill_kafka(spark, arguments.kafka, arguments.records, arguments.partitions)
            kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", arguments.kafka)
            kafka = kafka.option("subscribe", name).option("minPartitions", arguments.tasks)
            measure("kafka", kafka.load, arguments.records, arguments.runs)
    spark.stop()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--partitions", type=int, default=2, help="of the topic")
    parser.add_argument("--tasks", type=int, default=4, help="tasks of each read (minPartitions)")
    parser.add_argument("--cores", type=int, default=2, help="of the SparkSession, local[n]")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kafka", metavar="HOST:PORT", help="an Apache Kafka to compare with")
    return parser.parse_args()


if __name__ == "__main__":
    main()
