"""Plan of a partition's compaction: whether it is due, why, and which segments it takes.

Pure functions, used by the compaction job and `sparklog explain compaction`. The rules are Kafka's
(LogCleanerManager.cleanableOffsets, LogToClean, Cleaner.groupSegmentsBySize).

    log start                first dirty                 end                      log end
        | closed, compacted before | closed, not yet compacted | too young, or active |

- First dirty: the cleaned offset or the log start, whichever is greater; the log start if the cleaned offset lies
  above the log's end.
- End: the end of the last closed segment that lies wholly below the high watermark and the last stable offset, and
  before the first dirty segment with a record younger than min.compaction.lag.ms. Kafka may also take a part of a
  segment; here a segment is taken whole or not at all.
- Due, if cleanup.policy contains compact, for the first of these reasons:
      it is forced, and there is a closed segment to take
      more than min.cleanable.dirty.ratio of the bytes below the end lie in dirty segments
      a dirty closed segment began more than max.compaction.lag.ms ago, and there are dirty bytes below the end
      a delete horizon that an earlier pass recorded has passed: tombstones may be removed
- Taken: every segment below the end, compacted before or not, because any of them may hold superseded records; except
  segments wholly below the log start, which retention removes. Adjacent segments are grouped, and each group becomes
  one segment: its total size fits segment.bytes, its index entries fit segment.index.bytes, and its offsets fit an
  index relative to the first base offset.

With a compaction strategy other than "offset" (KIP-280) an older record may supersede a newer one, so keys are read
from the log start, not from the first dirty offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.description import LogDescription, SegmentDescription

MAX_INT = 2**31 - 1
_INDEX_ENTRY_BYTES = 12  # of the time index, whose entries are the larger ones
_SMALLEST_BATCH = 61
Segments = tuple[SegmentDescription, ...]


class CompactionCause(StrEnum):
    """The cause of a decision that compaction is due, or not."""

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


class CompactionFigures(Struct, frozen=True, kw_only=True):
    """The figures on which the decision is based."""

    log_start_offset: int
    first_dirty_offset: int
    """The offset below which everything has been compacted."""
    end_offset: int
    """The offset from which on no segment can be compacted yet."""
    clean_bytes: int
    """Bytes in closed segments below the first dirty offset."""
    dirty_bytes: int
    """Bytes in segments between the first dirty offset and the end."""
    waiting_bytes: int
    """Bytes in closed segments from the end on, and in the active one."""
    max_lag_due_ms: int | None
    """The time when max.compaction.lag.ms makes compaction due; None if it does not apply."""
    next_delete_horizon_ms: int | None
    """The time from which the first tombstones may be removed, as an earlier pass recorded; None: not recorded."""

    @property
    def dirty_ratio(self) -> float:
        """The share of bytes below the end that lie in dirty segments, 0 to 1; 0 if there are none."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


class CompactionPlan(Struct, frozen=True, kw_only=True):
    """The plan of a compaction that is due."""

    partition: TopicPartition
    cause: CompactionCause
    reason: str
    """The cause as a text with figures."""
    figures: CompactionFigures
    keys_from_offset: int
    """The offset from which keys must be read, up to the end, to find superseded records."""
    groups: tuple[Segments, ...]
    """Groups of segments, oldest first; each group becomes one segment."""

    @property
    def first_dirty_offset(self) -> int:
        """The offset below which everything has been compacted."""
        return self.figures.first_dirty_offset

    @property
    def end_offset(self) -> int:
        """The cleaned offset after all groups are replaced."""
        return self.figures.end_offset

    @property
    def segments(self) -> Segments:
        """The segments of all groups, oldest first."""
        return tuple(segment for group in self.groups for segment in group)


class CompactionNotDue(Struct, frozen=True, kw_only=True):
    """The decision that compaction is not due."""

    partition: TopicPartition
    cause: CompactionCause
    reason: str
    figures: CompactionFigures


