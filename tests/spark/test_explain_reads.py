"""`explain` tells which files of each partition a read opens, and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

from sparklog.arrow.filesystems import open_reader
from sparklog.base.ids import TopicPartition
from sparklog.log.reader import LogReader
from sparklog.spark.explain import BY_OFFSETS, BY_PARTITION, BY_RANGE, BY_TIMESTAMPS, explain
from support.spark_topics import make_reader, rows_of

T0 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def topic(topics):
    """Ten batches of twenty records, an hour apart, in several segments of partition 0; partition 1 is empty."""
    name = topics.create(2, internal_segment_bytes=300)
    for hour in range(10):
        times = pa.array([T0 + timedelta(hours=hour)] * 20, pa.timestamp("ms", "UTC"))
        topics.fill(name, 20, timestamp=times)
    topics.await_checkpoint(name, 200)
    return name


def options_of(topics, topic, **options):
    return {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, **options}


def test_each_partition_is_told_with_its_place_and_the_reason(topics, topic):
    scan = explain(options_of(topics, topic))
    full, empty = scan.partitions
    folder = topics.folder(topic)
    segments = open_reader(folder).segments()
    assert (full.partition, full.offset_from, full.offset_to, full.folder) == (TopicPartition(topic, 0), 0, 200, folder)
    assert full.segments == full.segments_total == len(segments) > 3
    assert full.size_bytes == full.size_bytes_total == sum(each.size for each in segments)
    assert empty.tasks == empty.size_bytes == 0
    megabytes = f"{full.size_bytes / 1e6:.1f}"
    assert str(scan).splitlines() == [
        f"{len(segments)} of {len(segments) + 1} segments, {megabytes} of {megabytes} MB, in 1 task",
        f"{topic}-0: offsets 0 to 199, from files in {folder}: "
        "readMode = auto, and the folder of an in-sync replica is visible from here",
        f"  {len(segments)} of {len(segments)} segments, {megabytes} of {megabytes} MB, in 1 task",
        f"{topic}-1: nothing: there are no records: the log begins and ends at 0",
    ]


def test_every_segment_that_stays_closed_has_its_reason(topics, topic):
    ending = json.dumps({topic: {"0": 170, "1": 0}})
    filters = [
        EqualTo(("partition",), 0),
        LessThan(("offset",), 130),
        GreaterThanOrEqual(("timestamp",), T0 + timedelta(hours=5)),
    ]
    options = options_of(topics, topic, endingOffsets=ending)
    scan, other = explain(options, filters).partitions
    segments = open_reader(topics.folder(topic)).segments()
    expected = {
        BY_RANGE: sum(each.base_offset >= 170 for each in segments),
        BY_OFFSETS: sum(130 <= each.base_offset < 170 for each in segments),
        BY_TIMESTAMPS: sum(each.next_offset <= 100 for each in segments),
    }
    assert scan.left_out == expected
    assert all(expected.values())
    assert scan.segments == len(segments) - sum(expected.values())
    assert (scan.offset_from, scan.offset_to) == (0, 130)
    assert other.why == "the filters want other topics or partitions"
    read = make_reader(options, filters=filters)
    opened = {piece.segment_base for task in read.partitions() for piece in task.ranges}
    assert len(opened) == scan.segments


def test_a_partition_that_the_filters_do_not_want_opens_nothing(topics, topic):
    scan, _ = explain(options_of(topics, topic), [EqualTo(("partition",), 1)]).partitions
    assert (scan.tasks, scan.segments, scan.size_bytes) == (0, 0, 0)
    assert scan.left_out == {BY_PARTITION: scan.segments_total}


@pytest.mark.parametrize(
    ("options", "filters", "why"),
    [
        ({}, [LessThan(("offset",), 0)], "the filters leave none of the offsets 0 to 199"),
        ({"endingOffsets": "EMPTY"}, [], "the options leave none of the offsets 0 to 199"),
    ],
)
def test_why_nothing_is_read(topics, topic, options, filters, why):
    given = {name: json.dumps({topic: {"0": 0, "1": 0}}) for name in options}
    scan, _ = explain(options_of(topics, topic, **given), filters).partitions
    assert scan.why == why
    assert str(scan) == f"{topic}-0: nothing: {why}"


def test_what_is_fetched_is_told_with_an_estimate(topics, topic):
    scan, _ = explain(options_of(topics, topic, readMode="fetch"), [LessThan(("offset",), 100)]).partitions
    assert (scan.folder, scan.why, scan.tasks) == (None, "readMode = fetch", 1)
    assert scan.left_out == {BY_OFFSETS: scan.segments_total - scan.segments}
    assert 0.4 < scan.size_bytes / scan.size_bytes_total < 0.6
    assert "offsets 0 to 99, fetched: readMode = fetch\n" in str(scan)
    assert f"{scan.segments} of {scan.segments_total} segments, about " in str(scan)


def test_a_log_directory_that_is_not_seen_is_told(topics, topic, monkeypatch):
    monkeypatch.setattr("sparklog.spark.broker.belongs_to", lambda *_: False)
    scan, _ = explain(options_of(topics, topic)).partitions
    assert scan.why == "readMode = auto, and no log directory of an in-sync replica is visible from here"


def test_a_path_is_told_as_what_it_is(topics, topic):
    [scan] = explain({"path": topics.folder(topic)}).partitions
    assert (scan.folder, scan.why) == (topics.folder(topic), "path names the log directory")
    assert scan.offset_to == len(rows_of(make_reader({"path": topics.folder(topic)}))) == 200


def test_losses_are_told_and_nothing_is_read(topics, monkeypatch):
    topic = topics.create()
    topics.fill(topic, 10, batches=5)
    topics.delete_before(topic, 4)
    monkeypatch.setattr(LogReader, "read", lambda *_: pytest.fail("explain reads records"))
    scan = explain(options_of(topics, topic, startingOffsets=json.dumps({topic: {"0": 1}})))
    assert scan.lost == (f"{topic}-0 was to be read from offset 1, but begins at 4",)
    assert str(scan).endswith(f"lost: {scan.lost[0]}")
    assert scan.partitions[0].offset_from == 4
