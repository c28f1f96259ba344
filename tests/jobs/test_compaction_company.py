"""Compaction beside users of the log: the coordinator, consumers that are reading, a streaming query."""

from __future__ import annotations

import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer
from sparklog.jobs.job import run_job
from sparklog.jobs.options import parse_options
from sparklog.jobs.session import WarmSession
from sparklog.spark.compaction import compaction
from sparklog.spark.compaction.task import compact_in_task
from sparklog.testing import start_broker
from support.jobs.cheap_jobs import CHEAP
from support.jobs.compactions import COMPACTED, close_segments, consume, fill_alike, newest, send, settings_of, works_of
from support.patience import PATIENCE_S
from support.spark_topics import Topics

pytestmark = pytest.mark.slow

OFFSETS = "__consumer_offsets"
GROUPS = [f"group-{number}" for number in range(5)]
PLACE = TopicPartition("any", 0)


def committed(admin):
    return {group: admin.list_group_offsets(group)[PLACE].offset for group in GROUPS}


def test_the_offsets_topic_is_compacted_under_its_coordinator_and_has_all_offsets_after_a_restart(tmp_path):
    with start_broker(tmp_path, offsets_topic_num_partitions=1, auto_create_topics_enable=False) as broker:
        topics = Topics(broker)
        topics.admin.create_topic("any")
        for number in range(100):
            for group in GROUPS:
                topics.admin.alter_group_offsets(group, {PLACE: number})
        topics.admin.alter_configs(OFFSETS, set={"segment.ms": "1"})
        topics.admin.alter_group_offsets(GROUPS[0], {PLACE: 500})
        topics.admin.alter_configs(OFFSETS, unset=["segment.ms"])
        stop, commits = threading.Event(), []

        def commit() -> None:
            with Admin(bootstrap_servers=broker.bootstrap) as admin:
                while not stop.is_set():
                    admin.alter_group_offsets(GROUPS[1], {PLACE: 1000 + len(commits)})
                    commits.append(1000 + len(commits))

        busy = threading.Thread(target=commit)
        busy.start()
        try:
            ((_, outcome),) = compact_in_task(
                works_of(broker.bootstrap, OFFSETS).values(), settings_of(broker.bootstrap)
            )
        finally:
            stop.set()
            busy.join()
        assert outcome.outcome == "compacted"
        assert outcome.keys == outcome.records_after == len(GROUPS)
        assert outcome.records_before > 100
        before = committed(topics.admin)
        topics.close()
    assert before == dict.fromkeys(GROUPS, 99) | {GROUPS[0]: 500, GROUPS[1]: commits[-1]}
    with start_broker(tmp_path) as broker, Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert committed(admin) == before


def test_a_consumer_that_is_half_way_reads_on_and_builds_the_same_table(topics):
    topic = topics.create(**COMPACTED)
    fill_alike(topics.producer, topic, (0,), random.Random(5))
    close_segments(topics, topic)
    whole = newest(consume(topics.bootstrap, topic))
    place = TopicPartition(topic, 0)
    table, offsets, outcomes = {}, [], []
    few = {"max_partition_fetch_bytes": 3_000, "prefetch_max_bytes": 3_000}
    with Consumer(bootstrap_servers=topics.bootstrap, **few) as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            if not outcomes and len(offsets) > 400:
                outcomes += compact_in_task(works_of(topics.bootstrap, topic).values(), settings_of(topics.bootstrap))
            for row in consumer.poll_arrow(10_000).to_pylist():
                offsets.append(row["offset"])
                table[row["key"]] = row["value"]
    assert [outcome.outcome for _, outcome in outcomes] == ["compacted"]
    assert all(earlier < later for earlier, later in pairwise(offsets))
    assert {key: value for key, value in table.items() if key is not None and value is not None} == whole


def test_a_streaming_query_that_is_half_way_loses_nothing(spark, topics, tmp_path):
    topic = topics.create(**COMPACTED)
    fill_alike(topics.producer, topic, (0,), random.Random(6))
    close_segments(topics, topic)
    whole = newest(consume(topics.bootstrap, topic))
    seen, outcomes = [], []

    def keep(rows, number):
        seen.append(rows.select("offset", "key", "value").toArrow())
        if number == 0:
            outcomes.extend(compact_in_task(works_of(topics.bootstrap, topic).values(), settings_of(topics.bootstrap)))

    stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 500)
    query = stream.load().writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(keep)
    assert query.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
    assert [outcome.outcome for _, outcome in outcomes] == ["compacted"]
    assert len(seen) > 2
    assert newest(pa.concat_tables(seen).sort_by("offset")) == whole


def test_cancelling_a_run_ends_its_tasks(spark, topics, make_context):
    topic = topics.create(**COMPACTED)
    send(topics, topic, [("a", "1"), ("a", "2")])
    close_segments(topics, topic)
    works = list(works_of(topics.bootstrap, topic).values())
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as threads:
        bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"
        client = {"bootstrap_servers": bootstrap, "default_api_timeout_ms": 60_000}
        settings = replace(settings_of(bootstrap), client=client)
        warm, context = WarmSession(lambda: spark), make_context()
        warm.get()

        def cancel() -> None:
            silent.settimeout(PATIENCE_S)
            connection, _ = silent.accept()  # a task waits for its answer
            with connection:
                warm.cancel(context.run_id)

        job = replace(CHEAP, apply=lambda *_: compaction.compact(spark, works, settings))
        cancelling = threads.submit(cancel)
        with pytest.raises(Py4JJavaError, match="cancelled"):
            run_job(job, context, parse_options(CHEAP, {}))
        cancelling.result()
