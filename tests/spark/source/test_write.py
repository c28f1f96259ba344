"""DataFrames into topics, in batch and from a stream."""

from __future__ import annotations

import pyarrow as pa
import pyspark.sql.functions as f
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from sparklog.base.errors import ConfigError, InvalidTopic
from sparklog.spark.source.option_parsing import parse_write_options
from sparklog.spark.source.write import TopicWriter, check_written, route
from support.patience import PATIENCE_S

BROKER = {"kafka.bootstrap.servers": "127.0.0.1:9094"}
ROWS = """
    SELECT * FROM VALUES
      ('a', 'one', array(named_struct('key', 'h', 'value', X'01')), timestamp'2026-01-01 00:00:00.123'),
      (NULL, NULL, array(), timestamp'2026-01-01 00:00:01')
    AS rows(key, value, headers, timestamp)
"""


def write(frame, topics, **options):
    frame.write.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap).options(**options).mode(
        "append"
    ).save()


def test_what_is_written_is_read_back(spark, topics, read):
    topic = topics.create()
    write(spark.sql(ROWS).coalesce(1), topics, topic=topic)
    written = read(topic, includeHeaders="true").select("key", "value", "headers", "timestamp")
    expected = spark.sql(ROWS).withColumns({name: f.col(name).cast("binary") for name in ("key", "value")})
    assert_df_equality(written, expected, ignore_nullable=True, ignore_row_order=True)


def test_columns_say_where_records_go(spark, topics, read):
    first, second = topics.create(3), topics.create()
    rows = [(first, 2, "a"), (first, 0, "b"), (second, None, "c"), (first, 2, "d")]
    frame = spark.createDataFrame(rows, "topic string, partition int, value string").coalesce(1)
    write(frame, topics)
    values = {(row.topic, row.partition, row.offset): row.value.decode() for row in read(f"{first},{second}").collect()}
    assert values == {(first, 2, 0): "a", (first, 2, 1): "d", (first, 0, 0): "b", (second, 0, 0): "c"}


def test_the_option_topic_goes_before_the_column(spark, topics, read):
    topic = topics.create()
    write(spark.createDataFrame([("elsewhere", "v")], "topic string, value string"), topics, topic=topic)
    assert read(topic).count() == 1


def test_records_with_one_key_go_to_one_partition_in_their_order(spark, topics, read):
    topic = topics.create(4)
    frame = spark.range(2000, numPartitions=2).selectExpr(
        "cast(id % 10 AS string) AS key", "cast(id AS string) AS value"
    )
    write(frame, topics, topic=topic, **{"kafka.compression.type": "zstd", "kafka.linger.ms": "1"})
    rows = read(topic).selectExpr("cast(key AS string) AS key", "partition", "offset")
    assert rows.groupBy("key").agg(f.countDistinct("partition").alias("n")).where("n > 1").count() == 0
    assert rows.count() == 2000


def test_a_topic_that_cannot_be_written_fails_the_job(spark, topics):
    frame = spark.createDataFrame([("v",)], "value string")
    with pytest.raises(PySparkException, match="no-such-topic"):
        write(frame, topics, topic="no-such-topic", **{"kafka.max.block.ms": "1500"})


def test_a_stream_writes_each_trigger(spark, topics, read, tmp_path):
    source, target = topics.create(2), topics.create(2)
    for partition in (0, 1):
        topics.fill(source, 60, partition=partition, key=[f"k{i % 7}" for i in range(60)])
    stream = spark.readStream.format("sparklog").option("bootstrap.servers", topics.bootstrap)
    stream = stream.option("subscribe", source).option("startingOffsets", "earliest")
    query = (
        stream.option("maxOffsetsPerTrigger", 50).load().select("key", "value").writeStream.format("sparklog")
        .option("bootstrap.servers", topics.bootstrap).option("topic", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(PATIENCE_S)
    assert_df_equality(read(target).select("key", "value"), read(source).select("key", "value"), ignore_row_order=True)


NUMBER, TEXT = IntegerType(), StringType()


def table(**columns: DataType) -> StructType:
    return StructType([StructField(name, of) for name, of in columns.items()])


@pytest.mark.parametrize(
    ("schema", "options", "reason"),
    [
        (table(key=TEXT), {"topic": "t"}, "there is no column value"),
        (table(value=TEXT), {}, "Give the option topic, or a column topic"),
        (table(value=NUMBER), {"topic": "t"}, "column value is int; it must be string or binary"),
        (table(value=TEXT, topic=NUMBER), {}, "column topic is int; it must be string"),
        (table(value=TEXT, partition=TEXT), {"topic": "t"}, "column partition is string; it must be int"),
        (table(value=TEXT, headers=TEXT), {"topic": "t"}, "it must be array<struct<key:string,value:binary>>"),
        (table(value=TEXT, timestamp=LongType()), {"topic": "t"}, "column timestamp is bigint; it must be timestamp"),
    ],
)
def test_columns_are_checked_before_anything_is_written(schema, options, reason):
    with pytest.raises(ConfigError) as refused:
        check_written(schema, parse_write_options({**BROKER, **options}))
    assert reason in str(refused.value)


def test_a_topic_cannot_be_overwritten():
    with pytest.raises(ConfigError, match="use mode append"):
        TopicWriter(parse_write_options({**BROKER, "topic": "t"}), table(value=TEXT), True)


def test_rows_are_grouped_by_topic_and_partition_in_their_order():
    rows = pa.table(
        {
            "topic": ["a", "b", "a", "a"],
            "partition": pa.array([1, None, None, 1], pa.int32()),
            "value": ["0", "1", "2", "3"],
            "other": [0, 0, 0, 0],
        }
    )
    groups = list(route(rows, parse_write_options(BROKER)))
    assert [(topic, partition, rows.to_pydict()) for topic, partition, rows in groups] == [
        ("a", 1, {"value": ["0", "3"]}),
        ("a", None, {"value": ["2"]}),
        ("b", None, {"value": ["1"]}),
    ]


def test_a_row_without_topic_is_refused():
    rows = pa.table({"topic": pa.array([None], pa.string()), "value": ["0"]})
    with pytest.raises(InvalidTopic, match="topic is null"):
        list(route(rows, parse_write_options(BROKER)))
