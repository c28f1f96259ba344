"""From options to offsets: where a read begins and ends in each partition.

`Lookup` supplies the facts about topics; `folders` answers from files, `broker` from a running broker. The rest of this
module is arithmetic on its answers. A sentence describes each loss of records: they were deleted before they were read,
or the log became shorter. `report_losses` fails the query with these sentences, or logs them if ``failOnDataLoss`` is
false.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol

from sparklog.arrow.folders import ReadableOffsets
from sparklog.base.errors import ConfigError, DataLost, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.log.description import SegmentDescription
from sparklog.records.aborted import AbortedRanges
from sparklog.spark.source.options import (
    EARLIEST_IN_JSON,
    LATEST_IN_JSON,
    CommittedOffsets,
    Edge,
    NoMatchStrategy,
    Position,
    ReadOptions,
    Selection,
    SpecificOffsets,
    SpecificTimestamps,
)

logger = logging.getLogger("sparklog.spark")

Offsets = Mapping[TopicPartition, int]


class PartitionRange(NamedTuple):
    """Offsets of one partition, from `offset_from` to before `offset_to`."""

    partition: TopicPartition
    offset_from: int
    offset_to: int

    def __str__(self) -> str:
        return f"{self.partition}, offsets {self.offset_from} to {self.offset_to - 1}"

    @property
    def size(self) -> int:
        """The number of offsets; some may have no record."""
        return self.offset_to - self.offset_from


class ArchiveName(NamedTuple):
    """Location of a partition's archive."""

    uri: str
    """Empty: none known."""
    topic_id: str
    """Empty: not known."""


class Lookup(Protocol):
    """Facts about topics and partitions: bounds, offsets, folders and archives."""

    def topics(self, selection: Selection) -> list[str]:
        """Return the names of the selected topics. A topic that the selection names need not exist."""
        ...

    def bounds(self, selection: Selection) -> dict[TopicPartition, ReadableOffsets]:
        """Return the bounds of the selected partitions.

        Raises UnknownTopicOrPartition if a topic or partition that the selection names does not exist.
        """
        ...

    def offsets_for_times(self, timestamps_ms: Offsets) -> dict[TopicPartition, int | None]:
        """Return the offset of the first readable record at or after each timestamp (ms); None if there is none."""
        ...

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of the options' consumer group, for partitions that have one."""
        ...

    def commit(self, offsets: Offsets) -> None:
        """Commit a query's progress to the options' consumer group, if they name one. Raises SparklogError."""
        ...

    def folder(self, partition: TopicPartition) -> str | None:
        """Return the folder from which this machine can read the partition's segments; None if there is none."""
        ...

    def segments(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[SegmentDescription, ...]]:
        """Return the segments, oldest first, of partitions whose folders this machine does not see."""
        ...

    def aborted(self, whole: PartitionRange) -> AbortedRanges:
        """Return the aborted transactions that may have records in a range, from the partition's folder.

        Empty for a read of uncommitted transactions. Raises OSError, OffsetOutOfRange or CorruptRecord.
        """
        ...

    def archives(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ArchiveName]:
        """Return the location of each partition's archive."""
        ...

    def close(self) -> None:
        """Close connections to brokers. Call no other method after it."""
        ...


def batch_ranges(options: ReadOptions, lookup: Lookup) -> tuple[list[PartitionRange], list[str]]:
    """Return the ranges that a batch reads, without empty ones, and the losses."""
    bounds = lookup.bounds(options.selection)
    start, lost_before = starting_offsets(options.starting, bounds, lookup)
    end, lost_after = ending_offsets(options.ending, bounds, lookup)
    ranges = [PartitionRange(partition, start[partition], end[partition]) for partition in sorted(bounds)]
    return [each for each in ranges if each.size > 0], lost_before + lost_after


