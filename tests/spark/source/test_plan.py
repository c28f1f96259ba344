"""Planning: every wanted offset is in exactly one task, and there are no more tasks than needed."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.ids import TopicPartition
from sparklog.log.reader import SegmentInfo
from sparklog.spark.source.filters import EVERYTHING, Interval, Predicate
from sparklog.spark.source.offsets import PartitionRange
from sparklog.spark.source.plan import count_tasks, divide, narrow, pack, prune, split

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
FOUR_SEGMENTS = [
    SegmentInfo(0, 10, 100, 50),
    SegmentInfo(10, 20, 110, 40),
    SegmentInfo(20, 30, 120, 90),
    SegmentInfo(30, 35, 50, None),
]


class SizedPiece(NamedTuple):
    name: int
    size: int


def test_filters_leave_only_the_offsets_that_they_want():
    ranges = [PartitionRange(A0, 0, 100), PartitionRange(A1, 0, 5)]
    assert narrow(ranges, EVERYTHING) == ranges
    assert narrow(ranges, Predicate(offset=Interval(5, 9))) == [PartitionRange(A0, 5, 10)]
    assert narrow(ranges, Predicate(numbers=frozenset({1}))) == [PartitionRange(A1, 0, 5)]
    assert narrow(ranges, Predicate(offset=Interval(3, 2))) == []


def test_segments_that_are_too_old_are_left_out_and_neighbours_stay_together():
    whole = PartitionRange(A0, 0, 35)
    assert prune(whole, FOUR_SEGMENTS, Interval()) == [whole]
    assert prune(whole, FOUR_SEGMENTS, Interval(low=45)) == [PartitionRange(A0, 0, 10), PartitionRange(A0, 20, 35)]


def test_segments_outside_of_the_offsets_are_left_out():
    assert prune(PartitionRange(A0, 12, 20), FOUR_SEGMENTS, Interval()) == [PartitionRange(A0, 12, 20)]


def test_a_segment_whose_newest_record_is_unknown_is_always_read():
    assert prune(PartitionRange(A0, 0, 35), FOUR_SEGMENTS, Interval(low=1000)) == [PartitionRange(A0, 30, 35)]


def test_no_task_has_more_records_than_asked():
    parts = split([PartitionRange(A0, 5, 26), PartitionRange(A1, 0, 3)], 10)
    assert parts == [
        PartitionRange(A0, 5, 12),
        PartitionRange(A0, 12, 19),
        PartitionRange(A0, 19, 26),
        PartitionRange(A1, 0, 3),
    ]
    assert split([PartitionRange(A0, 5, 26)], 0) == [PartitionRange(A0, 5, 26)]


@given(low=st.integers(0, 100), size=st.integers(1, 1000), count=st.integers(1, 50))
@settings(max_examples=50, deadline=None)
def test_a_divided_range_has_each_offset_once(low, size, count):
    parts = divide(PartitionRange(A0, low, low + size), count)
    assert [offset for part in parts for offset in range(part.offset_from, part.offset_to)] == list(
        range(low, low + size)
    )
    assert len(parts) == min(count, size)
    assert max(part.size for part in parts) - min(part.size for part in parts) <= 1


def test_larger_ranges_get_more_tasks():
    assert count_tasks([100, 300], 0) == [1, 1]
    assert count_tasks([100, 300], 4) == [1, 3]
    assert count_tasks([1, 1, 998], 5) == [1, 1, 4]
    assert count_tasks([0], 3) == [3]
    assert count_tasks([], 3) == []


@given(sizes=st.lists(st.integers(0, 1000), min_size=1, max_size=8), min_tasks=st.integers(0, 40))
@settings(max_examples=50, deadline=None)
def test_there_are_as_many_tasks_as_asked(sizes, min_tasks):
    counts = count_tasks(sizes, min_tasks)
    assert min(counts) >= 1
    assert sum(counts) >= min_tasks
    assert sum(counts) < max(min_tasks, 1) + len(sizes)


@given(sizes=st.lists(st.integers(0, 100), max_size=30), count=st.integers(1, 10))
@settings(max_examples=50, deadline=None)
def test_pieces_keep_their_order_in_groups(sizes, count):
    pieces = [SizedPiece(i, size) for i, size in enumerate(sizes)]
    groups = pack(pieces, count)
    assert [piece for group in groups for piece in group] == pieces
    assert len(groups) <= count


def test_groups_have_about_as_many_bytes():
    groups = pack([SizedPiece(i, 10) for i in range(12)], 3)
    assert [len(group) for group in groups] == [4, 4, 4]
