"""Topics as streams: triggers, limits, restarts, and brokers that do not answer."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from chispa import assert_df_equality
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sparklog.base.errors import DataLost
from sparklog.base.ids import TopicPartition
from sparklog.spark.columns import table_schema
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.stream import TopicStreamReader
from support.patience import PATIENCE_S, wait_until


class Pipeline:
    """A query that copies a topic into Parquet files, from run to run with one checkpoint."""

    def __init__(self, spark, topics, folder, topic, **options):
        self.spark = spark
        self.out, self.checkpoint = str(folder / "out"), str(folder / "checkpoint")
        self.stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
        self.stream = self.stream.option("subscribe", topic).option("startingOffsets", "earliest").options(**options)

    def start(self, **trigger):
        writer = self.stream.load().writeStream.format("parquet").option("checkpointLocation", self.checkpoint)
        return writer.trigger(**trigger).start(self.out)

    def run(self) -> list[int]:
        """Read all records that exist; return the number of rows of each micro-batch."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(PATIENCE_S)
        return [progress.numInputRows for progress in query.recentProgress]

    def offsets(self) -> list[tuple[int, int]]:
        rows = self.spark.read.parquet(self.out).select("partition", "offset").orderBy("partition", "offset").collect()
        return [tuple(row) for row in rows]


@pytest.fixture
def pipeline(spark, topics, tmp_path):
    return lambda topic, **options: Pipeline(spark, topics, tmp_path, topic, **options)


def offsets(**partitions: int) -> list[tuple[int, int]]:
    return [(int(name[1:]), offset) for name, count in partitions.items() for offset in range(count)]


@pytest.mark.parametrize("mode", ["segments", "fetch"])
def test_available_now_reads_what_is_there_and_the_next_run_only_what_came_since(topics, pipeline, mode):
    topic = topics.create(2)
    topics.fill(topic, 50, partition=0, batches=5)
    topics.fill(topic, 20, partition=1)
    copied = pipeline(topic, readMode=mode)
    assert sum(copied.run()) == 70
    topics.fill(topic, 7, partition=1)
    assert sum(copied.run()) == 7
    assert sum(copied.run()) == 0
    assert copied.offsets() == offsets(p0=50, p1=27)


def test_a_stream_has_the_columns_of_a_batch(spark, topics, read, pipeline):
    topic = topics.create()
    topics.fill(topic, 5, key=list("abcde"))
    copied = pipeline(topic, includeHeaders="true")
    copied.run()
    written = spark.read.schema(table_schema(include_headers=True)).parquet(copied.out)
    assert_df_equality(written, read(topic, includeHeaders="true"), ignore_row_order=True)


def test_a_trigger_reads_no_more_than_max_offsets(topics, pipeline):
    topic = topics.create(2)
    topics.fill(topic, 90, partition=0)
    topics.fill(topic, 10, partition=1)
    copied = pipeline(topic, maxOffsetsPerTrigger=30)
    rows = [count for count in copied.run() if count]
    assert sum(rows) == 100
    assert max(rows) <= 30
    assert copied.offsets() == offsets(p0=90, p1=10)


def test_partitions_that_appear_are_read_from_their_beginning(topics, pipeline):
    topic = topics.create(1)
    topics.fill(topic, 3)
    copied = pipeline(topic)
    copied.run()
    topics.admin.create_partitions(topic, 3)
    topics.reconnect()
    topics.fill(topic, 4, partition=2)
    assert sum(copied.run()) == 4
    assert copied.offsets() == [*offsets(p0=3), *offsets(p2=4)]


def test_a_query_that_is_stopped_anywhere_goes_on_with_nothing_lost_or_doubled(topics, pipeline):
    topic = topics.create(2)
    copied = pipeline(topic, maxOffsetsPerTrigger=60)
    stop = threading.Event()
    written = [0, 0]

    def produce():
        while not stop.is_set():
            for partition in (0, 1):
                topics.fill(topic, 25, partition=partition)
                written[partition] += 25
            stop.wait(0.1)

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        for _ in range(3):
            query = copied.start(processingTime="0 seconds")
            wait_until(lambda query=query: len(query.recentProgress) > 1, "two batches have been read", every_s=0.05)
            query.stop()
    finally:
        stop.set()
        producing.join()
    copied.stream.option("maxOffsetsPerTrigger", 1_000_000)  # however much a slow machine has left
    copied.run()
    assert copied.offsets() == offsets(p0=written[0], p1=written[1])


def test_records_that_were_deleted_unread_fail_the_query_or_are_left_out(topics, pipeline):
    topic = topics.create()
    topics.fill(topic, 10, batches=5)
    copied = pipeline(topic)
    copied.run()
    topics.fill(topic, 10, batches=5)
    topics.delete_before(topic, 14)
    with pytest.raises(StreamingQueryException, match="was to be read from offset 10, but begins at 14"):
        copied.run()
    lenient = pipeline(topic, failOnDataLoss="false")
    assert sum(lenient.run()) == 6
    assert [offset for _, offset in lenient.offsets()] == [*range(10), *range(14, 20)]


def stream_reader(topics, topic, **options):
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, **options}
    given = {name: value for name, value in given.items() if value is not None}
    return TopicStreamReader(parse_read_options(given, OptionUse.STREAM), table_schema(include_headers=False))


def test_a_stream_begins_with_what_comes_unless_told_otherwise(topics):
    topic = topics.create()
    topics.fill(topic, 5)
    reader = stream_reader(topics, topic)
    assert reader.initialOffset() == {topic: {"0": 5}}
    assert stream_reader(topics, topic, startingOffsets="earliest").initialOffset() == {topic: {"0": 0}}


