"""Selection of the oldest segments that retention deletes. Pure functions, used by the broker and the retention job.

Retention selects whole segments, oldest first, for one of three reasons, in Kafka's order
(UnifiedLog.deleteOldSegments):

    log start    every record lies below the log start offset; under any cleanup policy
    size         without the segment, the log still has at least retention.bytes
    time         the segment's greatest timestamp is more than retention.ms ago

- A segment with a record at or above the high watermark is never selected.
- Size and time apply only if cleanup.policy contains delete.
- A segment without timestamps (emptied by compaction, or written without) is deleted with the next one due by time.
- The active segment can be selected too, if it has records: the caller rolls first.

Only the leader selects. Followers take over its log start, and remove the closed segments below it.

With retention.archive set, records leave the log only once the archive has them. The retention job calls
`select_deletable`, copies the segments, and then advances the log start offset. The broker's own task calls
`removable`, which then selects only segments below the log start offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from sparklog.base.topic_config import TopicConfig


class SegmentFacts(Struct, frozen=True, kw_only=True):
    """The properties of a segment that retention needs."""

    next_offset: int
    """The next segment's base offset, or the log end offset; every record of the segment lies below."""
    size_bytes: int
    largest_timestamp_ms: int
    """-1: none."""


class SegmentLike(Protocol):
    """`SegmentFacts`, or any other type with the same attributes."""

    @property
    def next_offset(self) -> int:
        """The offset after the segment, where the next one begins."""
        ...

    @property
    def size_bytes(self) -> int:
        """The bytes of the segment's batches."""
        ...

    @property
    def largest_timestamp_ms(self) -> int:
        """The greatest timestamp of a record; -1 if there is none."""
        ...


class DeletableSegments(NamedTuple):
    """The number of oldest segments to delete, by reason: first those below the log start, then by size, then time."""

    by_log_start: int
    by_size: int
    by_time: int

    @property
    def total(self) -> int:
        """The number of segments to delete; equal to the number of segments if the active one is among them."""
        return self.by_log_start + self.by_size + self.by_time

    def why(self, config: TopicConfig, log_start_offset: int) -> str:
        """Return a text for logs with the number of segments for each reason."""
        reasons = (
            (self.by_log_start, f"below the log start offset {log_start_offset}"),
            (self.by_size, f"beyond retention.bytes={config.retention_bytes}"),
            (self.by_time, f"older than retention.ms={config.retention_ms}"),
        )
        return ", ".join(f"{count} {reason}" for count, reason in reasons if count)


def removable(
    segments: Sequence[SegmentLike], *, log_start_offset: int, high_watermark: int, config: TopicConfig, now_ms: int
) -> DeletableSegments:
    """Return how many of the oldest segments the broker may remove, possibly with the active one."""
    limit = min(high_watermark, log_start_offset) if config.retention_archive else high_watermark
    return select_deletable(
        segments, log_start_offset=log_start_offset, high_watermark=limit, config=config, now_ms=now_ms
    )


def below_start(segments: Sequence[SegmentLike], log_start_offset: int) -> DeletableSegments:
    """Return how many of the oldest segments a follower may remove: the closed ones below its leader's log start."""
    return DeletableSegments(_count_while(segments[:-1], lambda segment: segment.next_offset <= log_start_offset), 0, 0)


def select_deletable(
    segments: Sequence[SegmentLike], *, log_start_offset: int, high_watermark: int, config: TopicConfig, now_ms: int
) -> DeletableSegments:
    """Return how many of the oldest segments retention's rules select, whether archived or not."""
    limit = _count_while(segments, lambda segment: segment.next_offset <= high_watermark)
    if segments and segments[-1].size_bytes == 0:
        limit = min(limit, len(segments) - 1)
    closed = segments[:-1]
    below = min(limit, _count_while(closed, lambda segment: segment.next_offset <= log_start_offset))
    if "delete" not in config.cleanup_policy:
        return DeletableSegments(below, 0, 0)
    large = _by_size(segments[below:limit], sum(segment.size_bytes for segment in segments[below:]), config)
    return DeletableSegments(below, large, _by_time(segments[below + large : limit], config, now_ms))


def _by_size(segments: Sequence[SegmentLike], log_size: int, config: TopicConfig) -> int:
    excess = log_size - config.retention_bytes
    if config.retention_bytes < 0:
        return 0
    for count, segment in enumerate(segments):
        excess -= segment.size_bytes
        if excess < 0:
            return count
    return len(segments)


def _by_time(segments: Sequence[SegmentLike], config: TopicConfig, now_ms: int) -> int:
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


def _count_while(segments: Sequence[SegmentLike], holds: Callable[[SegmentLike], bool]) -> int:
    return next((count for count, segment in enumerate(segments) if not holds(segment)), len(segments))
