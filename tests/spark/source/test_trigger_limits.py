"""Limits of triggers: by offsets, by bytes, and by a minimum to wait for."""

from __future__ import annotations

import itertools
import json
import shutil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMinRows

from sparklog.arrow.filesystems import open_reader
from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.client import Producer
from sparklog.log.segment.ranges import RangePrefix
from sparklog.spark.columns import table_schema
from sparklog.spark.source.backlog import EstimatedBacklog, FilePiece
from sparklog.spark.source.limits import TriggerPace, share_bytes
from sparklog.spark.source.offsets import PartitionRange
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.options import TriggerLimits
from sparklog.spark.source.stream import TopicStreamReader
from support import GOLDEN
from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

ORDERS = TopicPartition("orders", 0)
BROKER = {"kafka.bootstrap.servers": "127.0.0.1:9094", "subscribe": "orders"}


class Batches:
    """Batches of one record each, of these sizes, from an offset on. Implements Backlog."""

    def __init__(self, sizes, offset=0):
        self.sizes, self.offset = sizes, offset
        self.size_bytes = sum(sizes)

    def take(self, size_bytes):
        ends = list(itertools.accumulate(self.sizes))
        count = max(1, sum(end <= size_bytes for end in ends))
        return RangePrefix(self.offset + count, ends[count - 1])


SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=6), st.integers(1, 200))
def test_bytes_are_limited_and_every_partition_has_its_turn(logs, max_bytes):
    partitions = [TopicPartition("orders", number) for number in range(len(logs))]
    pace, limits = TriggerPace(), TriggerLimits(max_bytes=max_bytes)
    at, end = dict.fromkeys(partitions, 0), {each: len(logs[each.partition]) for each in partitions}

    def measure(ranges):
        return {each.partition: Batches(logs[each.partition.partition][each.offset_from :], each.offset_from)
                for each in ranges}  # fmt: skip

    waited = dict.fromkeys(partitions, 0)
    while at != end:
        moved = pace.end(limits, at, end, measure, 0.0)
        sizes = [size for each in partitions for size in logs[each.partition][at[each] : moved[each]]]
        assert sum(sizes) <= max_bytes or len(sizes) == 1
        assert sizes
        for each in partitions:
            waited[each] = 0 if moved[each] > at[each] or at[each] == end[each] else waited[each] + 1
        assert max(waited.values()) < len(partitions)
        at = moved


def test_what_is_left_after_one_batch_of_each_is_shared_out_in_proportion():
    large, small = Batches([10] * 90), Batches([10] * 10)
    moved = share_bytes({ORDERS: large, TopicPartition("orders", 1): small}, 520, {})
    assert [taken.size for taken in moved.values()] == [460, 50]


def test_estimated_bytes_are_those_of_files_spread_over_their_offsets():
    pieces = [FilePiece(0, 100, 1_000), FilePiece(100, 110, 5_000), FilePiece(110, 110, 0)]
    backlog = EstimatedBacklog(pieces, PartitionRange(ORDERS, 50, 110))
    assert backlog.size_bytes == 5_500
    assert backlog.take(100) == RangePrefix(60, 100)
    assert backlog.take(1_500) == RangePrefix(102, 1_500)
    assert backlog.take(1) == RangePrefix(51, 10)
    assert backlog.take(9_999) == RangePrefix(110, 5_500)


