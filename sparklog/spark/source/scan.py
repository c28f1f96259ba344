"""From ranges of offsets to tasks: the part of planning that opens folders.

If this machine sees the folder of a partition, its ranges are cut into pieces of segments, on batch boundaries.
Otherwise they are fetched, and cut between offsets. Sizes of ranges are in bytes, or in offsets if any range must be
fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from pyspark.sql.datasource import InputPartition

from sparklog.arrow.filesystems import LogDirOwner, LogReaders
from sparklog.base.ids import TopicPartition
from sparklog.log.reader import LogReader
from sparklog.log.segment.ranges import ReadRange
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges
from sparklog.spark.source.filters import LOWEST, Interval, Predicate
from sparklog.spark.source.offsets import Lookup, PartitionRange
from sparklog.spark.source.options import ReadOptions
from sparklog.spark.source.plan import count_tasks, divide, narrow, pack, prune, split


@dataclass(frozen=True, slots=True)
class FilesTask(InputPartition):
    """Pieces of one partition's segments, in order, for one task to read."""

    partition: TopicPartition
    folder: str
    ranges: tuple[ReadRange, ...]
    timestamp_ms: Interval
    """Timestamps that the filters allow; batches without such a record may be skipped."""
    aborted: AbortedRanges = NONE_ABORTED
    """Transactions to skip. The plan names them: their indexes may be replaced before the task reads."""
    owner: LogDirOwner | None = None
    """The broker whose log directory has the folder. An executor may have another broker's at the same path."""

    def __str__(self) -> str:
        whole = PartitionRange(self.partition, self.ranges[0].offset_from, self.ranges[-1].offset_to)
        return f"{whole}, from files in {self.folder}"


@dataclass(frozen=True, slots=True)
class FetchTask(InputPartition):
    """Offsets of one partition, for one task to fetch from the broker."""

    whole: PartitionRange

    @property
    def partition(self) -> TopicPartition:
        return self.whole.partition

    def __str__(self) -> str:
        return f"{self.whole}, by fetching"


Task = FilesTask | FetchTask


class FileRange:
    """A range that is read from segment files."""

    def __init__(
        self,
        whole: PartitionRange,
        kept: Sequence[PartitionRange],
        folder: str,
        reader: LogReader,
        timestamp_ms: Interval,
        aborted: AbortedRanges,
        owner: LogDirOwner | None,
    ) -> None:
        """kept: the parts of `whole` that may have records with these timestamps."""
        self.whole = whole
        self._kept = kept
        self._folder = folder
        self._reader = reader
        self._timestamp_ms = timestamp_ms
        self._aborted = aborted
        self._owner = owner

    @classmethod
    def within(
        cls,
        whole: PartitionRange,
        folder: str,
        reader: LogReader,
        timestamp_ms: Interval,
        aborted: AbortedRanges,
        owner: LogDirOwner | None,
    ) -> FileRange:
        """Return the range without segments that have no records with these timestamps. Raises OSError."""
        kept = [whole]
        if timestamp_ms.low > LOWEST:  # pruning opens every segment's index, and gains nothing without a lower bound
            kept = prune(whole, reader.segments(), timestamp_ms)
        return cls(whole, kept, folder, reader, timestamp_ms, aborted, owner)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes to read. The range is cut into segments at the first use."""
        return sum(piece.size for piece in self._pieces)

    @cached_property
    def _pieces(self) -> list[ReadRange]:
        return [piece for kept in self._kept for piece in self._reader.ranges(kept.offset_from, kept.offset_to)]

    def tasks(self, count: int) -> Iterator[Task]:
        """Yield at most `count` tasks that read the range, in order."""
        pieces = self._pieces if count == 1 else self._reader.divide(self._pieces, count)
        for group in pack(pieces, count):
            aborted = self._aborted.within(group[0].offset_from, group[-1].offset_to)
            yield FilesTask(self.whole.partition, self._folder, group, self._timestamp_ms, aborted, self._owner)


class BrokerRange:
    """A range that is fetched from the broker."""

    def __init__(self, whole: PartitionRange) -> None:
        self.whole = whole

    def tasks(self, count: int) -> Iterator[Task]:
        """Return `count` tasks that read the range, in order, or one per offset if it has fewer."""
        return map(FetchTask, divide(self.whole, count))


LocatedRange = FileRange | BrokerRange


def locate(lookup: Lookup, ranges: Iterable[PartitionRange], timestamp_ms: Interval) -> list[LocatedRange]:
    """Return how to read each range: from files if this machine sees its partition's folder, else from the broker.

    The ranges of a partition follow one another, in the order of their offsets.
    """
    readers = LogReaders()
    parts: list[LocatedRange] = []
    for partition, of_partition in groupby(ranges, lambda each: each.partition):
        folder, wanted = lookup.folder(partition), [*of_partition]
        if folder is None:
            parts += map(BrokerRange, wanted)
            continue
        whole = PartitionRange(partition, wanted[0].offset_from, wanted[-1].offset_to)
        reader, owner, aborted = readers.open(folder), readers.owner(folder), lookup.aborted(whole)
        parts += [FileRange.within(each, folder, reader, timestamp_ms, aborted, owner) for each in wanted]
    return parts


def plan_tasks(
    options: ReadOptions, lookup: Lookup, ranges: Sequence[PartitionRange], predicate: Predicate
) -> list[Task]:
    """Return the tasks that read what `predicate` allows of `ranges`. Raises OSError and the errors of `lookup`."""
    wanted = split(narrow(ranges, predicate), options.max_records_per_partition)
    parts = locate(lookup, wanted, predicate.timestamp_ms)
    counts = count_tasks(_sizes(parts), options.min_partitions)
    return [task for part, count in zip(parts, counts, strict=True) for task in part.tasks(count)]


def _sizes(parts: Sequence[LocatedRange]) -> list[int]:
    in_files = [part.size_bytes for part in parts if isinstance(part, FileRange)]
    return in_files if len(in_files) == len(parts) else [part.whole.size for part in parts]
