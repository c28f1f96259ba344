"""Topics of a broker as a table: columns, bounds, tasks and filters, from files and through the broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyspark.sql.functions as f
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from sparklog.spark.columns import table_schema

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MODES = ("segments", "fetch", "auto")
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def times(count: int, step: timedelta = timedelta(seconds=1)) -> pa.Array:
    return pa.array([T0 + i * step for i in range(count)], pa.timestamp("ms", "UTC"))


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def values(frame) -> list[str]:
    return [row.value.decode() for row in frame.orderBy("partition", "offset").collect()]


@pytest.mark.parametrize("mode", MODES)
def test_a_record_has_the_columns_of_sparks_kafka_source(spark, topics, read, mode):
    topic = topics.create()
    columns = {
        "key": pa.array([b"k", None]),
        "timestamp": times(2),
        "headers": pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], []], HEADERS),
    }
    topics.fill(topic, 2, **columns)
    expected = spark.createDataFrame(
        [
            (bytearray(b"k"), bytearray(b"v0"), topic, 0, 0, T0, 0, [("a", bytearray(b"1")), ("b", None)]),
            (None, bytearray(b"v1"), topic, 0, 1, T0 + timedelta(seconds=1), 0, []),
        ],
        table_schema(include_headers=True),
    )
    assert_df_equality(read(topic, readMode=mode, includeHeaders="true").orderBy("offset"), expected)
    assert_df_equality(read(topic, readMode=mode).orderBy("offset"), expected.drop("headers"))


def test_the_schema_is_that_of_sparks_kafka_source(read, topics):
    ddl = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
        "headers array<struct<key: string, value: binary>>"
    )
    assert read(topics.create(), includeHeaders="true").schema == StructType.fromDDL(ddl)


def test_only_the_columns_that_are_asked_for_are_read(spark, topics):
    topic = topics.create()
    topics.fill(topic, 3, key=["a", "b", "c"])
    reader = spark.read.format("sparklog").option("bootstrap.servers", topics.bootstrap).option("subscribe", topic)
    keys = reader.schema("offset bigint, key binary").load()
    assert [tuple(row) for row in keys.orderBy("offset").collect()] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert reader.schema("topic string").load().distinct().collect() == [(topic,)]
    with pytest.raises(PySparkException, match="no column key string in a topic"):
        reader.schema("key string").load().collect()


@pytest.mark.parametrize("mode", ["segments", "fetch"])
def test_offsets_bound_a_read(topics, read, mode):
    topic = topics.create(2)
    topics.fill(topic, 10, partition=0, batches=4)
    topics.fill(topic, 5, partition=1)
    bounds = {
        "startingOffsets": json.dumps({topic: {"0": 4, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": 8, "1": -1}}),
    }
    assert values(read(topic, readMode=mode, **bounds)) == ["v4", "v5", "v6", "v7", "v0", "v1", "v2", "v3", "v4"]


@pytest.mark.parametrize("mode", ["segments", "fetch"])
def test_timestamps_bound_a_read(topics, read, mode):
    topic = topics.create(2)
    topics.fill(topic, 10, partition=0, timestamp=times(10))
    topics.fill(topic, 3, partition=1, timestamp=times(3))
    start, end = milliseconds(T0 + timedelta(seconds=2)), milliseconds(T0 + timedelta(seconds=6))
    assert values(read(topic, readMode=mode, startingTimestamp=start, endingTimestamp=end)) == [
        "v2", "v3", "v4", "v5", "v2",
    ]  # fmt: skip
    by_partition = json.dumps({topic: {"0": end, "1": end}})
    with pytest.raises(PySparkException, match=f"no record of {topic}-1 has timestamp {end} or later"):
        read(topic, startingOffsetsByTimestamp=by_partition).collect()
    latest = read(topic, startingOffsetsByTimestamp=by_partition, startingOffsetsByTimestampStrategy="latest")
    assert values(latest) == ["v6", "v7", "v8", "v9"]


def test_topics_by_pattern_and_partitions_by_name(spark, topics):
    first, second = topics.create(2), topics.create()
    for topic in (first, second):
        topics.fill(topic, 2)
    topics.fill(first, 3, partition=1)
    reader = spark.read.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
    by_pattern = reader.option("subscribePattern", f"{first}|{second}").load()
    assert by_pattern.groupBy("topic").count().orderBy("topic").collect() == sorted([(first, 5), (second, 2)])
    reader = spark.read.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
    assert reader.option("assign", json.dumps({first: [1]})).load().count() == 3


def test_a_topic_that_is_not_there_is_an_error_that_names_it(read):
    with pytest.raises(PySparkException, match="no-such-topic"):
        read("no-such-topic").collect()


@pytest.mark.parametrize("mode", ["segments", "fetch"])
def test_one_partition_can_be_read_by_many_tasks(topics, read, mode):
    topic = topics.create()
    topics.fill(topic, 1000, batches=50)
    frame = read(topic, readMode=mode, minPartitions=7)
    assert frame.rdd.getNumPartitions() >= 7
    assert values(frame) == [f"v{i}" for i in range(1000)]


def test_no_task_gets_more_records_than_asked(topics, read):
    topic = topics.create(2)
    topics.fill(topic, 100, partition=0)  # a single batch: it is shared between tasks
    topics.fill(topic, 30, partition=1, batches=3)
    frame = read(topic, maxRecordsPerPartition=40)
    per_task = frame.groupBy(f.spark_partition_id()).count().collect()
    assert sorted(count for _, count in per_task) == [30, 33, 33, 34]


def test_a_read_is_one_view_of_the_topic_until_it_is_loaded_again(topics, read):
    topic = topics.create()
    topics.fill(topic, 3)
    frame = read(topic)
    assert frame.count() == 3
    topics.fill(topic, 2)
    assert (frame.count(), read(topic).count()) == (3, 5)


def test_an_empty_topic_is_an_empty_table(topics, read):
    assert read(topics.create(3)).count() == 0


def test_sql_reads_topics_too(spark, topics):
    topic = topics.create()
    topics.fill(topic, 4)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING sparklog "
        f"OPTIONS (kafka.bootstrap.servers '{topics.bootstrap}', subscribe '{topic}')"
    )
    assert spark.sql("SELECT max(offset), count(*) FROM v WHERE cast(value AS string) > 'v1'").collect() == [(3, 2)]


def test_a_wrong_option_fails_the_query_with_the_right_ones(read, topics):
    with pytest.raises(PySparkException, match="unknown option startingoffset; did you mean startingOffsets"):
        read(topics.create(), startingOffset="latest").collect()


@pytest.fixture
def pushdown(spark):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.fixture(scope="module")
def two_days(topics):
    """A topic of two partitions, a record a minute for two days."""
    topic = topics.create(2, internal_segment_bytes=4096)
    for partition in (0, 1):
        topics.fill(topic, 2880, partition=partition, batches=48, timestamp=times(2880, timedelta(minutes=1)))
    return topic


FILTERS = (
    "partition = 1 AND offset BETWEEN 100 AND 199",
    "topic = 'another'",
    "topic LIKE 'topic-%' AND partition IN (0, 5) AND offset >= 2870",
    "timestamp >= '2026-01-02 12:00:00' AND timestamp < '2026-01-02 13:00:00'",
    "timestamp < '2026-01-01 01:00:00' OR offset = 2000",
    "offset = 7 AND value = X'7637'",
    "partition <> 0 AND offset > 2878",
)


@pytest.mark.parametrize("condition", FILTERS)
def test_pushed_filters_change_nothing_but_what_is_read(pushdown, read, two_days, condition):
    expected = read(two_days).where(condition)
    assert_df_equality(
        read(two_days, filterPushdown="true").where(condition).orderBy("partition", "offset"),
        expected.orderBy("partition", "offset"),
    )


def test_without_the_option_a_table_may_be_used_with_several_filters(pushdown, read, two_days):
    frame = read(two_days)
    early, late = frame.where("offset < 10"), frame.where("offset >= 2870")
    assert early.union(late).count() == 40
    assert frame.count() == 2 * 2880