@example([(1, 0), (1, 2)], 0, 2, 1)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1_000)), min_size=1, max_size=6),
    st.integers(0, 40), st.integers(1, 60), st.integers(1, 3_000),
)  # fmt: skip
def test_of_an_estimate_something_is_always_taken_and_never_more_than_there_is(segments, low, size, max_bytes):
    edges = list(itertools.accumulate((count for count, _ in segments), initial=0))
    whole = PartitionRange(ORDERS, low, low + size)
    each = list(map(FilePiece, edges, edges[1:], (bytes_ for _, bytes_ in segments)))
    backlog = EstimatedBacklog(each, whole)
    taken = backlog.take(max_bytes)
    assert low < taken.offset_to <= whole.offset_to
    assert taken.size <= backlog.size_bytes
    before_last = EstimatedBacklog(each, PartitionRange(ORDERS, low, taken.offset_to - 1))
    assert taken.size <= max_bytes or before_last.size_bytes == 0


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({}, TriggerLimits()),
        ({"maxBytesPerTrigger": "1000"}, TriggerLimits(max_bytes=1000)),
        ({"maxBytesPerTrigger": "512m"}, TriggerLimits(max_bytes=512 << 20)),
        ({"maxBytesPerTrigger": "1 GB"}, TriggerLimits(max_bytes=1 << 30)),
        ({"minOffsetsPerTrigger": "5"}, TriggerLimits(min_offsets=5, max_delay_ms=900_000)),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "90s"}, TriggerLimits(min_offsets=5, max_delay_ms=90_000)),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "250"}, TriggerLimits(min_offsets=5, max_delay_ms=250)),
    ],
)
def test_limits_are_written_as_spark_writes_them(options, limits):
    assert parse_read_options({**BROKER, **options}, OptionUse.STREAM).trigger_limits == limits


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger = '0': it must be a number of bytes from 1"),
        ({"maxBytesPerTrigger": "1 parsec"}, "it must be a number of bytes from 1, or with a unit: 512m, 1g"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "it must be a time such as 90s, 15m or 1h"),
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay has a meaning only with minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "= 9 is more than maxOffsetsPerTrigger = 5"),
    ],
)
def test_limits_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        parse_read_options({**BROKER, **options}, OptionUse.STREAM)


# On a broker


def stream_reader(topics, topic, monotonic=lambda: 0.0, **options):
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, **options}
    parsed = parse_read_options(given, OptionUse.STREAM)
    return TopicStreamReader(parsed, table_schema(include_headers=False), monotonic=monotonic)


def triggers(reader, start) -> list[dict]:
    """The ends of triggers, until there is nothing left."""
    ends, limit = [], reader.getDefaultReadLimit()
    while (end := reader.latestOffset(start, limit)) != start:
        ends.append(end)
        start = end
    return ends


def sizes_of(folder: str, ends) -> list[int]:
    """Bytes in the log that each trigger reads of one partition."""
    edges = itertools.pairwise([0, *ends])
    return [sum(piece.size for piece in open_reader(folder).ranges(low, high)) for low, high in edges]


def test_a_trigger_reads_whole_batches_of_at_most_so_many_bytes(topics):
    topic = topics.create(internal_segment_bytes=4096)
    topics.fill(topic, 400, batches=80)
    reader = stream_reader(topics, topic, maxBytesPerTrigger="1k")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(1024)
    ends = [end[topic]["0"] for end in triggers(reader, {topic: {"0": 0}})]
    sizes = sizes_of(topics.folder(topic), ends)
    assert ends[-1] == 400
    assert all(end % 5 == 0 for end in ends)  # the batches have five records
    assert 900 < min(sizes[:-1]) <= max(sizes) <= 1024
    assert reader.latestOffset({topic: {"0": 0}}, ReadAllAvailable()) == {topic: {"0": 400}}


def test_through_a_broker_the_size_is_an_estimate(topics):
    topic = topics.create(internal_segment_bytes=4096)
    topics.fill(topic, 400, batches=80)
    reader = stream_reader(topics, topic, maxBytesPerTrigger="1k", readMode="fetch")
    ends = [end[topic]["0"] for end in triggers(reader, {topic: {"0": 0}})]
    assert ends[-1] == 400
    sizes = sizes_of(topics.folder(topic), ends)
    assert 700 < sum(sizes) / len(sizes) < 1500


