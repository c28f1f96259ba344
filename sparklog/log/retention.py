"""Which of a partition's oldest segments retention lets go. Pure: the broker and the retention job both ask this.

Whole segments, oldest first, for one of three reasons, taken in Kafka's order (UnifiedLog.deleteOldSegments):

    log start    every record lies below the log start offset; whatever the cleanup policy
    size         without it, the log is still at least retention.bytes large
    time         its greatest timestamp is more than retention.ms ago

- Never a segment with a record at or above the high watermark.
- The last two only where cleanup.policy contains delete.
- A segment without any timestamp (emptied by compaction, or written without) goes with the next one that goes by time.
- The active segment goes by time too, if it has records: whoever carries out the plan rolls first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparklog.base.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What retention needs to know of a segment."""

    next_offset: int
    """Every record lies below: the next segment's base offset, or the log end offset."""
    size_bytes: int
    largest_timestamp_ms: int
    """-1: none."""


def count_removable(
    segments: Sequence[SegmentFacts], *, log_start_offset: int, high_watermark: int, config: TopicConfig, now_ms: int
) -> int:
    """How many of the oldest segments go; all of them where the active one, the last, goes too."""
    limit = _count_while(segments, lambda segment: segment.next_offset <= high_watermark)
    if segments and segments[-1].size_bytes == 0:
        limit = min(limit, len(segments) - 1)
    closed = segments[:-1]
    count = min(limit, _count_while(closed, lambda segment: segment.next_offset <= log_start_offset))
    if "delete" not in config.cleanup_policy:
        return count
    count += _by_size(segments[count:limit], sum(segment.size_bytes for segment in segments[count:]), config)
    return count + _by_time(segments[count:limit], config, now_ms)


def _by_size(segments: Sequence[SegmentFacts], log_size: int, config: TopicConfig) -> int:
    excess = log_size - config.retention_bytes
    if config.retention_bytes < 0:
        return 0
    for count, segment in enumerate(segments):
        excess -= segment.size_bytes
        if excess < 0:
            return count
    return len(segments)


def _by_time(segments: Sequence[SegmentFacts], config: TopicConfig, now_ms: int) -> int:
    if config.retention_ms < 0:
        return 0
    count = 0
    for number, segment in enumerate(segments, 1):
        if segment.largest_timestamp_ms < 0:
            continue
        if now_ms - segment.largest_timestamp_ms <= config.retention_ms:
            break
        count = number
    return count


def _count_while(segments: Sequence[SegmentFacts], holds: Callable[[SegmentFacts], bool]) -> int:
    return next((count for count, segment in enumerate(segments) if not holds(segment)), len(segments))
