"""From options to offsets: where in each partition a read begins and ends.

`Lookup` is what has to be known of the topics; `folders` answers from files, `broker` from a running broker. Everything
else here is arithmetic on what it says. Records that should be there and are not (deleted before they were read, or a
log that is shorter than it was) are collected as sentences; `report_losses` fails the query over them, or warns where
``failOnDataLoss`` is false.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol

from sparklog.base.errors import ConfigError, DataLost, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.spark.source.options import (
    EARLIEST_IN_JSON,
    LATEST_IN_JSON,
    AtCommitted,
    AtOffsets,
    AtTimestamps,
    Edge,
    NoMatch,
    Position,
    ReadOptions,
    Selection,
)

logger = logging.getLogger("sparklog.spark")

Offsets = Mapping[TopicPartition, int]


class Bounds(NamedTuple):
    """What of a partition may be read: offsets from `log_start` to before `high_watermark`."""

    log_start: int
    high_watermark: int


class OffsetRange(NamedTuple):
    """Offsets `offset_from` to before `offset_to` of one partition."""

    partition: TopicPartition
    offset_from: int
    offset_to: int

    @property
    def size(self) -> int:
        return self.offset_to - self.offset_from


class ArchiveName(NamedTuple):
    """Where a partition is archived."""

    uri: str
    """Empty: nowhere that is known."""
    topic_id: str
    """Empty: not known."""


class Lookup(Protocol):
    """What is there, by topic and partition."""

    def bounds(self, selection: Selection) -> dict[TopicPartition, Bounds]:
        """The partitions that are selected, and their bounds.

        Raises UnknownTopicOrPartition where one that is named does not exist.
        """
        ...

    def offsets_for_times(self, timestamps_ms: Offsets) -> dict[TopicPartition, int | None]:
        """The first committed record as late as each timestamp; None where there is none."""
        ...

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the consumer group of the options goes on, in those partitions in which it has committed."""
        ...

    def commit(self, offsets: Offsets) -> None:
        """Tell the group of the options, if they name one, how far a query has come; raises SparklogError."""
        ...

    def folder(self, partition: TopicPartition) -> str | None:
        """Where the partition's segments can be read from here; None where they cannot."""
        ...

    def archives(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ArchiveName]:
        """Where each of these partitions is archived."""
        ...

    def close(self) -> None: ...


def batch_ranges(options: ReadOptions, lookup: Lookup) -> tuple[list[OffsetRange], list[str]]:
    """What a batch reads of each partition, empty ranges left out, and what of it is lost."""
    bounds = lookup.bounds(options.selection)
    start, lost_before = starting_offsets(options.starting, bounds, lookup)
    end, lost_after = ending_offsets(options.ending, bounds, lookup)
    ranges = [OffsetRange(partition, start[partition], end[partition]) for partition in sorted(bounds)]
    return [each for each in ranges if each.size > 0], lost_before + lost_after


def starting_offsets(
    position: Position, bounds: Mapping[TopicPartition, Bounds], lookup: Lookup
) -> tuple[dict[TopicPartition, int], list[str]]:
    """The first offset to read of each partition, and what is lost.

    Raises ConfigError where the position does not name the partitions that are read, or no record is late enough.
    """
    chosen = _chosen(position, bounds, lookup, "starting")
    lost = [
        f"{partition} was to be read from offset {offset}, but begins at {bounds[partition].log_start}"
        for partition, offset in chosen.items()
        if offset < bounds[partition].log_start
    ] + [
        f"{partition} was to be read from offset {offset}, but ends at {bounds[partition].high_watermark}"
        for partition, offset in chosen.items()
        if offset > bounds[partition].high_watermark
    ]
    return {partition: _within(offset, bounds[partition]) for partition, offset in chosen.items()}, lost


def ending_offsets(
    position: Position, bounds: Mapping[TopicPartition, Bounds], lookup: Lookup
) -> tuple[dict[TopicPartition, int], list[str]]:
    """The offset before which to stop in each partition, and what is lost. Raises as `starting_offsets` does."""
    chosen = _chosen(position, bounds, lookup, "ending")
    lost = [
        f"{partition} was to be read up to offset {offset}, but ends at {bounds[partition].high_watermark}"
        for partition, offset in chosen.items()
        if offset > bounds[partition].high_watermark
    ]
    return {partition: _within(offset, bounds[partition]) for partition, offset in chosen.items()}, lost


