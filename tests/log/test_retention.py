"""The segments that retention selects: arithmetic, no files."""

from __future__ import annotations

import pytest

from sparklog.log.retention import DeletableSegments, SegmentFacts, removable, select_deletable
from support.logs.builders import topic_config

NOW = 1_000_000


def segments(*sizes_and_ages: tuple[int, int | None]) -> list[SegmentFacts]:
    """Segments of ten offsets each: size, and how long ago their greatest timestamp was (None: they have none)."""
    return [
        SegmentFacts(next_offset=10 * number, size_bytes=size, largest_timestamp_ms=-1 if age is None else NOW - age)
        for number, (size, age) in enumerate(sizes_and_ages, 1)
    ]


def count(found: list[SegmentFacts], *, start: int = 0, high_watermark: int = 10_000, **config: object) -> int:
    defaults = {"retention_ms": -1, "retention_bytes": -1}
    return removable(
        found,
        log_start_offset=start,
        high_watermark=high_watermark,
        config=topic_config(**(defaults | config)),
        now_ms=NOW,
    ).total


OLD = segments((100, 500), (100, 400), (100, 300), (100, 200), (100, 100))


def test_nothing_goes_without_a_limit() -> None:
    assert count(OLD) == 0


@pytest.mark.parametrize(("retention_ms", "gone"), [(600, 0), (500, 0), (499, 1), (250, 3), (150, 4)])
def test_segments_go_by_the_age_of_their_newest_record(retention_ms: int, gone: int) -> None:
    assert count(OLD, retention_ms=retention_ms) == gone


def test_the_active_segment_goes_by_age_too_if_it_has_records() -> None:
    assert count(OLD, retention_ms=50) == 5
    assert count([*OLD, *segments((0, None))], retention_ms=50) == 5


def test_a_younger_segment_protects_what_is_behind_it() -> None:
    assert count(segments((100, 500), (100, 10), (100, 500)), retention_ms=100) == 1


def test_a_segment_without_timestamps_goes_with_the_next_that_goes() -> None:
    assert count(segments((0, None), (100, 500), (100, 10)), retention_ms=100) == 2
    assert count(segments((100, None), (100, 10), (100, 10)), retention_ms=100) == 0


@pytest.mark.parametrize(("retention_bytes", "gone"), [(500, 0), (401, 0), (400, 1), (250, 2), (100, 4), (0, 5)])
def test_the_oldest_go_while_the_rest_is_large_enough(retention_bytes: int, gone: int) -> None:
    assert count(OLD, retention_bytes=retention_bytes) == gone


@pytest.mark.parametrize(("start", "gone"), [(0, 0), (9, 0), (10, 1), (25, 2), (10_000, 4)])
def test_closed_segments_below_the_log_start_go(start: int, gone: int) -> None:
    assert count(OLD, start=start) == gone
    assert count(OLD, start=start, cleanup_policy=("compact",)) == gone


def test_a_compacted_log_keeps_what_is_old_or_large() -> None:
    assert count(OLD, retention_ms=1, retention_bytes=1, cleanup_policy=("compact",)) == 0
    assert count(OLD, retention_ms=250, cleanup_policy=("compact", "delete")) == 3


@pytest.mark.parametrize(("high_watermark", "gone"), [(0, 0), (19, 1), (20, 2), (50, 5)])
def test_nothing_at_or_above_the_high_watermark_goes(high_watermark: int, gone: int) -> None:
    assert count(OLD, retention_ms=1, high_watermark=high_watermark) == gone
    assert count(OLD, start=10_000, high_watermark=high_watermark) == min(gone, 4)


def test_the_reasons_add_up() -> None:
    assert count(OLD, start=10, retention_bytes=300, retention_ms=250) == 3


@pytest.mark.parametrize(("start", "gone"), [(0, 0), (9, 0), (20, 2), (45, 4), (50, 5)])
def test_with_an_archive_the_broker_removes_only_what_lies_below_the_log_start(start: int, gone: int) -> None:
    assert count(OLD, start=start, retention_ms=1, retention_archive="/archive") == gone
    assert count(OLD, start=start, retention_bytes=0, retention_archive="/archive") == gone


def test_the_selection_names_its_reasons_and_needs_no_archive() -> None:
    config = topic_config(retention_bytes=300, retention_ms=250, retention_archive="/archive")
    asked = {"log_start_offset": 10, "high_watermark": 10_000, "config": config, "now_ms": NOW}
    given_up = select_deletable(OLD, **asked)
    assert given_up == DeletableSegments(by_log_start=1, by_size=1, by_time=1)
    assert given_up.why(config, 10) == (
        "1 below the log start offset 10, 1 beyond retention.bytes=300, 1 older than retention.ms=250"
    )
    assert select_deletable([], **asked).total == 0