def test_a_query_that_stopped_in_its_first_batch_reads_that_batch_again(topics):
    topic = topics.create()
    topics.fill(topic, 5)
    stopped = stream_reader(topics, topic)
    begin = stopped.initialOffset()
    topics.fill(topic, 3)
    end = json.loads(json.dumps(stopped.latestOffset(begin, ReadAllAvailable())))
    topics.fill(topic, 2)
    assert stopped.initialOffset() == begin
    restarted = stream_reader(topics, topic)
    tasks = restarted.partitions(restarted.initialOffset(), end)
    assert [row["offset"] for task in tasks for rows in restarted.read(task) for row in rows.to_pylist()] == [5, 6, 7]
    later = restarted.latestOffset(end, ReadAllAvailable())
    assert later == {topic: {"0": 10}}
    assert restarted.latestOffset(later, ReadAllAvailable()) == later
    assert stream_reader(topics, topic).partitions(end, later)[0].ranges[0].offset_from == 8


def test_a_first_batch_that_failed_is_not_lost_to_latest(spark, topics, tmp_path):
    topic = topics.create()
    topics.fill(topic, 5)
    stream = spark.readStream.format("sparklog").option("bootstrap.servers", topics.bootstrap)
    frame = stream.option("subscribe", topic).option("includeHeaders", "false").load()
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.foreachBatch(fail).start()

    def fails_with_what_is_written() -> bool:
        topics.fill(topic, 1)
        return not query.isActive

    wait_until(fails_with_what_is_written, "the query fails", every_s=0.1)
    assert "no room" in str(query.exception())
    topics.fill(topic, 1)
    kept = json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1])
    begin = kept["@start"][topic]["0"]
    again = writer.format("parquet").trigger(availableNow=True).start(str(tmp_path / "out"))
    assert again.awaitTermination(PATIENCE_S)
    offsets_read = [row.offset for row in spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()]
    end = stream_reader(topics, topic).latestOffset({topic: {"0": 0}}, ReadAllAvailable())[topic]["0"]
    assert offsets_read == list(range(begin, end)) != []


def fail(frame, batch):
    raise OSError("no room")


def test_the_engines_limit_goes_before_the_options(topics):
    topic = topics.create()
    topics.fill(topic, 50)
    reader = stream_reader(topics, topic, maxOffsetsPerTrigger="10")
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    assert reader.latestOffset({topic: {"0": 0}}, ReadMaxRows(10)) == {topic: {"0": 10}}
    assert reader.latestOffset({topic: {"0": 0}}, ReadAllAvailable()) == {topic: {"0": 50}}
    assert reader.reportLatestOffset() == {topic: {"0": 50}}


def test_available_now_leaves_what_comes_while_it_runs_for_the_next_run(topics):
    topic = topics.create()
    topics.fill(topic, 5)
    reader = stream_reader(topics, topic)
    reader.prepareForTriggerAvailableNow()
    topics.fill(topic, 5)
    topics.admin.create_partitions(topic, 2)
    assert reader.latestOffset({topic: {"0": 2}}, ReadAllAvailable()) == {topic: {"0": 5}}


def test_a_topic_that_became_shorter_is_a_loss_once_the_broker_insists(topics):
    topic = topics.create()
    topics.fill(topic, 5)
    naps = []
    reader = stream_reader(topics, topic, **{"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "7"})
    reader._sleep = naps.append
    assert reader.latestOffset({topic: {"0": 9}}, ReadAllAvailable()) == {topic: {"0": 5}}
    assert naps == [0.007, 0.007]
    with pytest.raises(Exception, match="was read up to offset 9, but now ends at 5"):
        reader.partitions({topic: {"0": 9}}, {topic: {"0": 5}})


def test_a_planned_batch_whose_records_are_gone_is_a_loss_too(topics):
    kept, deleted = topics.create(), topics.create()
    for topic in (kept, deleted):
        topics.fill(topic, 10)
    begin, end = {kept: {"0": 5}, deleted: {"0": 5}}, {kept: {"0": 15}, deleted: {"0": 10}}
    topics.admin.delete_topics([deleted])
    both = {"subscribe": None, "subscribePattern": f"{kept}|{deleted}"}
    with pytest.raises(DataLost, match=f"{kept}-0 was to be read up to offset 15, but ends at 10.*{deleted}-0 is gone"):
        stream_reader(topics, kept, **both).partitions(begin, end)
    lenient = stream_reader(topics, kept, **both, failOnDataLoss="false")
    read = [batch for task in lenient.partitions(begin, end) for batch in lenient.read(task)]
    assert sum(batch.num_rows for batch in read) == 5


def test_before_spark_4_2_a_query_with_a_checkpoint_does_not_need_its_starting_offsets(topics):
    topic = topics.create()
    topics.fill(topic, 10)
    topics.admin.delete_records({TopicPartition(topic, 0): 5})
    reader = stream_reader(topics, topic, startingOffsets=json.dumps({topic: {"0": 0}}))
    assert reader.latestOffset() == {topic: {"0": 10}}
    with pytest.raises(DataLost, match="was to be read from offset 0, but begins at 5"):
        reader.initialOffset()


@pytest.fixture
def silent_broker():
    """A port that accepts connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_broker_that_never_answers_fails_the_query_in_time(spark, silent_broker, tmp_path):
    stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", silent_broker)
    stream = stream.option("subscribe", "orders").option("kafkaConsumer.pollTimeoutMs", 1500).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    started = time.monotonic()
    with pytest.raises(StreamingQueryException, match=r"NetworkException|RequestTimedOut"):
        query.awaitTermination(PATIENCE_S)
    assert time.monotonic() - started < PATIENCE_S / 2  # not the two minutes that it has without the option
