"""Pruning by filters: partitions, segments and batches that a scan does not open."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

from sparklog.spark.explain import explain
from sparklog.testing import start_broker
from support.spark_topics import Topics, make_reader, rows_of

pytestmark = pytest.mark.slow

T0 = datetime(2026, 1, 1, tzinfo=UTC)
HOURS, PER_HOUR = 48, 60


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The path of a log directory: one topic, two partitions, a batch an hour for two days, in many segments."""
    with start_broker(tmp_path_factory.mktemp("log")) as broker:
        topics = Topics(broker)
        topics.create(2, internal_segment_bytes=4096)
        [topic] = [each.name for each in topics.admin.list_topics()]
        minutes = pa.array([T0 + timedelta(minutes=i) for i in range(HOURS * PER_HOUR)], pa.timestamp("ms", "UTC"))
        for partition in (0, 1):
            topics.fill(topic, HOURS * PER_HOUR, partition=partition, batches=HOURS, timestamp=minutes)
        topics.close()
    return str(broker.data_dir)


def test_everything_is_read_without_filters(log):
    scan = explain({"path": log})
    assert (scan.segments, scan.size_bytes) == (scan.segments_total, scan.size_bytes_total)
    assert scan.segments > 20
    assert len(rows_of(make_reader({"path": log}))) == 2 * HOURS * PER_HOUR


def test_a_partition_that_is_not_wanted_is_not_opened(log):
    scan = explain({"path": log}, [EqualTo(("partition",), 1)])
    assert (scan.segments, scan.tasks) == (scan.segments_total / 2, 1)


def test_offsets_open_only_the_segments_that_hold_them(log):
    filters = [GreaterThanOrEqual(("offset",), 100), LessThan(("offset",), 130)]
    assert explain({"path": log}, filters).segments <= 4
    assert [row["offset"] for row in rows_of(make_reader({"path": log}, filters=filters))] == [*range(100, 130)] * 2


def test_old_segments_are_left_out_and_of_those_that_are_read_old_batches_are_skipped(log):
    filters = [GreaterThanOrEqual(("timestamp",), T0 + timedelta(hours=36, minutes=30))]
    scan = explain({"path": log}, filters)
    assert scan.segments < scan.segments_total / 3
    assert scan.size_bytes < scan.size_bytes_total / 3
    rows = rows_of(make_reader({"path": log}, filters=filters))
    assert min(row["timestamp"] for row in rows) == T0 + timedelta(hours=36)
    assert {row["offset"] for row in rows} >= set(range(36 * 60 + 30, HOURS * PER_HOUR))


def test_filters_that_exclude_each_other_open_nothing(log):
    filters = [LessThan(("offset",), 5), GreaterThanOrEqual(("offset",), 9)]
    assert make_reader({"path": log}, filters=filters).partitions() == []
    assert str(explain({"path": log}, filters)).startswith("0 of ")
