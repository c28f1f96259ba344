"""Differences of a follower's closed segments from its leader's lie between two common borders."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.log.description import NO_SUM, SegmentSum
from sparklog.replica.differences import compare


def segments(*borders: int, crc32c: int = 1, size_bytes: int = 10) -> list[SegmentSum]:
    return [
        SegmentSum(base_offset=base, next_offset=end, size_bytes=size_bytes, crc32c=crc32c)
        for base, end in pairwise(borders)
    ]


def found(own: list[SegmentSum], leaders: list[SegmentSum]) -> list[tuple[list[int], list[int]]]:
    """The base offsets of the segments of each difference."""
    return [
        ([each.base_offset for each in one.own], [each.base_offset for each in one.leaders])
        for one in compare(own, leaders).differences
    ]


def test_several_become_one_and_one_becomes_several() -> None:
    assert found(segments(0, 10, 20, 30), segments(0, 20, 30)) == [([0, 10], [0])]
    assert found(segments(0, 20, 30), segments(0, 10, 20, 30)) == [([0], [0, 10])]
    assert found(segments(0, 10, 30, 40), segments(0, 20, 30, 40)) == [([0, 10], [0, 20])]


def test_files_differ_by_their_sums_as_far_as_those_are_known() -> None:
    assert found(segments(0, 10, 20), segments(0, 10, 20, crc32c=2)) == [([0], [0]), ([10], [10])]
    assert found(segments(0, 10, 20), segments(0, 10, 20, crc32c=NO_SUM)) == []
    assert found(segments(0, 10, 20), segments(0, 10, 20, crc32c=NO_SUM, size_bytes=9)) == [([0], [0]), ([10], [10])]


def test_segments_outside_the_common_borders_are_not_compared() -> None:
    comparison = compare(segments(5, 10, 20, 30), segments(0, 10, 25, 30, 40))
    assert [each.own[0].base_offset for each in comparison.differences] == [10]
    assert comparison.end == 30
    assert compare([], segments(0, 10)).end == compare(segments(0, 5), segments(10, 20)).end == -1


@settings(max_examples=60)
@given(st.sets(st.integers(0, 15), min_size=2), st.sets(st.integers(0, 15), min_size=2))
def test_with_what_is_taken_over_nothing_differs_any_more(mine: set[int], theirs: set[int]) -> None:
    own, leaders = segments(*sorted(mine)), segments(*sorted(theirs), crc32c=2)
    comparison = compare(own, leaders)
    for each in comparison.differences:
        assert each.own[0].base_offset == each.leaders[0].base_offset
        assert each.own[-1].next_offset == each.leaders[-1].next_offset
        at = own.index(each.own[0])
        own[at : at + len(each.own)] = each.leaders
    assert all(one.next_offset == two.base_offset for one, two in pairwise(own))
    assert not compare(own, leaders).differences
