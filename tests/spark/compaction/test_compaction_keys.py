"""The newest record of a key by offset, by timestamp and by a header's number, in a task and by Spark's shuffle."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from sparklog.records.records import Record, write_records
from sparklog.spark.compaction.keys import NO_VERSION, CompactionStrategy
from sparklog.spark.compaction.shuffle import SortedOffsets, newest_offsets


def number(value: int) -> bytes:
    return struct.pack(">q", value)


BATCH = bytes(
    write_records(
        [
            Record(offset=5, timestamp_ms=70, key=b"a", headers=(("v", number(3)), ("v", number(-4)))),
            Record(offset=6, timestamp_ms=90),
            Record(offset=7, timestamp_ms=10, key=b"b", headers=(("v", b"short"), ("other", number(8)), ("v", None))),
            Record(offset=9, timestamp_ms=11, key=b"", headers=(("other", None), ("v", number(6)))),
        ]
    )
)


@pytest.mark.parametrize(
    ("strategy", "versions"),
    [
        (CompactionStrategy(), None),
        (CompactionStrategy("timestamp"), [70, 90, 10, 11]),
        (CompactionStrategy("header", "v"), [-4, NO_VERSION, NO_VERSION, 6]),
        (CompactionStrategy("header", "none"), [NO_VERSION] * 4),
    ],
)
def test_a_strategy_reads_keys_and_what_their_age_goes_by(strategy, versions):
    (found,) = strategy.read(BATCH)
    assert found.keys.to_pylist() == [b"a", None, b"b", b""]
    assert found.offsets.tolist() == [5, 6, 7, 9]
    assert (None if found.versions is None else found.versions.tolist()) == versions


def test_a_strategy_reads_only_the_offsets_it_is_asked_for():
    (found,) = CompactionStrategy("header", "v").read(BATCH, 6, 8)
    assert found.offsets.tolist() == [6, 7]
    assert found.versions is not None
    assert len(found.versions) == 2


def test_sorted_offsets_come_as_far_as_they_are_asked_for():
    offsets = SortedOffsets(np.array(each) for each in ([-2, -1, 0], [1, 5], [], [6, 7, 20], [21]))
    assert [offsets.below(end).tolist() for end in (0, 6, 6, 21, 22, 50)] == [
        [-2, -1], [0, 1, 5], [], [6, 7, 20], [21], [],
    ]  # fmt: skip
    assert offsets.count == 7


def test_the_newest_offset_of_each_key_of_each_partition_is_found(spark: SparkSession):
    keys = [(0, 1, 1, 10), (0, 1, 1, 12), (0, 1, 2, 11), (0, 2, 1, 3), (1, 1, 1, 4), (1, 9, 0, -1)]
    rows = spark.createDataFrame(keys, "work int, high bigint, low bigint, offset bigint")
    expected = spark.createDataFrame([(0, 12), (0, 11), (0, 3), (1, 4), (1, -1)], "work int, offset bigint")
    assert_df_equality(newest_offsets(rows), expected, ignore_row_order=True, ignore_nullable=True)


def test_a_greater_version_is_newer_and_of_equal_ones_the_greater_offset(spark: SparkSession):
    keys = [(0, 1, 1, 7, 10), (0, 1, 1, 6, 12), (0, 2, 1, NO_VERSION, 3), (0, 2, 1, NO_VERSION, 5), (0, 2, 1, -1, 4)]
    rows = spark.createDataFrame(keys, "work int, high bigint, low bigint, version bigint, offset bigint")
    expected = spark.createDataFrame([(0, 10), (0, 4)], "work int, offset bigint")
    assert_df_equality(newest_offsets(rows), expected, ignore_row_order=True, ignore_nullable=True)
