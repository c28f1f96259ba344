"""A pipeline as a user has it, and tests it: orders come in, are streamed to Delta, and their topic is compacted.

The topic keeps the state of each order; a tombstone cancels an order. A stream from before the compaction, a stream
that continues after it, and a later read have the same orders.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from sparklog.client import Admin, Producer
from sparklog.jobs.job import JobContext, run_job
from sparklog.jobs.options import parse_options
from sparklog.jobs.table import load_job
from support.patience import PATIENCE_S

TOPIC = "orders"
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
ORDERS = 60

pytestmark = pytest.mark.slow


def changes(first: int, count: int) -> pa.Table:
    """Changes of orders: each is 8 KB, so that segments fill; every seventh takes its order back."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "key": [f"order-{number * 17 % ORDERS}" for number in numbers],
            "value": [None if number % 7 == 0 else f"amount {number}".ljust(8_000) for number in numbers],
        }
    )


def produce(bootstrap: str, rows: pa.Table) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for first in range(0, rows.num_rows, 50):
            producer.send_table(TOPIC, rows.slice(first, 50)).result(30)


def orders(records: DataFrame) -> DataFrame:
    """Return the existing orders: the newest value of each key."""
    newest = Window.partitionBy("key").orderBy(F.col("offset").desc())
    last = records.withColumn("nth", F.row_number().over(newest)).filter("nth = 1 AND value IS NOT NULL")
    return last.select(F.col("key").cast("string"), F.trim(F.col("value").cast("string")).alias("value"))


def test_orders_are_the_same_for_who_streamed_before_a_compaction_and_who_reads_after_it(
    spark, sparklog_broker, tmp_path
):
    bootstrap = sparklog_broker.bootstrap
    table = str(tmp_path / "orders")

    def source(reader):
        return reader.format("sparklog").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)

    def stream() -> DataFrame:
        records = source(spark.readStream).option("startingOffsets", "earliest").load()
        writer = records.writeStream.format("delta").option("checkpointLocation", f"{table}-checkpoint")
        assert writer.trigger(availableNow=True).start(table).awaitTermination(PATIENCE_S)
        return spark.read.format("delta").load(table)

    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=2, configs=CONFIGS)
    produce(bootstrap, changes(1, 600))
    streamed = orders(stream()).localCheckpoint()

    context = JobContext(
        spark=spark, reports=str(tmp_path / "reports"), client={"bootstrap_servers": bootstrap}
    )  # what `sparklog jobs run compaction` makes
    compaction = load_job("compaction")
    run = run_job(compaction, context, parse_options(compaction, {"topics": [TOPIC]}))
    assert run.status == 0, run.error
    report = run.rows.collect()
    assert [row.outcome for row in report] == ["compacted", "compacted"]
    assert all(row.records_after < row.records_before / 2 for row in report)

    read_now = source(spark.read).load()
    assert read_now.count() < 600
    assert_df_equality(orders(read_now), streamed, ignore_row_order=True, ignore_nullable=True)
    produce(bootstrap, changes(601, 50))
    both = orders(stream()), orders(source(spark.read).load())
    assert_df_equality(*both, ignore_row_order=True, ignore_nullable=True)
    assert spark.read.format("delta").load(table).count() == 650