def plan_compaction(
    log: LogDescription, *, now_ms: int, force: bool = False, next_delete_horizon_ms: int | None = None
) -> CompactionPlan | CompactionNotDue:
    """Return the plan of the partition's compaction, or why it is not due at `now_ms`.

    force: compact all closed segments that can be taken, due or not
    next_delete_horizon_ms: from the partition's last compaction report
    """
    first_dirty = _first_dirty_offset(log)
    taken = _cleanable(log, first_dirty, now_ms)
    figures = _figures(log, first_dirty, taken, next_delete_horizon_ms)
    due = _why_due(log, figures, now_ms, force) if taken and "compact" in log.config.cleanup_policy else None
    if due is None:
        cause, reason = _why_not(log, figures)
        return CompactionNotDue(partition=log.partition, cause=cause, reason=reason, figures=figures)
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
    """Return adjacent segments in groups, each of which fits in one segment; one that is too large is its own group."""
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
    """Return whether `segment` can join the group that begins with `first`, which then has `size_bytes`.

    An empty segment has no offsets to index, so its distance from `first` does not matter.
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
    """Return the closed segments that compaction may take."""
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


def _why_due(
    log: LogDescription, figures: CompactionFigures, now_ms: int, force: bool
) -> tuple[CompactionCause, str] | None:
    """Return why compaction is due: the cause, and a text with figures; None if it is not due."""
    config = log.config
    if force:
        return CompactionCause.FORCED, f"forced; {_ratio(figures, config)}"
    if figures.dirty_ratio > config.min_cleanable_dirty_ratio:
        return CompactionCause.DIRTY_RATIO, _ratio(figures, config)
    lag_due, horizon = figures.max_lag_due_ms, figures.next_delete_horizon_ms
    if lag_due is not None and lag_due <= now_ms and figures.dirty_bytes:
        return CompactionCause.MAX_LAG, (
            f"max.compaction.lag.ms of {config.max_compaction_lag_ms:,} ran out {now_ms - lag_due:,} ms ago "
            "for a segment that has not been compacted"
        )
    if horizon is not None and horizon <= now_ms:
        return CompactionCause.DELETE_HORIZON, f"the delete horizon of tombstones passed {now_ms - horizon:,} ms ago"
    return None


def _why_not(log: LogDescription, figures: CompactionFigures) -> tuple[CompactionCause, str]:
    """Return why compaction is not due: the cause, and a text with figures."""
    if "compact" not in log.config.cleanup_policy:
        return CompactionCause.POLICY, f"cleanup.policy is {','.join(log.config.cleanup_policy)}"
    if figures.dirty_bytes:
        return CompactionCause.CLEAN_ENOUGH, f"only {_ratio(figures, log.config)}"
    waiting = next((it for it in log.closed_segments if it.next_offset > figures.end_offset), None)
    if waiting is None and figures.clean_bytes:
        return (
            CompactionCause.NOTHING_DIRTY,
            f"closed segments have been compacted up to offset {figures.first_dirty_offset}",
        )
    if waiting is None:
        return CompactionCause.NOTHING_CLOSED, "there is no closed segment, and the active one is never compacted"
    stable = min(log.high_watermark, log.last_stable_offset)
    if waiting.next_offset > stable:
        return CompactionCause.NOT_STABLE, (
            f"the segment from offset {waiting.base_offset} goes on to {waiting.next_offset}, and only what is below "
            f"{stable} is committed, with its transactions ended"
        )
    return CompactionCause.MIN_LAG, (
        f"the segment from offset {waiting.base_offset} has a record from within "
        f"min.compaction.lag.ms of {log.config.min_compaction_lag_ms:,}"
    )


def _ratio(figures: CompactionFigures, config: TopicConfig) -> str:
    return (
        f"{100 * figures.dirty_ratio:.1f}% of {figures.clean_bytes + figures.dirty_bytes:,} bytes have not been "
        f"compacted, min.cleanable.dirty.ratio is {100 * config.min_cleanable_dirty_ratio:g}%"
    )
