"""Offset and time indexes: lookups, truncation, and files that end in zeros or in the middle of an entry."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.segment.indexes import OffsetIndex, TimeEntry, TimeIndex

BASE = 1000
steps = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=40)


def offset_index(pairs: list[tuple[int, int]]) -> OffsetIndex:
    index = OffsetIndex(BASE)
    for offset, position in pairs:
        index.append(offset, position)
    return index


def pairs_of(gaps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Offsets and positions that grow by the gaps."""
    return list(accumulate(gaps, lambda at, gap: (at[0] + gap[0], at[1] + gap[1]), initial=(BASE, 0)))[1:]


@given(steps, st.integers(BASE - 10, BASE + 2100))
def test_an_offset_is_looked_up_at_the_last_entry_at_or_below_it(gaps: list[tuple[int, int]], offset: int) -> None:
    pairs = pairs_of(gaps)
    expected = max((position for at, position in pairs if at <= offset), default=0)
    assert offset_index(pairs).position_for(offset) == expected


@given(steps, st.integers(0, 200_000))
def test_the_last_position_below_one_is_found(gaps: list[tuple[int, int]], before: int) -> None:
    pairs = pairs_of(gaps)
    assert offset_index(pairs).last_position(before) == max((at for _, at in pairs if at < before), default=0)


@pytest.mark.slow
@given(steps, st.integers(BASE, BASE + 2100))
def test_truncation_drops_the_offsets_from_one_on(gaps: list[tuple[int, int]], offset: int) -> None:
    index = offset_index(pairs_of(gaps))
    index.truncate(offset)
    assert [index[number] for number in range(len(index))] == [pair for pair in pairs_of(gaps) if pair[0] < offset]


@given(steps, st.integers(0, 30), st.integers(0, 7))
def test_zeros_and_a_torn_entry_at_the_end_are_dropped(gaps: list[tuple[int, int]], zeros: int, torn: int) -> None:
    index = offset_index(pairs_of(gaps))
    found = OffsetIndex(BASE, index.bytes_from(0) + bytes(8 * zeros) + bytes(torn))
    assert found.bytes_from(0) == index.bytes_from(0)


def test_a_time_index_takes_only_greater_timestamps() -> None:
    index = TimeIndex(BASE)
    for timestamp, offset in ((100, 1001), (100, 1002), (90, 1003), (101, 1004)):
        index.append(timestamp, offset)
    assert [index[number] for number in range(len(index))] == [TimeEntry(100, 1001), TimeEntry(101, 1004)]
    assert index.last == TimeEntry(101, 1004)


def test_an_empty_time_index_has_no_last_timestamp() -> None:
    assert TimeIndex(BASE).last == TimeEntry(-1, BASE)


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(50, BASE), (100, BASE), (101, 1001), (150, 1001), (151, 1005), (999, 1005)]
)
def test_a_timestamp_is_looked_up_behind_all_that_is_earlier(timestamp: int, offset: int) -> None:
    index = TimeIndex(BASE)
    index.append(100, 1001)
    index.append(150, 1005)
    assert index.offset_for(timestamp) == offset


def test_a_time_index_is_cut_by_offset() -> None:
    index = TimeIndex(BASE)
    for timestamp, offset in ((100, 1001), (150, 1005), (160, 1009)):
        index.append(timestamp, offset)
    index.truncate(1005)
    assert len(index) == 1
    assert TimeIndex(BASE, index.bytes_from(0) + bytes(120)).last == TimeEntry(100, 1001)
