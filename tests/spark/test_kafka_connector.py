"""Spark's own Kafka source and sink against a broker of ours, and our source beside them on the same topic."""

from __future__ import annotations

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F

from sparklog.client import Admin
from sparklog.testing import start_broker
from support.names import unique
from support.patience import PATIENCE_S

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
RECORDS = 2_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("kafka-connector")
    with start_broker(data_dir, listeners=("PLAINTEXT://127.0.0.1:0",)) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(broker):
    return str(broker.node.kafka_addresses["PLAINTEXT"])


@pytest.fixture(scope="module")
def orders(spark, broker, bootstrap):
    """A topic of three partitions that Spark's Kafka sink has written."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=3)
    header = F.struct(F.lit("carrier").alias("key"), F.lit(b"UA").alias("value"))
    frame = spark.range(RECORDS).select(
        F.col("id").cast("string").cast("binary").alias("key"),
        F.when(F.col("id") % 10 > 0, F.repeat(F.col("id").cast("string"), 20)).cast("binary").alias("value"),
        F.array(header).alias("headers"),
    )
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", "orders")
    writer.option("includeHeaders", "true").save()
    return "orders"


def kafka(reader, bootstrap, topic, **options):
    named = reader.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return named.option("includeHeaders", "true").options(**options).load()


def test_both_sources_read_what_the_kafka_sink_wrote(spark, broker, bootstrap, orders):
    theirs = kafka(spark.read, bootstrap, orders).select(COLUMNS)
    ours = spark.read.format("sparklog").option("kafka.bootstrap.servers", broker.bootstrap)
    ours = ours.option("subscribe", orders).option("includeHeaders", "true").load().select(COLUMNS)
    assert theirs.count() == RECORDS
    assert theirs.where("value is null").count() == RECORDS // 10
    assert_df_equality(theirs, ours, ignore_row_order=True, ignore_nullable=True)


def test_the_kafka_source_reads_ranges_of_offsets_and_of_time(spark, bootstrap, orders):
    starting = '{"orders": {"0": 100, "1": -2, "2": 10}}'
    ending = '{"orders": {"0": 150, "1": 25, "2": 10}}'
    frame = kafka(spark.read, bootstrap, orders, startingOffsets=starting, endingOffsets=ending)
    counts = {row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()}
    assert counts == {0: 50, 1: 25}
    middle = kafka(spark.read, bootstrap, orders).select(F.min("timestamp")).first()[0]
    since = kafka(spark.read, bootstrap, orders, startingTimestamp=str(int(middle.timestamp() * 1000)))
    assert since.count() == RECORDS


def test_the_kafka_source_streams_and_goes_on_where_it_stopped(spark, bootstrap, orders, tmp_path):
    def run():
        stream = kafka(spark.readStream, bootstrap, orders, startingOffsets="earliest", maxOffsetsPerTrigger="700")
        writer = stream.select("partition", "offset").writeStream.trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "c")).format("parquet").start(str(tmp_path / "out"))
        assert query.awaitTermination(PATIENCE_S)
        return spark.read.parquet(str(tmp_path / "out"))

    assert run().distinct().count() == RECORDS
    assert run().count() == RECORDS


def test_the_kafka_sink_streams(spark, broker, bootstrap, orders, tmp_path):
    topic = unique("copied")
    copied = kafka(spark.readStream, bootstrap, orders, startingOffsets="earliest").select("key", "value", "headers")
    writer = copied.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", topic).option("checkpointLocation", str(tmp_path / "c"))
    query = writer.option("includeHeaders", "true").trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    columns = ["key", "value", "headers"]
    assert_df_equality(
        kafka(spark.read, bootstrap, topic).select(columns),
        kafka(spark.read, bootstrap, orders).select(columns),
        ignore_row_order=True,
    )
