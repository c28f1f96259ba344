"""The end of a trigger within its limits; a trigger may also have to wait.

    minOffsetsPerTrigger   wait for more, but no longer than maxTriggerDelay after the last trigger that read something
    maxOffsetsPerTrigger   shared out over partitions in proportion to the offsets that wait
    maxBytesPerTrigger     every partition gets one batch, and the rest is shared out in proportion to the bytes that
                           wait. If there is no room for a batch of each, the partitions that have waited longest come
                           first. A trigger reads at least one batch: a batch larger than the limit must not stop the
                           query.

The time of the last trigger does not survive a restart: the first trigger of a run does not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparklog.base.ids import TopicPartition
from sparklog.log.segment.ranges import RangePrefix
from sparklog.spark.source.backlog import Backlog
from sparklog.spark.source.offsets import Offsets, PartitionRange, limit_rows
from sparklog.spark.source.options import TriggerLimits

Measure = Callable[[list[PartitionRange]], Mapping[TopicPartition, Backlog]]


class TriggerPace:
    """The earlier triggers of a query, as far as its limits depend on them."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        self._triggers = 0
        self._moved: dict[TopicPartition, int] = {}
        """By partition, the number of the last trigger that read it; only counted if bytes are limited."""

    def end(
        self, limits: TriggerLimits, start: Offsets, available: Offsets, measure: Measure, now_s: float
    ) -> dict[TopicPartition, int] | None:
        """Return the end of a trigger from `start`, at most `available`; None: the trigger waits for more records.

        now_s: time in seconds, of any monotonic clock
        Raises the errors of `measure`; such a call changes nothing.
        """
        count = sum(max(0, offset - start[partition]) for partition, offset in available.items())
        if count < limits.min_offsets and not self._is_due(limits, now_s):
            return None
        end = self._limited(limits, start, available, measure)
        if count:
            self._last_s = now_s
        return end

    def _is_due(self, limits: TriggerLimits, now_s: float) -> bool:
        return self._last_s is None or now_s - self._last_s >= limits.max_delay_ms / 1000

    def _limited(
        self, limits: TriggerLimits, start: Offsets, available: Offsets, measure: Measure
    ) -> dict[TopicPartition, int]:
        end = dict(available)
        if limits.max_offsets:
            end = limit_rows(start, end, limits.max_offsets)
        if not limits.max_bytes:
            return end
        wanted = [PartitionRange(partition, start[partition], offset) for partition, offset in sorted(end.items())]
        backlogs = measure([each for each in wanted if each.size > 0])
        moved = share_bytes(backlogs, limits.max_bytes, self._moved)
        self._triggers += 1
        self._moved.update(dict.fromkeys(moved, self._triggers))
        reached = {partition: taken.offset_to for partition, taken in moved.items()}
        return end | {partition: reached.get(partition, start[partition]) for partition in backlogs}


def share_bytes(
    backlogs: Mapping[TopicPartition, Backlog], max_bytes: int, moved_last: Mapping[TopicPartition, int]
) -> dict[TopicPartition, RangePrefix]:
    """Return how far to read each partition; partitions that must wait are left out.

    moved_last: by partition, the number of the last trigger that read it
    """
    firsts = {partition: backlog.take(1) for partition, backlog in backlogs.items()}
    moved: dict[TopicPartition, RangePrefix] = {}
    left = max_bytes
    for partition in sorted(backlogs, key=lambda each: (moved_last.get(each, 0), each)):
        if firsts[partition].size <= left or not moved:
            moved[partition] = firsts[partition]
            left -= firsts[partition].size
    behind = {partition: backlogs[partition].size_bytes - taken.size for partition, taken in moved.items()}
    total = sum(behind.values())
    for partition, count in behind.items():
        share = count * min(left, total) // total if total else 0
        if share > 0:
            moved[partition] = backlogs[partition].take(moved[partition].size + share)
    return moved
