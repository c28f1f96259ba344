"""The bytes of ranges that a stream has yet to read, and the offset that a given number of bytes reaches.

FolderBacklog   a range whose segment files this machine sees: exact, by the offset indexes and the headers of batches
BrokerBacklog   a range that is fetched: estimated, as if the bytes of a segment were spread evenly over its offsets
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from sparklog.arrow.filesystems import Readers
from sparklog.base.ids import TopicPartition
from sparklog.log.description import SegmentDescription
from sparklog.log.reader import LogReader
from sparklog.log.segment.ranges import Taken
from sparklog.spark.source.offsets import Lookup, PartitionRange


class Backlog(Protocol):
    """A range of offsets of one partition, with its size."""

    @property
    def size_bytes(self) -> int:
        """The bytes of all its batches, as they are in the log."""
        ...

    def take(self, size_bytes: int) -> Taken:
        """Return the offset that the first `size_bytes` bytes reach; takes at least one batch, or one offset.

        Raises OffsetOutOfRange or FileNotFoundError if the segments are gone.
        """
        ...


class FolderBacklog:
    """A range in a folder. Implements Backlog."""

    def __init__(self, reader: LogReader, whole: PartitionRange) -> None:
        self._reader = reader
        self._pieces = reader.ranges(whole.offset_from, whole.offset_to)
        self.size_bytes = sum(piece.size for piece in self._pieces)

    def take(self, size_bytes: int) -> Taken:
        return self._reader.take(self._pieces, size_bytes)


class BrokerBacklog:
    """A range whose folder this machine does not see. Implements Backlog."""

    def __init__(self, segments: Sequence[SegmentDescription], whole: PartitionRange) -> None:
        self._whole = whole
        self._pieces = []
        for segment in segments:
            low, high = max(whole.offset_from, segment.base_offset), min(whole.offset_to, segment.next_offset)
            if low < high:
                size = segment.size_bytes * (high - low) // (segment.next_offset - segment.base_offset)
                self._pieces.append((low, high, size))
        self.size_bytes = sum(size for _, _, size in self._pieces)

    def take(self, size_bytes: int) -> Taken:
        taken = 0
        for low, high, size in self._pieces:
            left = size_bytes - taken
            if size > left:
                count = max((high - low) * left // size, 0 if taken else 1)
                return Taken(low + count, taken + size * count // (high - low))
            taken += size
        return Taken(self._whole.offset_to, taken)


def measure(lookup: Lookup, ranges: Iterable[PartitionRange]) -> Mapping[TopicPartition, Backlog]:
    """Return the backlog of each range. Each range is of another partition.

    Raises OSError and the errors of `lookup`.
    """
    readers = Readers()
    found: dict[TopicPartition, Backlog] = {}
    fetched = []
    for whole in ranges:
        folder = lookup.folder(whole.partition)
        if folder is None:
            fetched.append(whole)
        else:
            found[whole.partition] = FolderBacklog(readers.open(folder), whole)
    described = lookup.segments([whole.partition for whole in fetched])
    return found | {whole.partition: BrokerBacklog(described[whole.partition], whole) for whole in fetched}
