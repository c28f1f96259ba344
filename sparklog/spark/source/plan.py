"""Planning a scan: which offsets, in how many tasks. Arithmetic on plain values only.

    ranges of offsets ──▶ narrow          keep the offsets that the query's filters allow
                      ──▶ split           no task with more than maxRecordsPerPartition offsets
                      ──▶ prune           leave out segments whose newest record is too old (files only)
                      ──▶ count_tasks     minPartitions, shared out by size
                      ──▶ pack | divide   pieces of segments, or offsets, into tasks

Ranges of different partitions are never joined, so the records of a partition reach a task in offset order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Protocol, TypeVar

from sparklog.log.reader import SegmentInfo
from sparklog.spark.source.filters import Interval, Predicate
from sparklog.spark.source.offsets import PartitionRange


class Sized(Protocol):
    """Anything with a size to read, in bytes."""

    @property
    def size(self) -> int:
        """The size in bytes."""
        ...


Piece = TypeVar("Piece", bound=Sized)


def narrow(ranges: Iterable[PartitionRange], predicate: Predicate) -> list[PartitionRange]:
    """Return the parts of the ranges that the predicate's topics, partitions and offsets allow."""
    kept = []
    for each in ranges:
        if not predicate.wants(each.partition):
            continue
        offset_from = max(each.offset_from, predicate.offset.low)
        offset_to = min(each.offset_to, predicate.offset.high + 1)
        if offset_from < offset_to:
            kept.append(PartitionRange(each.partition, offset_from, offset_to))
    return kept


def split(ranges: Iterable[PartitionRange], max_records: int) -> list[PartitionRange]:
    """Return the ranges; a range with more than `max_records` offsets is cut into equal parts. 0: cut none."""
    if not max_records:
        return list(ranges)
    return [part for each in ranges for part in divide(each, -(-each.size // max_records))]


def divide(whole: PartitionRange, count: int) -> list[PartitionRange]:
    """Return `count` parts of `whole` of nearly equal size, or single offsets if it has fewer than `count`."""
    count = max(1, min(count, whole.size))
    edges = [whole.offset_from + whole.size * i // count for i in range(count + 1)]
    return [PartitionRange(whole.partition, low, high) for low, high in pairwise(edges)]


def prune(whole: PartitionRange, segments: Sequence[SegmentInfo], timestamp_ms: Interval) -> list[PartitionRange]:
    """Return the parts of `whole` without segments whose newest record is too old; adjacent parts are joined."""
    kept = [
        each
        for each in segments
        if each.base_offset < whole.offset_to
        and each.next_offset > whole.offset_from
        and (each.max_timestamp_ms is None or each.max_timestamp_ms >= timestamp_ms.low)
    ]
    return list(_parts_in_segments(whole, kept))


def count_tasks(sizes: Sequence[int], min_tasks: int) -> list[int]:
    """Return the number of tasks for each range, given the ranges' sizes; the sum is at least `min_tasks`.

    Every range gets one task or more, by its size. Each task that is still missing goes to the range whose tasks are
    largest.
    """
    counts = [1] * len(sizes)
    if not sizes or min_tasks <= len(sizes):
        return counts
    total = sum(sizes) or 1
    counts = [max(1, size * min_tasks // total) for size in sizes]
    while sum(counts) < min_tasks:
        largest = max(range(len(sizes)), key=lambda i: sizes[i] / counts[i])
        counts[largest] += 1
    return counts


def pack(pieces: Sequence[Piece], count: int) -> list[tuple[Piece, ...]]:
    """Return neighbouring pieces in at most `count` groups of about the same size in bytes; no group is empty."""
    total = sum(piece.size for piece in pieces)
    groups: list[list[Piece]] = [[] for _ in range(max(1, count))]
    before = 0
    for piece in pieces:
        middle = before + piece.size // 2
        groups[min(len(groups) - 1, middle * len(groups) // max(1, total))].append(piece)
        before += piece.size
    return [tuple(group) for group in groups if group]


def _parts_in_segments(whole: PartitionRange, segments: Iterable[SegmentInfo]) -> Iterator[PartitionRange]:
    """Yield the parts of `whole` that lie in the segments, adjacent parts as one range."""
    current: PartitionRange | None = None
    for segment in segments:
        offset_from = max(whole.offset_from, segment.base_offset)
        offset_to = min(whole.offset_to, segment.next_offset)
        if current is not None and current.offset_to == offset_from:
            current = current._replace(offset_to=offset_to)
            continue
        if current is not None:
            yield current
        current = PartitionRange(whole.partition, offset_from, offset_to)
    if current is not None:
        yield current
