"""A partition compacted in a task, by shuffle, and on a broker whose disk is elsewhere: the same log each time."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chispa import assert_df_equality
from compacting import COMPACTED, close_segments, consume, send

from sparklog.client import Maintenance
from sparklog.log.compaction import CompactionPlan, plan_compaction
from sparklog.spark import compaction_rewrite, segment_files
from sparklog.spark.compaction import compact
from sparklog.spark.compaction_shuffle import compact_by_shuffle
from sparklog.spark.compaction_task import compact_in_task
from sparklog.spark.compaction_work import Settings, Work

SEED = bytes(range(16))
ROOM_FOR_ALL, ROOM_FOR_FEW = 1 << 20, 1 << 12
KEYS = 300


def fill_alike(topics, topic, partitions, rng):
    """The same 1500 records in each partition, in batches of any size: keys, tombstones, and records without a key."""
    left = 1500
    while left > 0:
        count = rng.randint(1, 60)
        rows = pa.table(
            {
                "key": pa.array([f"k{rng.randrange(KEYS)}" if rng.random() < 0.9 else None for _ in range(count)]),
                "value": pa.array(
                    [f"{rng.random()}" if rng.random() < 0.8 else None for _ in range(count)], pa.string()
                ),
                "timestamp": pa.array([rng.randrange(10**12) for _ in range(count)], pa.timestamp("ms", "UTC")),
            }
        )
        for partition in partitions:
            topics.producer.send_table(topic, rows, partition=partition).result(30)
        left -= count


def works_of(topics, topic):
    """Each partition as it is now, to be compacted whatever its dirty ratio."""
    with Maintenance(bootstrap_servers=topics.bootstrap) as maintenance:
        logs = [log for place, log in maintenance.describe_logs().items() if place.topic == topic]
    works = {}
    for log in logs:
        plan = plan_compaction(log, now_ms=NOW_MS, force=True)
        assert isinstance(plan, CompactionPlan)
        works[log.partition.partition] = Work(log=log, plan=plan, reason=plan.reason)
    return works


NOW_MS = int(time.time() * 1000)


def settings_of(topics, memory_bytes=ROOM_FOR_ALL):
    client = {"bootstrap_servers": topics.bootstrap}
    return Settings(client=client, holder="test", now_ms=NOW_MS, memory_bytes=memory_bytes, seed=SEED, chunk_bytes=5000)


def expected_offsets(records, strategy, cleaned_offset):
    """What has to stay: of each key the newest, unless it is a tombstone that an earlier pass has seen."""
    newest = {}
    for row in records.to_pylist():
        age = (row["timestamp"] if strategy == "timestamp" else 0, row["offset"])
        if row["key"] is not None and age >= newest.get(row["key"], (age,))[0]:
            newest[row["key"]] = (age, row)
    rows = [row for _, row in newest.values()]
    return sorted(row["offset"] for row in rows if row["value"] is not None or row["offset"] >= cleaned_offset)


@pytest.mark.parametrize("strategy", ["offset", "timestamp"])
def test_a_task_and_a_shuffle_keep_the_same_records(spark, topics, read, strategy):
    rng = random.Random(strategy)
    topic = topics.create(partitions=2, **COMPACTED, compaction_strategy=strategy)
    cleaned_offset = 0
    for _ in range(2):  # the second time there are segments that have been compacted before
        fill_alike(topics, topic, (0, 1), rng)
        close_segments(topics, topic, (0, 1))
        expected = expected_offsets(consume(topics.bootstrap, topic), strategy, cleaned_offset)
        works = works_of(topics, topic)
        (in_task,) = compact(spark, [works[0]], settings_of(topics))
        (by_shuffle,) = compact(spark, [works[1]], settings_of(topics, ROOM_FOR_FEW))
        assert (in_task.outcome, in_task.how, by_shuffle.outcome, by_shuffle.how) == (
            "compacted", "task", "compacted", "shuffle",
        )  # fmt: skip
        kept = consume(topics.bootstrap, topic)
        assert kept.filter(pc.is_valid(kept["key"]))["offset"].to_pylist() == expected
        assert in_task.cleaned_offset == by_shuffle.cleaned_offset
        cleaned_offset = in_task.cleaned_offset
    one, other = (read(topic).filter(f"partition = {number} and offset < {cleaned_offset}") for number in (0, 1))
    assert_df_equality(one.drop("partition"), other.drop("partition"), ignore_row_order=True)


def test_what_a_broker_elsewhere_has_is_read_and_replaced_through_it(topics, monkeypatch):
    topic = topics.create(partitions=2, **COMPACTED)
    fill_alike(topics, topic, (0, 1), random.Random(1))
    close_segments(topics, topic, (0, 1))
    works = works_of(topics, topic)
    ((_, here),) = compact_in_task([works[0]], settings_of(topics))
    for module in (segment_files, compaction_rewrite):
        monkeypatch.setattr(module, "is_visible", lambda _: False)
    ((_, elsewhere),) = compact_in_task([works[1]], settings_of(topics))
    assert here.outcome == elsewhere.outcome == "compacted"
    assert here.bytes_after == elsewhere.bytes_after
    first = [min(Path(topics.folder(topic, number)).glob("*.log")).read_bytes() for number in (0, 1)]
    assert first[0] == first[1]


def test_a_log_that_has_changed_since_its_plan_is_left_alone(topics):
    topic = topics.create(**COMPACTED)
    fill_alike(topics, topic, (0,), random.Random(2))
    close_segments(topics, topic)
    work = works_of(topics, topic)[0]
    ((_, first),) = compact_in_task([work], settings_of(topics))
    files = sorted(Path(topics.folder(topic)).iterdir())
    ((_, second),) = compact_in_task([work], settings_of(topics))
    assert (first.outcome, second.outcome) == ("compacted", "stale")
    assert sorted(Path(topics.folder(topic)).iterdir()) == files


@pytest.mark.parametrize("rows", [[], [(None, "no"), (None, "keys")]])
def test_a_partition_without_any_key_goes_by_shuffle_as_by_task(spark, topics, rows):
    topic = topics.create(partitions=2, **COMPACTED)
    for partition in (0, 1):
        for row in rows:
            send(topics, topic, [row], partition)
    close_segments(topics, topic, (0, 1))
    works = works_of(topics, topic)
    ((_, in_task),) = compact_in_task([works[0]], settings_of(topics))
    (by_shuffle,) = compact_by_shuffle(spark, [works[1]], settings_of(topics))
    assert (
        (in_task.outcome, in_task.records_after) == (by_shuffle.outcome, by_shuffle.records_after) == ("compacted", 0)
    )
    assert in_task.bytes_after == by_shuffle.bytes_after > 0


def test_a_damaged_segment_ends_a_shuffle_for_its_partition_alone(spark, topics):
    topic = topics.create(partitions=2, **COMPACTED)
    fill_alike(topics, topic, (0, 1), random.Random(3))
    close_segments(topics, topic, (0, 1))
    works = works_of(topics, topic)
    with min(Path(topics.folder(topic, 1)).glob("*.log")).open("r+b") as file:
        file.seek(150)
        file.write(b"\xff\xfe")
    found = {each.partition: each for each in compact_by_shuffle(spark, [works[0], works[1]], settings_of(topics))}
    assert found[0].outcome == "compacted"
    assert found[1].outcome == "quarantined"
    assert "CRC" in found[1].reason
    topics.admin.delete_topics([topic])


@pytest.fixture
def read(spark, topics):
    """A topic as a DataFrame."""
    return lambda topic: (
        spark.read.format("sparklog")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("subscribe", topic)
        .load()
    )
