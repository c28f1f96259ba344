"""Reads through the broker, without visible files or by option."""

from __future__ import annotations

import contextlib
import json
import time

import pyarrow as pa
import pytest

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import DataLost, LogTruncation, NetworkException, RequestTimedOut, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer
from sparklog.spark.broker import BrokerLookup
from sparklog.spark.source.options import Selection
from sparklog.spark.source.scan import FetchTask
from sparklog.testing import start_broker
from support.logs.folders import write_folder
from support.names import unique
from support.patience import PATIENCE_S
from support.spark_topics import Topics, make_reader, rows_of

pytestmark = pytest.mark.slow


def fetching(topics, topic, **options):
    given = {"bootstrap.servers": topics.bootstrap, "subscribe": topic, "readMode": "fetch", **options}
    return make_reader(given)


def test_a_range_is_fetched_to_its_end_and_no_further(topics):
    topic = topics.create()
    topics.fill(topic, 500, batches=7)
    bounds = {"startingOffsets": json.dumps({topic: {"0": 33}}), "endingOffsets": json.dumps({topic: {"0": 402}})}
    reader = fetching(topics, topic, minPartitions="4", **bounds)
    tasks = reader.partitions()
    assert [type(task) for task in tasks] == [FetchTask] * 4
    assert [row["offset"] for row in rows_of(reader, tasks)] == list(range(33, 402))


def test_times_beyond_microseconds_are_the_same_from_broker_and_files(topics):
    topic, farthest = topics.create(message_timestamp_after_max_ms=MAX_LONG), MAX_LONG // 1000
    times = [-farthest, 0, farthest, farthest + 1, MAX_LONG - 5]
    topics.fill(topic, len(times), timestamp=pa.array(times, pa.timestamp("ms", "UTC")))

    def read(mode: str) -> list[int]:
        reader = make_reader({"bootstrap.servers": topics.bootstrap, "subscribe": topic, "readMode": mode})
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        return [each for batch in batches for each in batch.column("timestamp").cast("int64").to_pylist()]

    assert read("fetch") == read("segments") == [min(each, farthest) * 1000 for each in times]


def test_batches_larger_than_a_fetch_come_too(topics):
    topic = topics.create(max_message_bytes=32 << 20)
    large = pa.table({"value": [bytes(300_000)] * 3})
    topics.producer.send_table(topic, large, partition=0).result(30)
    assert [len(row["value"]) for row in rows_of(fetching(topics, topic))] == [300_000] * 3


def test_offsets_that_are_gone_fail_the_task_or_are_left_out(topics):
    topic = topics.create()
    topics.fill(topic, 100, batches=10)
    strict, lenient = fetching(topics, topic), fetching(topics, topic, failOnDataLoss="false")
    tasks = strict.partitions()
    topics.delete_before(topic, 40)
    with pytest.raises(DataLost, match=f"{topic}-0: offsets 0 to 39 are gone"):
        rows_of(strict, tasks)
    assert [row["offset"] for row in rows_of(lenient, tasks)] == list(range(40, 100))


def test_a_leader_epoch_that_begins_where_nothing_is_left_loses_nothing(tmp_path):
    write_folder(tmp_path / "t-0", batches=[(0, 0), (10, 1), (13, 1)], epochs=[(0, 0), (1, 5)])
    with start_broker(tmp_path) as broker:
        reader = make_reader({"bootstrap.servers": broker.bootstrap, "subscribe": "t", "readMode": "fetch"})
        assert [row["offset"] for row in rows_of(reader)] == [*range(3), *range(10, 16)]


def test_what_an_unclean_election_has_lost_behind_a_reader_skips_nothing_before_it(topics, monkeypatch):
    topic = topics.create()
    topics.fill(topic, 100, batches=10)
    strict, lenient = fetching(topics, topic), fetching(topics, topic, failOnDataLoss="false")
    poll, polls = Consumer.poll_arrow, []

    def told_at_the_second(self, *arguments):
        polls.append(self)
        if len(polls) % 3 == 2:
            raise LogTruncation("records were read, and the leader does not have them")
        return poll(self, 1_000, max_records=40)

    monkeypatch.setattr(Consumer, "poll_arrow", told_at_the_second)
    with pytest.raises(DataLost, match="the leader does not have them"):
        rows_of(strict)
    polls.clear()
    assert [row["offset"] for row in rows_of(lenient)] == list(range(100))


def test_a_partition_that_is_not_there_is_named(topics):
    topic = topics.create(2)
    assigned = {"bootstrap.servers": topics.bootstrap, "assign": json.dumps({topic: [1, 2]})}
    with pytest.raises(UnknownTopicOrPartition, match=f"{topic}-2"):
        make_reader(assigned).partitions()


def test_a_topic_of_a_pattern_that_is_deleted_after_it_was_listed_is_left_out(topics, monkeypatch):
    kept, deleted = unique("listed"), unique("listed")
    for name in (kept, deleted):
        topics.admin.create_topic(name, partitions=1)
    topics.fill(kept, 3)
    there = BrokerLookup.topics

    def delete_after(self: BrokerLookup, selection: Selection) -> list[str]:
        names = there(self, selection)
        if deleted in names:
            with contextlib.suppress(UnknownTopicOrPartition):  # the next list may still have it
                topics.admin.delete_topics([deleted])
        return names

    monkeypatch.setattr(BrokerLookup, "topics", delete_after)
    reader = make_reader({"bootstrap.servers": topics.bootstrap, "subscribePattern": f"{kept}|{deleted}"})
    assert [row["topic"] for row in rows_of(reader)] == [kept] * 3


def test_a_broker_that_goes_away_fails_the_task_in_time():
    with start_broker() as broker:
        topics = Topics(broker)
        topic = topics.create()
        topics.fill(topic, 10)
        reader = fetching(topics, topic, **{"kafkaConsumer.pollTimeoutMs": "700"})
        tasks = reader.partitions()
        topics.close()
    started = time.monotonic()
    with pytest.raises((RequestTimedOut, NetworkException)):
        rows_of(reader, tasks)
    assert time.monotonic() - started < PATIENCE_S / 2  # not the two minutes that it has without the option


def test_the_first_record_of_a_time_is_found(topics):
    topic = topics.create()
    topics.fill(topic, 3, timestamp=pa.array([1000, 3000, 2000], pa.timestamp("ms", "UTC")))
    found = topics.admin.list_offsets({TopicPartition(topic, 0): 1500})
    assert found[TopicPartition(topic, 0)].offset == 1
    assert len(rows_of(fetching(topics, topic, startingTimestamp="1500"))) == 2