@pytest.mark.parametrize("mode", ["segments", "fetch"])
def test_a_record_larger_than_the_limit_is_read_alone(topics, mode):
    topic = topics.create(2, max_message_bytes=24 << 20)
    with Producer(bootstrap_servers=topics.bootstrap, max_request_size=24 << 20) as producer:
        for partition in (0, 0, 1, 1):
            producer.send(topic, bytes(20 << 20), partition=partition).result(PATIENCE_S)
    reader = stream_reader(topics, topic, maxBytesPerTrigger="1m", readMode=mode)
    ends = triggers(reader, {topic: {"0": 0, "1": 0}})
    assert [end[topic] for end in ends] == [{"0": 1, "1": 0}, {"0": 1, "1": 1}, {"0": 2, "1": 1}, {"0": 2, "1": 2}]
    [task] = reader.partitions(ends[0], ends[1])
    assert [len(row["value"]) for rows in reader.read(task) for row in rows.to_pylist()] == [20 << 20]


def test_offsets_that_compaction_left_out_stop_no_trigger(tmp_path):
    shutil.copytree(GOLDEN / "compacted-0", tmp_path / "compacted-0")
    options = {"path": str(tmp_path / "compacted-0"), "maxBytesPerTrigger": "500", "startingOffsets": "earliest"}
    reader = TopicStreamReader(parse_read_options(options, OptionUse.STREAM), table_schema(include_headers=False))
    start = reader.initialOffset()
    found, begin = [], start
    for end in triggers(reader, start):
        for task in reader.partitions(begin, end):
            found += [row["offset"] for rows in reader.read(task) for row in rows.to_pylist()]
        begin = end
    lines = (GOLDEN / "compacted-0" / "expected.jsonl").read_text().splitlines()
    assert found == [json.loads(line)["offset"] for line in lines]
    assert len(found) < begin["compacted"]["0"]


def test_topics_and_partitions_that_appear_take_their_share(topics):
    first = topics.create()
    topics.fill(first, 200, batches=40)
    pattern = f"{first}(-more)?"
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribePattern": pattern, "maxBytesPerTrigger": "1k"}
    reader = TopicStreamReader(parse_read_options(given, OptionUse.STREAM), table_schema(include_headers=False))
    begin = reader.latestOffset({first: {"0": 0}}, reader.getDefaultReadLimit())
    topics.admin.create_partitions(first, 2)
    topics.admin.create_topic(f"{first}-more", partitions=1)
    topics.reconnect()
    topics.fill(first, 5, partition=1)
    topics.fill(f"{first}-more", 5)
    then = reader.latestOffset(begin, reader.getDefaultReadLimit())
    assert then[first]["1"] == then[f"{first}-more"]["0"] == 5
    assert begin[first]["0"] < then[first]["0"] < 200
    assert triggers(reader, then)[-1] == {first: {"0": 200, "1": 5}, f"{first}-more": {"0": 5}}


def test_bytes_and_offsets_limit_together(topics):
    topic = topics.create()
    topics.fill(topic, 400, batches=80)
    by_offsets = stream_reader(topics, topic, maxBytesPerTrigger="1k", maxOffsetsPerTrigger="7")
    assert by_offsets.latestOffset({topic: {"0": 0}}, by_offsets.getDefaultReadLimit()) == {topic: {"0": 7}}
    by_bytes = stream_reader(topics, topic, maxBytesPerTrigger="1", maxOffsetsPerTrigger="7")
    assert by_bytes.latestOffset({topic: {"0": 0}}, by_bytes.getDefaultReadLimit()) == {topic: {"0": 5}}


def test_records_that_retention_removes_while_a_trigger_is_planned_are_no_error(topics):
    topic = topics.create(internal_segment_bytes=2048)
    topics.fill(topic, 400, batches=40)
    topics.delete_before(topic, 300)
    reader = stream_reader(topics, topic, maxBytesPerTrigger="600", failOnDataLoss="false")
    end = reader.latestOffset({topic: {"0": 10}}, reader.getDefaultReadLimit())
    assert 300 < end[topic]["0"] < 400