def starting_offsets(
    position: Position, bounds: Mapping[TopicPartition, ReadableOffsets], lookup: Lookup
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the first offset to read of each partition, and the losses.

    Raises ConfigError if the position does not name exactly the partitions that are read, or if no record is at or
    after a timestamp.
    """
    chosen = _offsets_at(position, bounds, lookup, "starting")
    lost = [
        f"{partition} was to be read from offset {offset}, but begins at {bounds[partition].log_start}"
        for partition, offset in chosen.items()
        if offset < bounds[partition].log_start
    ] + [
        f"{partition} was to be read from offset {offset}, but ends at {bounds[partition].high_watermark}"
        for partition, offset in chosen.items()
        if offset > bounds[partition].high_watermark
    ]
    return {partition: _clamp(offset, bounds[partition]) for partition, offset in chosen.items()}, lost


def ending_offsets(
    position: Position, bounds: Mapping[TopicPartition, ReadableOffsets], lookup: Lookup
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the offset before which to stop in each partition, and the losses.

    Raises as `starting_offsets` does, and ConfigError if the position names an offset above an open transaction.
    """
    chosen = _offsets_at(position, bounds, lookup, "ending")
    if isinstance(position, SpecificOffsets):
        _check_stable(chosen, bounds)
    lost = [
        f"{partition} was to be read up to offset {offset}, but ends at {bounds[partition].high_watermark}"
        for partition, offset in chosen.items()
        if offset > bounds[partition].high_watermark
    ]
    within = {partition: _clamp(offset, bounds[partition]) for partition, offset in chosen.items()}
    return {partition: min(offset, bounds[partition].end) for partition, offset in within.items()}, lost


def stream_ranges(
    start: Offsets, end: Offsets, bounds: Mapping[TopicPartition, ReadableOffsets]
) -> tuple[list[PartitionRange], list[str]]:
    """Return the ranges that a trigger reads, from `start` to `end`, and the losses; new partitions begin at 0.

    Raises ConfigError if a range reaches above an open transaction: the trigger was planned with another isolation
    level.
    """
    moved = {partition: offset for partition, offset in end.items() if offset > start.get(partition, 0)}
    _check_stable(moved, bounds)
    ranges, lost = [], [f"{partition} is gone" for partition in sorted(start) if partition not in end]
    for partition, offset_to in sorted(end.items()):
        offset_from = start.get(partition, 0)
        if offset_to < offset_from:
            lost.append(f"{partition} was read up to offset {offset_from}, but now ends at {offset_to}")
        if offset_to <= offset_from:
            continue
        if partition not in bounds:  # of a batch that was planned before a restart
            lost.append(f"{partition} is gone")
            continue
        log_start, log_end = bounds[partition].log_start, bounds[partition].high_watermark
        if offset_from < log_start:
            lost.append(f"{partition} was to be read from offset {offset_from}, but begins at {log_start}")
        if offset_to > log_end:
            lost.append(f"{partition} was to be read up to offset {offset_to}, but ends at {log_end}")
        ranges.append(PartitionRange(partition, max(offset_from, log_start), min(offset_to, log_end)))
    return [each for each in ranges if each.size > 0], lost


def limit_rows(start: Offsets, end: Offsets, max_rows: int) -> dict[TopicPartition, int]:
    """Return `end`, lowered so that at most `max_rows` offsets lie after `start`, shared out in proportion.

    Offsets left over by rounding go to the partitions that are furthest below their share, so that a large partition
    does not starve a small one.
    """
    behind = {partition: max(0, offset - start.get(partition, 0)) for partition, offset in end.items()}
    total = sum(behind.values())
    if total <= max_rows:
        return dict(end)
    given = {partition: count * max_rows // total for partition, count in behind.items()}
    left_over = max_rows - sum(given.values())
    by_need = sorted(behind, key=lambda partition: (-(behind[partition] * max_rows % total), partition))
    for partition in by_need[:left_over]:
        given[partition] += 1
    return {
        partition: start.get(partition, 0) + given[partition] if behind[partition] else offset
        for partition, offset in end.items()
    }


def report_losses(lost: Sequence[str], *, fail: bool) -> None:
    """Raise DataLost with the losses, or log a warning if `fail` is false; do nothing without losses."""
    if not lost:
        return
    sentence = "; ".join(lost)
    if fail:
        raise DataLost(f"{sentence}. Set failOnDataLoss to false to read what is left")
    logger.warning("records were lost: %s", sentence)


def check_exist(wanted: Set[Any], there: Set[Any], where: str) -> None:
    """Raise UnknownTopicOrPartition if topics or partitions are missing."""
    if missing := sorted(map(str, wanted - there)):
        raise UnknownTopicOrPartition(f"not {where}: {', '.join(missing)}")


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets as a Spark checkpoint holds them. The order is always the same: Spark compares them as text."""
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics


def from_json(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the offsets in the JSON of `to_json`."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, numbers in topics.items()
        for number, offset in numbers.items()
    }


def _offsets_at(
    position: Position, bounds: Mapping[TopicPartition, ReadableOffsets], lookup: Lookup, which: str
) -> dict[TopicPartition, int]:
    """Return the offset of `position` in each partition; it may lie outside of the bounds."""
    match position:
        case Edge.EARLIEST:
            return {partition: each.log_start for partition, each in bounds.items()}
        case Edge.LATEST:
            return {partition: each.end for partition, each in bounds.items()}
        case SpecificOffsets(offsets):
            _check_named(offsets, bounds, f"{which}Offsets")
            return {partition: _edge_or_offset(offsets[partition], each) for partition, each in bounds.items()}
        case CommittedOffsets():
            committed = lookup.committed(bounds)
            return {partition: committed.get(partition, each.log_start) for partition, each in bounds.items()}
        case SpecificTimestamps(timestamps_ms, no_match):
            if isinstance(timestamps_ms, int):
                return _offsets_at_times(dict.fromkeys(bounds, timestamps_ms), no_match, bounds, lookup)
            _check_named(timestamps_ms, bounds, f"{which}OffsetsByTimestamp")
            return _offsets_at_times(timestamps_ms, no_match, bounds, lookup)


def _offsets_at_times(
    timestamps_ms: Offsets, no_match: NoMatchStrategy, bounds: Mapping[TopicPartition, ReadableOffsets], lookup: Lookup
) -> dict[TopicPartition, int]:
    found = lookup.offsets_for_times(timestamps_ms)
    offsets = {}
    for partition, each in bounds.items():
        offset = found[partition]
        if offset is None and no_match is NoMatchStrategy.ERROR:
            raise ConfigError(
                f"no record of {partition} has timestamp {timestamps_ms[partition]} or later; "
                "with startingOffsetsByTimestampStrategy = latest such a partition is read from its end"
            )
        offsets[partition] = each.end if offset is None else _clamp(offset, each)
    return offsets


def _edge_or_offset(offset: int, bounds: ReadableOffsets) -> int:
    return {EARLIEST_IN_JSON: bounds.log_start, LATEST_IN_JSON: bounds.end}.get(offset, offset)


def _clamp(offset: int, bounds: ReadableOffsets) -> int:
    return min(max(offset, bounds.log_start), bounds.high_watermark)


def _check_stable(ends: Offsets, bounds: Mapping[TopicPartition, ReadableOffsets]) -> None:
    """Raise ConfigError if a read would go beyond an open transaction: it would skip, and lose, its records."""
    for partition, offset in sorted(ends.items()):
        each = bounds.get(partition)
        if each is not None and each.end < offset <= each.high_watermark:
            raise ConfigError(
                f"{partition} was to be read up to offset {offset}, but a transaction is open from offset {each.end} "
                "on: read again when it has ended, or with kafka.isolation.level = read_uncommitted"
            )


def _check_named(named: Iterable[TopicPartition], read: Iterable[TopicPartition], option: str) -> None:
    missing, extra = sorted(set(read) - set(named)), sorted(set(named) - set(read))
    if missing:
        raise ConfigError(f"{option} must name every partition that is read; missing: {', '.join(map(str, missing))}")
    if extra:
        raise ConfigError(f"{option} names partitions that are not read: {', '.join(map(str, extra))}")
