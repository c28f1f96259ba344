"""Pushed-down filters become one predicate; Spark keeps the filters that it does not express exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from sparklog.base.ids import TopicPartition
from sparklog.spark.source.filters import EVERYTHING, Interval, fold

TOPIC, PARTITION, OFFSET, TIMESTAMP, VALUE = ("topic",), ("partition",), ("offset",), ("timestamp",), ("value",)
COMPARISONS = {
    EqualTo: lambda a, b: a == b,
    EqualNullSafe: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([EqualTo(TOPIC, "a")], {"a-0", "a-1"}),
        ([In(TOPIC, ["a", "ab"]), EqualTo(PARTITION, 1)], {"a-1", "ab-1"}),
        ([StringStartsWith(TOPIC, "a"), In(PARTITION, [0, 7])], {"a-0", "ab-0"}),
        ([EqualTo(TOPIC, "a"), EqualTo(TOPIC, "b")], set()),
        ([GreaterThan(PARTITION, 0), IsNotNull(TOPIC), IsNotNull(PARTITION)], {"a-1", "ab-1", "b-1"}),
    ],
)
def test_topic_and_partition_choose_partitions(filters, wanted):
    predicate, remaining = fold(filters)
    partitions = [TopicPartition(topic, number) for topic in ("a", "ab", "b") for number in (0, 1)]
    assert {str(each) for each in partitions if predicate.wants(each)} == wanted
    assert remaining == []


@pytest.mark.parametrize(
    "left_to_spark",
    [
        EqualTo(VALUE, b"x"),
        StringContains(TOPIC, "a"),
        Not(EqualTo(TOPIC, "a")),
        In(TOPIC, ["a", None]),
        IsNull(TOPIC),
        EqualTo(PARTITION, 1.5),
        EqualTo(PARTITION, True),
        IsNull(OFFSET),
        Not(EqualTo(OFFSET, 3)),
        EqualTo(("topic", "length"), 1),
        IsNotNull(TIMESTAMP),
        GreaterThan(TIMESTAMP, datetime(2013, 1, 1)),
    ],
)
def test_what_planning_cannot_use_is_left_to_spark(left_to_spark):
    assert fold([left_to_spark]) == (EVERYTHING, [left_to_spark])


def test_a_list_of_offsets_narrows_and_is_still_evaluated_by_spark():
    some = In(OFFSET, [7, 3, 5])
    predicate, remaining = fold([some])
    assert predicate.offset == Interval(3, 7)
    assert remaining == [some]


@pytest.mark.parametrize("kind", COMPARISONS)
@given(offset=st.integers(-3, 10), value=st.integers(-3, 10))
@settings(max_examples=30, deadline=None)
def test_offsets_are_compared_exactly(kind, offset, value):
    predicate, remaining = fold([kind(OFFSET, value)])
    assert (offset in predicate.offset) == COMPARISONS[kind](offset, value)
    assert not remaining


@pytest.mark.parametrize("kind", COMPARISONS)
@given(record_ms=st.integers(-2, 3), value_us=st.integers(-2500, 3500))
@settings(max_examples=60, deadline=None)
def test_timestamps_are_compared_to_the_microsecond_and_by_spark_too(kind, record_ms, value_us):
    value = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value_us)
    compared = kind(TIMESTAMP, value)
    predicate, remaining = fold([compared])
    assert (record_ms in predicate.timestamp_ms) == COMPARISONS[kind](record_ms * 1000, value_us)
    assert remaining == [compared]
