"""Plans of compaction: when it is due, why, and its segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.compaction import CompactionCause, CompactionNotDue, CompactionPlan, group_segments, plan_compaction
from sparklog.log.description import LogDescription, SegmentDescription

NOW_MS = 1_000_000
MAX_INT = 2**31 - 1


def segment(base: int, end: int, size: int = 100, *, first: int = 500, largest: int = 900) -> SegmentDescription:
    return SegmentDescription(
        base_offset=base, next_offset=end, size_bytes=size, first_timestamp_ms=first, largest_timestamp_ms=largest
    )


# Four closed segments of ten records and 100 bytes, and the active one.
SEGMENTS = (segment(0, 10), segment(10, 20), segment(20, 30), segment(30, 40), segment(40, 45, 50))


def log(*, segments: Sequence[SegmentDescription] = SEGMENTS, **fields: Any) -> LogDescription:
    configs = {"cleanup_policy": ("compact",), "internal_segment_bytes": 200} | fields.pop("configs", {})
    end = segments[-1].next_offset if segments else 0
    offsets = {"high_watermark": end, "last_stable_offset": end, "log_end_offset": end}
    return LogDescription(
        partition=TopicPartition("t", 0), config=TopicConfig(**configs), segments=tuple(segments), **offsets | fields
    )


def plan(described: LogDescription, **options: Any) -> CompactionPlan:
    result = plan_compaction(described, now_ms=NOW_MS, **options)
    assert isinstance(result, CompactionPlan), result
    return result


def not_due(described: LogDescription, **options: Any) -> CompactionNotDue:
    result = plan_compaction(described, now_ms=NOW_MS, **options)
    assert isinstance(result, CompactionNotDue), result
    return result


def bases(plan: CompactionPlan) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in plan.groups]


def test_a_log_that_was_never_compacted_is_taken_up_to_the_active_segment() -> None:
    due = plan(log())
    assert due.cause is CompactionCause.DIRTY_RATIO
    assert due.reason == "100.0% of 400 bytes have not been compacted, min.cleanable.dirty.ratio is 50%"
    assert (due.first_dirty_offset, due.end_offset, due.keys_from_offset) == (0, 40, 0)
    assert bases(due) == [[0, 10], [20, 30]]
    assert (due.figures.clean_bytes, due.figures.dirty_bytes, due.figures.waiting_bytes) == (0, 400, 50)


def test_the_ratio_has_to_be_exceeded() -> None:
    waits = not_due(log(cleaned_offset=20))
    assert waits.cause is CompactionCause.CLEAN_ENOUGH
    assert waits.reason == "only 50.0% of 400 bytes have not been compacted, min.cleanable.dirty.ratio is 50%"
    due = plan(log(cleaned_offset=20, configs={"min_cleanable_dirty_ratio": 0.49}))
    assert (due.first_dirty_offset, due.keys_from_offset) == (20, 20)
    assert bases(due) == [[0, 10], [20, 30]]  # clean segments may hold records that are superseded now


@pytest.mark.parametrize(
    ("fields", "cause", "words"),
    [
        ({"configs": {"cleanup_policy": ("delete",)}}, CompactionCause.POLICY, "cleanup.policy is delete"),
        ({"segments": SEGMENTS[-1:]}, CompactionCause.NOTHING_CLOSED, "no closed segment"),
        ({"segments": ()}, CompactionCause.NOTHING_CLOSED, "no closed segment"),
        ({"cleaned_offset": 40}, CompactionCause.NOTHING_DIRTY, "compacted up to offset 40"),
        ({"high_watermark": 9}, CompactionCause.NOT_STABLE, "from offset 0 goes on to 10, and only what is below 9"),
        ({"last_stable_offset": 9}, CompactionCause.NOT_STABLE, "below 9"),
        ({"cleaned_offset": 20, "high_watermark": 25}, CompactionCause.NOT_STABLE, "from offset 20 goes on to 30"),
        (
            {"configs": {"min_compaction_lag_ms": NOW_MS - 899}},
            CompactionCause.MIN_LAG,
            "from within min.compaction.lag.ms",
        ),
    ],
)
def test_why_it_is_not_due(fields: dict[str, Any], cause: CompactionCause, words: str) -> None:
    result = not_due(log(**fields))
    assert result.cause is cause
    assert words in result.reason


def test_nothing_uncommitted_unstable_active_or_too_young_is_taken() -> None:
    assert bases(plan(log(high_watermark=39))) == [[0, 10], [20]]
    assert bases(plan(log(last_stable_offset=30))) == [[0, 10], [20]]
    assert plan(log(last_stable_offset=30)).figures.waiting_bytes == 150
    young = (*SEGMENTS[:2], segment(20, 30, largest=NOW_MS - 9), *SEGMENTS[3:])
    assert bases(plan(log(segments=young, configs={"min_compaction_lag_ms": 10}))) == [[0, 10]]
    assert bases(plan(log(segments=young, configs={"min_compaction_lag_ms": 9}))) == [[0, 10], [20, 30]]
    # compacted segments do not become too young again
    again = log(segments=young, cleaned_offset=30, configs={"min_compaction_lag_ms": 10})
    assert bases(plan(again, force=True)) == [[0, 10], [20, 30]]


def test_records_below_the_log_start_count_as_clean_and_are_not_read() -> None:
    trimmed = log(log_start_offset=15)
    assert bases(plan(trimmed)) == [[10, 20], [30]]
    assert plan(trimmed).first_dirty_offset == 15
    assert not_due(log(log_start_offset=40)).cause is CompactionCause.NOTHING_CLOSED
    assert plan(log(cleaned_offset=99)).first_dirty_offset == 0  # the log is shorter than it was


def test_a_record_is_compacted_after_the_maximum_lag_at_the_latest() -> None:
    def lagging(lag_ms: int, **fields: Any) -> LogDescription:
        return log(cleaned_offset=30, configs={"max_compaction_lag_ms": lag_ms}, **fields)

    due = plan(lagging(NOW_MS - 501))
    assert due.cause is CompactionCause.MAX_LAG
    assert due.reason == "max.compaction.lag.ms of 999,499 ran out 0 ms ago for a segment that has not been compacted"
    waits = not_due(lagging(NOW_MS - 500))
    assert waits.cause is CompactionCause.CLEAN_ENOUGH
    assert waits.figures.max_lag_due_ms == NOW_MS + 1
    assert not_due(lagging(1, high_watermark=39)).cause is CompactionCause.NOT_STABLE


def test_tombstones_go_once_their_horizon_has_passed_even_if_nothing_else_is_due() -> None:
    clean = log(cleaned_offset=40)
    due = plan(clean, next_delete_horizon_ms=NOW_MS)
    assert due.cause is CompactionCause.DELETE_HORIZON
    assert (due.first_dirty_offset, due.end_offset) == (40, 40)
    assert bases(due) == [[0, 10], [20, 30]]
    assert not_due(clean, next_delete_horizon_ms=NOW_MS + 1).figures.next_delete_horizon_ms == NOW_MS + 1


def test_force_takes_what_there_is_whatever_the_ratio_but_not_against_the_policy() -> None:
    due = plan(log(cleaned_offset=40), force=True)
    assert due.cause is CompactionCause.FORCED
    assert due.reason.startswith("forced; 0.0% of 400 bytes")
    assert not_due(log(configs={"cleanup_policy": ("delete",)}), force=True).cause is CompactionCause.POLICY
    assert not_due(log(segments=SEGMENTS[-1:]), force=True).cause is CompactionCause.NOTHING_CLOSED


@pytest.mark.parametrize("strategy", ["timestamp", "header"])
def test_by_other_strategies_keys_are_read_from_the_log_start(strategy: str) -> None:
    due = plan(log(cleaned_offset=10, log_start_offset=3, configs={"compaction_strategy": strategy}))
    assert (due.keys_from_offset, due.first_dirty_offset) == (3, 10)


def test_compact_and_delete_is_compacted_too() -> None:
    assert plan(log(configs={"cleanup_policy": ("compact", "delete")})).cause is CompactionCause.DIRTY_RATIO


def test_groups_fit_in_a_segment_and_in_its_index() -> None:
    config = TopicConfig(internal_segment_bytes=200)

    def sizes(*given: int, config: TopicConfig = config) -> list[list[int]]:
        segments = [segment(10 * i, 10 * i + 10, size) for i, size in enumerate(given)]
        return [[it.size_bytes for it in group] for group in group_segments(segments, config)]

    assert sizes() == []
    assert sizes(500) == [[500]]
    assert sizes(10, 20, 170, 1, 500, 3) == [[10, 20, 170], [1], [500], [3]]
    # an entry of 12 bytes each 100 bytes
    narrow = replace(config, segment_index_bytes=12, index_interval_bytes=100)
    assert sizes(60, 60, 60, 60, config=narrow) == [[60, 60, 60], [60]]


def test_groups_have_offsets_that_an_index_can_hold() -> None:
    config = TopicConfig()
    far = [segment(0, 10), segment(10, MAX_INT + 1), segment(MAX_INT + 1, MAX_INT + 2)]
    assert [len(group) for group in group_segments(far, config)] == [2, 1]
    empty = [segment(0, 10), segment(10, MAX_INT + 9, 0), segment(MAX_INT + 9, MAX_INT + 10)]
    assert [len(group) for group in group_segments(empty, config)] == [2, 1]
