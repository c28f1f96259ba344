"""Streams that commit their progress to a consumer group, and reads that begin at a group's offsets."""

from __future__ import annotations

import json
import logging

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer
from sparklog.server.broker_collector import BrokerCollector
from sparklog.spark.columns import table_schema
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.stream import TopicStreamReader
from support.metrics import Scrape
from support.names import unique
from support.patience import PATIENCE_S


@pytest.fixture
def filled(topics):
    """A topic of two partitions with 10 and 4 records."""
    topic = topics.create(2)
    topics.fill(topic, 10)
    topics.fill(topic, 4, partition=1)
    return topic


def committed(topics, group):
    return {item.partition: found.offset for item, found in topics.admin.list_group_offsets(group).items()}


def stream_reader(topics, topic, **options):
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, "startingOffsets": "earliest", **options}
    return TopicStreamReader(parse_read_options(given, OptionUse.STREAM), table_schema(include_headers=False))


def test_the_lag_of_a_stream_shows_in_its_group(spark, topics, filled, tmp_path):
    group = unique("to-parquet")
    stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
    stream = stream.option("subscribe", filled).option("group.id", group).option("startingOffsets", "earliest")

    def run():
        writer = stream.load().writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(PATIENCE_S)

    run()
    assert committed(topics, group) == {0: 10, 1: 4}
    topics.fill(filled, 3, partition=1)
    offsets = topics.admin.list_group_offsets(group)
    assert {item.partition: found.lag for item, found in offsets.items()} == {0: 0, 1: 3}
    metrics = Scrape.from_collector(BrokerCollector(topics.broker.node.broker))
    assert metrics.by_partition("sparklog_consumergroup_lag", consumergroup=group, topic=filled) == {0: 0, 1: 3}
    run()
    assert committed(topics, group) == {0: 10, 1: 7}


def test_what_a_batch_has_done_is_committed_and_nothing_before(topics, filled):
    group = unique("stepwise")
    reader = stream_reader(topics, filled, **{"group.id": group})
    begin = reader.initialOffset()
    middle = reader.latestOffset(begin, ReadMaxRows(7))
    assert committed(topics, group) == {}
    middle = json.loads(json.dumps(middle))
    end = reader.latestOffset(middle, ReadAllAvailable())
    assert committed(topics, group) == {0: 5, 1: 2}
    reader.commit(end)
    assert committed(topics, group) == {0: 10, 1: 4}
    reader.stop()


def test_reads_begin_where_the_group_stands(topics, filled, read):
    topics.admin.alter_group_offsets("reader", {TopicPartition(filled, 0): 8})
    reader = stream_reader(topics, filled, **{"kafka.group.id": "reader", "startingOffsets": "group"})
    assert reader.initialOffset() == {filled: {"0": 8, "1": 0}}
    reader.stop()
    rows = read(filled, **{"group.id": "reader", "startingOffsets": "group"}).select("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [(0, 8), (0, 9), (1, 0), (1, 1), (1, 2), (1, 3)]


def test_a_consumer_takes_over_from_a_stream(topics, filled):
    reader = stream_reader(topics, filled, **{"group.id": "handed-over"})
    reader.commit({filled: {"0": 7, "1": 4}})
    reader.stop()
    read = []
    with Consumer(bootstrap_servers=topics.bootstrap, group_id="handed-over") as consumer:
        consumer.subscribe([filled])
        for _ in range(200):
            read += consumer.poll(100)
            if len(read) == 3:
                break
    assert sorted((record.partition, record.offset) for record in read) == [(0, 7), (0, 8), (0, 9)]


@pytest.mark.slow
def test_a_group_with_members_does_not_stop_the_stream(topics, filled, caplog):
    reader = stream_reader(topics, filled, **{"group.id": "occupied"})
    with Consumer(bootstrap_servers=topics.bootstrap, group_id="occupied", enable_auto_commit=False) as consumer:
        consumer.subscribe([filled])
        for _ in range(200):
            consumer.poll(100)
            if consumer.assignment():
                break
        with caplog.at_level(logging.WARNING):
            reader.commit({filled: {"0": 7}})
        assert "progress was not committed to group occupied" in caplog.text
    reader.commit({filled: {"0": 7}})
    assert committed(topics, "occupied") == {0: 7}
    reader.stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "group"}, "needs group.id"),
        ({"group.id": " "}, "it must be a group's id"),
        ({"group.id": "a", "kafka.group.id": "a"}, "exactly one of group.id, kafka.group.id"),
    ],
)
def test_options_of_groups_are_checked(topics, options, message):
    with pytest.raises(Exception, match=message):
        stream_reader(topics, "t", **options)
