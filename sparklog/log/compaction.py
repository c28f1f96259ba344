"""Whether compaction of a partition is due, why, and which of its segments it takes. Pure: the job and `sparklog
explain compaction` both ask this. The rules are Kafka's (LogCleanerManager.cleanableOffsets, LogToClean,
Cleaner.groupSegmentsBySize).

    log start                first dirty                 end                      log end
        | closed, compacted before | closed, not yet compacted | too young, or active |

- First dirty: the cleaned offset, but not below the log start; the log start where it lies beyond the log's end.
- End: where the last closed segment ends of those that lie wholly below the high watermark and the last stable offset,
  and before the first dirty one with a record from within min.compaction.lag.ms. Kafka may also take half a segment;
  here a segment is taken whole or not at all.
- Due, where cleanup.policy has compact, for the first of these reasons:
      it is forced, and there is a closed segment
      more than min.cleanable.dirty.ratio of the bytes below the end lie in dirty segments
      a dirty closed segment began more than max.compaction.lag.ms ago, and there are dirty bytes below the end
      a delete horizon that an earlier pass noted has passed: tombstones may go
- Taken: every segment below the end, compacted before or not, since any of them may hold what has been superseded; not
  those that lie wholly below the log start, which retention removes. Neighbours are grouped, each group to become one
  segment: the sum of their sizes within segment.bytes, what an index may need for it within segment.index.bytes, and
  offsets that an index can hold relative to the first.

With a strategy other than the offset (KIP-280) a record may be superseded by an older one, so keys are read from the
log start, not from the first dirty offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.description import LogDescription, SegmentDescription

MAX_INT = 2**31 - 1
_INDEX_ENTRY_BYTES = 12  # of the time index, whose entries are the larger ones
_SMALLEST_BATCH = 61
Segments = tuple[SegmentDescription, ...]


class Cause(StrEnum):
    """What decided, whether compaction is due or not."""

    FORCED = "forced"
    DIRTY_RATIO = "dirty ratio"
    MAX_LAG = "max compaction lag"
    DELETE_HORIZON = "delete horizon"
    POLICY = "cleanup policy"
    NOTHING_CLOSED = "nothing closed"
    NOT_STABLE = "not stable"
    NOTHING_DIRTY = "nothing dirty"
    MIN_LAG = "min compaction lag"
    CLEAN_ENOUGH = "clean enough"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionFigures:
    """What was compared."""

    log_start_offset: int
    first_dirty_offset: int
    """Everything below has been compacted."""
    end_offset: int
    """No segment from here on can be compacted yet."""
    clean_bytes: int
    """In closed segments below the first dirty offset."""
    dirty_bytes: int
    """In segments between the first dirty offset and the end."""
    waiting_bytes: int
    """In closed segments from the end on, and in the active one."""
    max_lag_due_ms: int | None
    """When max.compaction.lag.ms makes it due, whatever else; None where nothing does."""
    next_delete_horizon_ms: int | None
    """When the first tombstones may go, where an earlier pass noted it."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """Compaction is due."""

    partition: TopicPartition
    cause: Cause
    reason: str
    """In words and figures."""
    figures: CompactionFigures
    keys_from_offset: int
    """Keys have to be read from here to the end to know which records are superseded."""
    groups: tuple[Segments, ...]
    """Oldest first: the segments that become one, each time."""

    @property
    def first_dirty_offset(self) -> int:
        return self.figures.first_dirty_offset

    @property
    def end_offset(self) -> int:
        """What the cleaned offset becomes once all groups are in place."""
        return self.figures.end_offset

    @property
    def segments(self) -> Segments:
        return tuple(segment for group in self.groups for segment in group)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDue:
    """Compaction is not due."""

    partition: TopicPartition
    cause: Cause
    reason: str
    figures: CompactionFigures


def plan_compaction(
    log: LogDescription, *, now_ms: int, force: bool = False, next_delete_horizon_ms: int | None = None
) -> CompactionPlan | NotDue:
    """Whether compaction of the partition is due at `now_ms`, and of what.

    `next_delete_horizon_ms` is what the partition's last report says.
    """
    first_dirty = _first_dirty_offset(log)
    taken = _cleanable(log, first_dirty, now_ms)
    figures = _figures(log, first_dirty, taken, next_delete_horizon_ms)
    due = _why_due(log, figures, now_ms, force) if taken and "compact" in log.config.cleanup_policy else None
    if due is None:
        cause, reason = _why_not(log, figures)
        return NotDue(partition=log.partition, cause=cause, reason=reason, figures=figures)
    cause, reason = due
    return CompactionPlan(
        partition=log.partition,
        cause=cause,
        reason=reason,
        figures=figures,
        keys_from_offset=first_dirty if log.config.compaction_strategy == "offset" else log.log_start_offset,
        groups=group_segments(taken, log.config),
    )


def group_segments(segments: Sequence[SegmentDescription], config: TopicConfig) -> tuple[Segments, ...]:
    """Neighbours in groups that each fit in one segment; one that is too large by itself is a group of its own."""
    groups: list[list[SegmentDescription]] = []
    size = 0
    for segment in segments:
        if groups and _fits(groups[-1][0], segment, size + segment.size_bytes, config):
            groups[-1].append(segment)
            size += segment.size_bytes
        else:
            groups.append([segment])
            size = segment.size_bytes
    return tuple(map(tuple, groups))


def _fits(first: SegmentDescription, segment: SegmentDescription, size_bytes: int, config: TopicConfig) -> bool:
    """Whether `segment` can join the group that begins with `first`, which then has `size_bytes`.

    An empty segment brings no offsets, so that it may lie as far away as it likes.
    """
    entries = size_bytes // max(config.index_interval_bytes, _SMALLEST_BATCH)
    return (
        size_bytes <= config.roll_bytes
        and entries * _INDEX_ENTRY_BYTES <= config.segment_index_bytes
        and (segment.size_bytes == 0 or segment.next_offset - 1 - first.base_offset <= MAX_INT)
    )


def _first_dirty_offset(log: LogDescription) -> int:
    if log.cleaned_offset > log.log_end_offset:
        return log.log_start_offset
    return max(log.cleaned_offset, log.log_start_offset)


def _cleanable(log: LogDescription, first_dirty: int, now_ms: int) -> Segments:
    """The closed segments that compaction may take."""
    stable = min(log.high_watermark, log.last_stable_offset)
    lag_ms = log.config.min_compaction_lag_ms
    taken = []
    for segment in log.closed_segments:
        if segment.next_offset > stable:
            break
        if lag_ms and segment.next_offset > first_dirty and segment.largest_timestamp_ms > now_ms - lag_ms:
            break
        if segment.next_offset > log.log_start_offset:
            taken.append(segment)
    return tuple(taken)


def _figures(
    log: LogDescription, first_dirty: int, taken: Segments, next_delete_horizon_ms: int | None
) -> CompactionFigures:
    end = max(first_dirty, taken[-1].next_offset) if taken else first_dirty
    clean = sum(segment.size_bytes for segment in taken if segment.next_offset <= first_dirty)
    began = [
        segment.first_timestamp_ms
        for segment in log.closed_segments
        if segment.next_offset > first_dirty and segment.first_timestamp_ms > 0
    ]
    lag_ms = log.config.max_compaction_lag_ms
    return CompactionFigures(
        log_start_offset=log.log_start_offset,
        first_dirty_offset=first_dirty,
        end_offset=end,
        clean_bytes=clean,
        dirty_bytes=sum(segment.size_bytes for segment in taken) - clean,
        waiting_bytes=sum(segment.size_bytes for segment in log.segments if segment.next_offset > end),
        max_lag_due_ms=min(began) + lag_ms + 1 if began and lag_ms < MAX_LONG else None,
        next_delete_horizon_ms=next_delete_horizon_ms,
    )


def _why_due(log: LogDescription, figures: CompactionFigures, now_ms: int, force: bool) -> tuple[Cause, str] | None:
    """What decided that it is due, and the reason in words and figures."""
    config = log.config
    if force:
        return Cause.FORCED, f"forced; {_ratio(figures, config)}"
    if figures.dirty_ratio > config.min_cleanable_dirty_ratio:
        return Cause.DIRTY_RATIO, _ratio(figures, config)
    lag_due, horizon = figures.max_lag_due_ms, figures.next_delete_horizon_ms
    if lag_due is not None and lag_due <= now_ms and figures.dirty_bytes:
        return Cause.MAX_LAG, (
            f"max.compaction.lag.ms of {config.max_compaction_lag_ms:,} ran out {now_ms - lag_due:,} ms ago "
            "for a segment that has not been compacted"
        )
    if horizon is not None and horizon <= now_ms:
        return Cause.DELETE_HORIZON, f"the delete horizon of tombstones passed {now_ms - horizon:,} ms ago"
    return None


def _why_not(log: LogDescription, figures: CompactionFigures) -> tuple[Cause, str]:
    """What decided that it is not due, and the reason in words and figures."""
    if "compact" not in log.config.cleanup_policy:
        return Cause.POLICY, f"cleanup.policy is {','.join(log.config.cleanup_policy)}"
    if figures.dirty_bytes:
        return Cause.CLEAN_ENOUGH, f"only {_ratio(figures, log.config)}"
    waiting = next((it for it in log.closed_segments if it.next_offset > figures.end_offset), None)
    if waiting is None and figures.clean_bytes:
        return Cause.NOTHING_DIRTY, f"closed segments have been compacted up to offset {figures.first_dirty_offset}"
    if waiting is None:
        return Cause.NOTHING_CLOSED, "there is no closed segment, and the active one is never compacted"
    stable = min(log.high_watermark, log.last_stable_offset)
    if waiting.next_offset > stable:
        return Cause.NOT_STABLE, (
            f"the segment from offset {waiting.base_offset} goes on to {waiting.next_offset}, and only what is below "
            f"{stable} is committed, with its transactions ended"
        )
    return Cause.MIN_LAG, (
        f"the segment from offset {waiting.base_offset} has a record from within "
        f"min.compaction.lag.ms of {log.config.min_compaction_lag_ms:,}"
    )


def _ratio(figures: CompactionFigures, config: TopicConfig) -> str:
    return (
        f"{100 * figures.dirty_ratio:.1f}% of {figures.clean_bytes + figures.dirty_bytes:,} bytes have not been "
        f"compacted, min.cleanable.dirty.ratio is {100 * config.min_cleanable_dirty_ratio:g}%"
    )
