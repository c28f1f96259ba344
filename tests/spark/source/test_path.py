"""A log directory as a table, with no broker running: sparklog's own and Apache Kafka's."""

from __future__ import annotations

import pyspark.sql.functions as f
import pytest
from chispa import assert_df_equality
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparklog.arrow.folders import ReadableOffsets
from sparklog.base.errors import ConfigError, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.spark.columns import table_schema
from sparklog.spark.folders import FolderLookup
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.options import AllTopics, Subscribe
from sparklog.spark.source.stream import TopicStreamReader
from support import GOLDEN
from support.golden import FOLDERS, expected_rows
from support.logs.folders import write_folder


@pytest.fixture(scope="module")
def whole_directory(spark):
    """Every golden folder at once."""
    reader = spark.read.format("sparklog").option("includeHeaders", "true")
    return reader.option("kafka.isolation.level", "read_uncommitted").load(str(GOLDEN)).cache()


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_kafka_wrote_equals_what_kafka_says_is_in_it(spark, whole_directory, name):
    actual = whole_directory.where(f.col("topic") == name.rpartition("-")[0])
    expected = spark.createDataFrame(expected_rows(GOLDEN / name), table_schema(include_headers=True))
    assert_df_equality(actual.orderBy("offset"), expected)


def test_only_committed_records_are_read_unless_told_otherwise(spark):
    folder = GOLDEN / "transactional-0"
    actual = spark.read.format("sparklog").option("includeHeaders", "true").load(str(folder))
    expected = spark.createDataFrame(expected_rows(folder, "expected-committed"), table_schema(include_headers=True))
    assert_df_equality(actual.orderBy("offset"), expected)


def test_the_folder_of_one_partition_is_read_as_it_is(spark):
    rows = spark.read.format("sparklog").load(str(GOLDEN / "segments-0")).orderBy("offset").collect()
    assert [row.offset for row in rows] == [row[4] for row in expected_rows(GOLDEN / "segments-0")]
    assert {(row.topic, row.partition) for row in rows} == {("segments", 0)}


def test_a_uri_is_read_through_its_file_system(spark):
    assert spark.read.format("sparklog").load(f"file://{GOLDEN}/codec-lz4-0").count() == 200


def test_topics_of_a_log_directory_are_chosen_by_name(spark):
    reader = spark.read.format("sparklog").option("path", str(GOLDEN))
    assert {row.topic for row in reader.option("subscribePattern", "codec-.*").load().select("topic").collect()} == {
        "codec-gzip", "codec-lz4", "codec-none", "codec-snappy", "codec-zstd",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "reason"),
    [("no-such-folder", "there is no such folder"), ("notes", "neither a log directory nor a partition")],
)
def test_a_path_without_a_log_is_refused(tmp_path, path, reason):
    (tmp_path / "notes").mkdir()
    with pytest.raises(ConfigError, match=reason):
        FolderLookup.open(str(tmp_path / path))


def test_a_partition_that_is_only_being_made_is_empty(tmp_path):
    (tmp_path / "orders-0").mkdir()
    assert FolderLookup.open(str(tmp_path)).bounds(AllTopics()) == {TopicPartition("orders", 0): ReadableOffsets(0, 0)}


def test_a_stream_of_a_log_directory_reads_what_appears_in_it(tmp_path):
    """Topics and partitions that appear while the query runs are read from their beginning."""
    write_folder(tmp_path / "orders-0", batches=[(0, 0)], epochs=[(0, 0)])
    options = {"path": str(tmp_path), "subscribePattern": "orders.*", "startingOffsets": "latest"}
    reader = TopicStreamReader(parse_read_options(options, OptionUse.STREAM), table_schema(include_headers=False))
    start = reader.initialOffset()
    for appeared in ("orders-1", "orders-of-today-0", "notes-0"):
        write_folder(tmp_path / appeared, batches=[(0, 0), (3, 0)], epochs=[(0, 0)])
    end = reader.latestOffset(start, ReadAllAvailable())
    rows = [row for task in reader.partitions(start, end) for batch in reader.read(task) for row in batch.to_pylist()]
    assert sorted((row["topic"], row["partition"], row["offset"]) for row in rows) == [
        *(("orders", 1, offset) for offset in range(6)),
        *(("orders-of-today", 0, offset) for offset in range(6)),
    ]


def test_topics_that_are_not_in_the_directory_are_named():
    with pytest.raises(UnknownTopicOrPartition, match="orders, segments-1"):
        FolderLookup.open(str(GOLDEN)).bounds(Subscribe(("orders", "segments-1", "compacted")))


def test_internal_topics_are_read_when_they_are_named():
    lookup = FolderLookup.open(str(GOLDEN))
    assert not any(partition.topic.startswith("__") for partition in lookup.bounds(AllTopics()))
    assert lookup.bounds(Subscribe(("__consumer_offsets",))).keys() == {TopicPartition("__consumer_offsets", 0)}