def stream_ranges(
    start: Offsets, end: Offsets, bounds: Mapping[TopicPartition, Bounds]
) -> tuple[list[OffsetRange], list[str]]:
    """What one trigger reads: from `start` to `end`, new partitions from their beginning; and what is lost."""
    ranges, lost = [], [f"{partition} is gone" for partition in sorted(start) if partition not in end]
    for partition, offset_to in sorted(end.items()):
        log_start = bounds[partition].log_start if partition in bounds else 0
        offset_from = start.get(partition, 0)
        if offset_from < log_start and offset_from < offset_to:
            lost.append(f"{partition} was to be read from offset {offset_from}, but begins at {log_start}")
            offset_from = log_start
        if offset_to < offset_from and partition in start:
            lost.append(f"{partition} was read up to offset {offset_from}, but now ends at {offset_to}")
        ranges.append(OffsetRange(partition, offset_from, offset_to))
    return [each for each in ranges if each.size > 0], lost


def limit_rows(start: Offsets, end: Offsets, max_rows: int) -> dict[TopicPartition, int]:
    """`end`, drawn nearer so that at most `max_rows` offsets lie between; each partition gives in proportion.

    The offsets that rounding leaves over go to the partitions that are furthest from their share, so that a small
    partition beside a large one is not starved.
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
    """Raise DataLost over what is lost, or log a warning."""
    if not lost:
        return
    sentence = "; ".join(lost)
    if fail:
        raise DataLost(f"{sentence}. Set failOnDataLoss to false to read what is left")
    logger.warning("records were lost: %s", sentence)


def check_there(wanted: Set[Any], there: Set[Any], where: str) -> None:
    """Raise UnknownTopicOrPartition over the topics or partitions that are not there."""
    if missing := sorted(map(str, wanted - there)):
        raise UnknownTopicOrPartition(f"not {where}: {', '.join(missing)}")


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets as Spark keeps them in a checkpoint, in one order always: Spark compares them as text."""
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics


def from_json(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """What `to_json` made."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, numbers in topics.items()
        for number, offset in numbers.items()
    }


def _chosen(
    position: Position, bounds: Mapping[TopicPartition, Bounds], lookup: Lookup, which: str
) -> dict[TopicPartition, int]:
    """The offset that `position` means in each partition, which may lie outside of its bounds."""
    match position:
        case Edge.EARLIEST:
            return {partition: each.log_start for partition, each in bounds.items()}
        case Edge.LATEST:
            return {partition: each.high_watermark for partition, each in bounds.items()}
        case AtOffsets(offsets):
            _check_named(offsets, bounds, f"{which}Offsets")
            return {partition: _edge_or_offset(offsets[partition], each) for partition, each in bounds.items()}
        case AtCommitted():
            committed = lookup.committed(bounds)
            return {partition: committed.get(partition, each.log_start) for partition, each in bounds.items()}
        case AtTimestamps(timestamps_ms, no_match):
            if isinstance(timestamps_ms, int):
                return _at_times(dict.fromkeys(bounds, timestamps_ms), no_match, bounds, lookup)
            _check_named(timestamps_ms, bounds, f"{which}OffsetsByTimestamp")
            return _at_times(timestamps_ms, no_match, bounds, lookup)


def _at_times(
    timestamps_ms: Offsets, no_match: NoMatch, bounds: Mapping[TopicPartition, Bounds], lookup: Lookup
) -> dict[TopicPartition, int]:
    found = lookup.offsets_for_times(timestamps_ms)
    offsets = {}
    for partition, each in bounds.items():
        offset = found[partition]
        if offset is None and no_match is NoMatch.ERROR:
            raise ConfigError(
                f"no record of {partition} has timestamp {timestamps_ms[partition]} or later; "
                "with startingOffsetsByTimestampStrategy = latest such a partition is read from its end"
            )
        offsets[partition] = each.high_watermark if offset is None else _within(offset, each)
    return offsets


def _edge_or_offset(offset: int, bounds: Bounds) -> int:
    return {EARLIEST_IN_JSON: bounds.log_start, LATEST_IN_JSON: bounds.high_watermark}.get(offset, offset)


def _within(offset: int, bounds: Bounds) -> int:
    return min(max(offset, bounds.log_start), bounds.high_watermark)


def _check_named(named: Iterable[TopicPartition], read: Iterable[TopicPartition], option: str) -> None:
    missing, extra = sorted(set(read) - set(named)), sorted(set(named) - set(read))
    if missing:
        raise ConfigError(f"{option} must name every partition that is read; missing: {', '.join(map(str, missing))}")
    if extra:
        raise ConfigError(f"{option} names partitions that are not read: {', '.join(map(str, extra))}")
