"""A partition compacted in a task, by shuffle, and on a broker whose disk is elsewhere: the same log each time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from chispa import assert_df_equality

from sparklog.spark import segment_files
from sparklog.spark.compaction import rewrite as compaction_rewrite
from sparklog.spark.compaction import shuffle as compaction_shuffle
from sparklog.spark.compaction.compaction import compact
from sparklog.spark.compaction.shuffle import compact_by_shuffle
from sparklog.spark.compaction.task import compact_in_task
from support.jobs.compactions import (
    COMPACTED,
    NOW_MS,
    ROOM_FOR_FEW,
    close_segments,
    consume,
    expected_offsets,
    fill_alike,
    keyed_offsets,
    send,
    settings_of,
    works_of,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("strategy", ["offset", "timestamp"])
def test_a_task_and_a_shuffle_keep_the_same_records(spark, topics, read, strategy):
    rng = random.Random(strategy)
    topic = topics.create(partitions=2, **COMPACTED, compaction_strategy=strategy)
    cleaned_offset = 0
    for round_number in range(2):  # the second time there are segments that have been compacted before
        fill_alike(topics.producer, topic, (0, 1), rng)
        close_segments(topics, topic, (0, 1))
        expected = expected_offsets(consume(topics.bootstrap, topic), strategy, cleaned_offset)
        works = works_of(topics.bootstrap, topic)
        (in_task,) = compact(spark, [works[0]], settings_of(topics.bootstrap, now_ms=NOW_MS + round_number))
        (by_shuffle,) = compact(spark, [works[1]], settings_of(topics.bootstrap, ROOM_FOR_FEW, NOW_MS + round_number))
        assert (in_task.outcome, in_task.how, by_shuffle.outcome, by_shuffle.how) == (
            "compacted", "task", "compacted", "shuffle",
        )  # fmt: skip
        kept = consume(topics.bootstrap, topic)
        assert keyed_offsets(kept) == expected
        assert in_task.cleaned_offset == by_shuffle.cleaned_offset
        cleaned_offset = in_task.cleaned_offset
    one, other = (read(topic).filter(f"partition = {number} and offset < {cleaned_offset}") for number in (0, 1))
    assert_df_equality(one.drop("partition"), other.drop("partition"), ignore_row_order=True)


def test_what_a_broker_elsewhere_has_is_read_and_replaced_through_it(topics, monkeypatch):
    topic = topics.create(partitions=2, **COMPACTED)
    fill_alike(topics.producer, topic, (0, 1), random.Random(1))
    close_segments(topics, topic, (0, 1))
    works = works_of(topics.bootstrap, topic)
    ((_, here),) = compact_in_task([works[0]], settings_of(topics.bootstrap))
    for module in (segment_files, compaction_rewrite):
        monkeypatch.setattr(module, "is_visible", lambda _: False)
    ((_, elsewhere),) = compact_in_task([works[1]], settings_of(topics.bootstrap))
    assert here.outcome == elsewhere.outcome == "compacted"
    assert here.bytes_after == elsewhere.bytes_after
    first = [min(Path(topics.folder(topic, number)).glob("*.log")).read_bytes() for number in (0, 1)]
    assert first[0] == first[1]


def test_a_log_that_has_changed_since_its_plan_is_left_alone(topics):
    topic = topics.create(**COMPACTED)
    fill_alike(topics.producer, topic, (0,), random.Random(2))
    close_segments(topics, topic)
    work = works_of(topics.bootstrap, topic)[0]
    ((_, first),) = compact_in_task([work], settings_of(topics.bootstrap))
    files = sorted(Path(topics.folder(topic)).iterdir())
    ((_, second),) = compact_in_task([work], settings_of(topics.bootstrap))
    assert (first.outcome, second.outcome) == ("compacted", "stale")
    assert sorted(Path(topics.folder(topic)).iterdir()) == files


@pytest.mark.parametrize("rows", [[], [(None, "no"), (None, "keys")]])
def test_a_partition_without_any_key_goes_by_shuffle_as_by_task(spark, topics, rows):
    topic = topics.create(partitions=2, **COMPACTED)
    for partition in (0, 1):
        for row in rows:
            send(topics, topic, [row], partition)
    close_segments(topics, topic, (0, 1))
    works = works_of(topics.bootstrap, topic)
    ((_, in_task),) = compact_in_task([works[0]], settings_of(topics.bootstrap))
    (by_shuffle,) = compact_by_shuffle(spark, [works[1]], settings_of(topics.bootstrap))
    assert (
        (in_task.outcome, in_task.records_after) == (by_shuffle.outcome, by_shuffle.records_after) == ("compacted", 0)
    )
    assert in_task.bytes_after == by_shuffle.bytes_after > 0


def test_a_damaged_segment_ends_a_shuffle_for_its_partition_alone(spark, topics, monkeypatch):
    topic = topics.create(partitions=2, **COMPACTED)
    fill_alike(topics.producer, topic, (0, 1), random.Random(3))
    close_segments(topics, topic, (0, 1))
    works = works_of(topics.bootstrap, topic)
    monkeypatch.setattr(compaction_shuffle, "ROWS_OF_PARTITION", 1000)
    assert compaction_shuffle.partitions_for([works[0], works[1]]) == 4  # as for many keys
    with min(Path(topics.folder(topic, 1)).glob("*.log")).open("r+b") as file:
        file.seek(150)
        file.write(b"\xff\xfe")
    found = {
        each.partition: each for each in compact_by_shuffle(spark, [works[0], works[1]], settings_of(topics.bootstrap))
    }
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
