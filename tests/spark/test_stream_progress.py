"""The lag of a query."""

from __future__ import annotations

import threading

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress

from sparklog.base.ids import TopicPartition
from sparklog.spark import progress
from support.patience import PATIENCE_S


def progress_of(*sources):
    """Return a progress report as Spark Connect has it: offsets are objects."""
    filled = [
        {"description": "", "startOffset": None, "numInputRows": 0, "inputRowsPerSecond": 0.0,
         "processedRowsPerSecond": 0.0, "endOffset": end, "latestOffset": latest}
        for end, latest in sources
    ]  # fmt: skip
    return StreamingQueryProgress.fromJson(
        {
            "id": "00000000-0000-0000-0000-000000000000", "runId": "00000000-0000-0000-0000-000000000000", "name": None,
            "timestamp": "", "batchId": 0, "batchDuration": 0, "durationMs": {}, "stateOperators": [],
            "sources": filled, "sink": {"description": "", "numOutputRows": 0},
        }
    )  # fmt: skip


def test_lag_has_the_names_and_numbers_of_the_kafka_source():
    end = {"orders": {"0": 60, "1": 100}, "@start": {"orders": {"0": 0, "1": 0}}}
    [lag] = progress(progress_of((end, {"orders": {"0": 100, "1": 100}, "more": {"0": 5}})))
    assert lag.offsets_behind_latest == {("orders", 0): 40, ("orders", 1): 0, ("more", 0): 5}
    assert lag.total == 45
    assert lag.metrics == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "40",
        "avgOffsetsBehindLatest": "15.0",
    }


def test_a_log_that_became_shorter_is_no_negative_lag():
    [lag] = progress(progress_of(({"orders": {"0": 9}}, {"orders": {"0": 5}})))
    assert lag.total == 0


@pytest.mark.parametrize("offset", [7, None, "null", {"sourceVersion": 1, "reservoirVersion": 3}, [1]])
def test_other_sources_are_left_out(offset):
    found = progress(progress_of((offset, offset), ({"orders": {"0": 1}}, {"orders": {"0": 3}})))
    assert [(lag.source, lag.total) for lag in found] == [(1, 2)]


def test_a_query_tells_its_lag_batch_by_batch_also_to_a_listener(spark, topics, tmp_path):
    topic = topics.create(2)
    topics.fill(topic, 90, partition=0)
    topics.fill(topic, 10, partition=1)
    told, done = [], threading.Event()

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event):  # noqa: N802
            pass

        def onQueryProgress(self, event):  # noqa: N802
            told.append([lag.total for lag in progress(event.progress)])

        def onQueryIdle(self, event):  # noqa: N802
            pass

        def onQueryTerminated(self, event):  # noqa: N802
            done.set()

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
        frame = stream.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE_S)
        assert done.wait(PATIENCE_S)
    finally:
        spark.streams.removeListener(listener)
    [first] = progress(query.recentProgress[0])
    assert first.offsets_behind_latest == {TopicPartition(topic, 0): 54, TopicPartition(topic, 1): 6}
    assert [lag.total for each in query.recentProgress for lag in progress(each)][:3] == [60, 20, 0]
    assert told[:3] == [[60], [20], [0]]
    [last] = progress(query)
    assert last.metrics["maxOffsetsBehindLatest"] == "0"


def test_a_query_without_progress_has_no_lag_yet():
    class Started:
        lastProgress = None  # noqa: N815

    assert progress(Started()) == []