def test_a_trigger_waits_for_enough_records_but_not_for_ever(topics):
    topic, now = topics.create(), [1_000.0]
    options = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"}
    reader = stream_reader(topics, topic, lambda: now[0], **options)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)

    def read(start: int) -> int:
        return reader.latestOffset({topic: {"0": start}}, limit)[topic]["0"]

    topics.fill(topic, 3)
    assert read(0) == 3  # the first trigger of a run does not wait
    topics.fill(topic, 4)
    assert read(3) == 3
    topics.fill(topic, 6)
    assert read(3) == 13
    topics.fill(topic, 2)
    now[0] += 59
    assert read(13) == 13
    now[0] += 1
    assert read(13) == 15
    topics.fill(topic, 1)
    assert read(15) == 15
    restarted = stream_reader(topics, topic, lambda: now[0], **options)
    assert restarted.latestOffset({topic: {"0": 15}}, limit) == {topic: {"0": 16}}


def test_time_without_records_is_no_delay(topics):
    topic, now = topics.create(), [0.0]
    topics.fill(topic, 3)
    reader = stream_reader(topics, topic, lambda: now[0], minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({topic: {"0": 0}}, limit) == {topic: {"0": 3}}
    now[0] = 100.0
    assert reader.latestOffset({topic: {"0": 3}}, limit) == {topic: {"0": 3}}
    topics.fill(topic, 1)
    assert reader.latestOffset({topic: {"0": 3}}, limit) == {topic: {"0": 4}}


def test_enough_records_are_limited_too(topics):
    topic = topics.create()
    topics.fill(topic, 30)
    reader = stream_reader(topics, topic, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="12")
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({topic: {"0": 0}}, limit) == {topic: {"0": 12}}
    assert reader.latestOffset({topic: {"0": 12}}, limit) == {topic: {"0": 24}}
    assert reader.latestOffset({topic: {"0": 24}}, limit) == {topic: {"0": 24}}
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({topic: {"0": 24}}, limit) == {topic: {"0": 30}}


# In Spark


@pytest.mark.parametrize("mode", ["segments", "fetch"])
def test_available_now_reads_all_in_batches_of_so_many_bytes(spark, topics, tmp_path, mode):
    topic = topics.create(2)
    topics.fill(topic, 300, partition=0, batches=60)
    topics.fill(topic, 30, partition=1, batches=6)
    rows = []
    query = copied(spark, topics, tmp_path, rows, subscribe=topic, maxBytesPerTrigger="2k", readMode=mode)
    query = query.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert len([batch for batch in rows if batch]) > 3
    assert sorted(itertools.chain(*rows)) == [*((0, i) for i in range(300)), *((1, i) for i in range(30))]


def test_a_query_waits_until_there_are_enough_records(spark, topics, tmp_path):
    topic = topics.create()
    topics.fill(topic, 2)
    rows = []
    options = {"subscribe": topic, "minOffsetsPerTrigger": "10"}
    query = copied(spark, topics, tmp_path, rows, **options).trigger(processingTime="0 seconds").start()
    try:
        wait_until(lambda: rows == [[(0, 0), (0, 1)]], "the first trigger reads what is there", tell=lambda: rows)
        for _ in range(5):
            topics.fill(topic, 2)
        wait_until(lambda: len(rows) > 1, "ten more are read", tell=lambda: rows)
        assert rows[1] == [(0, offset) for offset in range(2, 12)]
    finally:
        query.stop()


def copied(spark, topics, folder, rows, **options):
    """A query that adds the partition and offset of its records to `rows`, batch by batch."""
    stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
    frame = stream.option("startingOffsets", "earliest").options(**options).load().select("partition", "offset")

    def add(batch, _):
        rows.append(sorted(map(tuple, batch.collect())))

    return frame.writeStream.foreachBatch(add).option("checkpointLocation", str(folder / "checkpoint"))
