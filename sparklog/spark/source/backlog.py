"""The bytes of ranges that a stream has yet to read, and the offset that a given number of bytes reaches.

FolderBacklog      segment files that this machine sees: exact, by the offset indexes and the headers of batches
EstimatedBacklog   segments that are fetched, and files of an archive: the bytes of each, spread evenly over its offsets
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from sparklog.arrow.filesystems import LogReaders
from sparklog.base.ids import TopicPartition
from sparklog.log.reader import LogReader
from sparklog.log.segment.ranges import RangePrefix
from sparklog.spark.source.offsets import Lookup, PartitionRange


class Backlog(Protocol):
    """A range of offsets of one partition, with its size."""

    @property
    def size_bytes(self) -> int:
        """The bytes of all its batches, as they are in the log."""
        ...

    def take(self, size_bytes: int) -> RangePrefix:
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

    def take(self, size_bytes: int) -> RangePrefix:
        return self._reader.take(self._pieces, size_bytes)


class FilePiece(NamedTuple):
    """Offsets of a partition, and the bytes that a file has for them."""

    offset_from: int
    offset_to: int
    size_bytes: int


class EstimatedBacklog:
    """A range whose files are known by their offsets and sizes alone. Implements Backlog."""

    def __init__(self, pieces: Iterable[FilePiece], whole: PartitionRange) -> None:
        """pieces: in the order of their offsets; none overlaps another."""
        self._whole = whole
        self._pieces = []
        for piece in pieces:
            low, high = max(whole.offset_from, piece.offset_from), min(whole.offset_to, piece.offset_to)
            if low < high:
                size = piece.size_bytes * (high - low) // (piece.offset_to - piece.offset_from)
                self._pieces.append(FilePiece(low, high, size))
        self.size_bytes = sum(size for _, _, size in self._pieces)

    def take(self, size_bytes: int) -> RangePrefix:
        taken = 0
        for low, high, size in self._pieces:
            left = size_bytes - taken
            if size > left:
                count = max((high - low) * left // size, 0 if taken else 1)
                return RangePrefix(low + count, taken + size * count // (high - low))
            taken += size
        return RangePrefix(self._whole.offset_to, taken)


def measure(lookup: Lookup, ranges: Iterable[PartitionRange]) -> Mapping[TopicPartition, Backlog]:
    """Return the backlog of each range. Each range is of another partition.

    Raises OSError and the errors of `lookup`.
    """
    readers = LogReaders()
    found: dict[TopicPartition, Backlog] = {}
    fetched = []
    for whole in ranges:
        folder = lookup.folder(whole.partition)
        if folder is None:
            fetched.append(whole)
        else:
            found[whole.partition] = FolderBacklog(readers.open(folder), whole)
    described = lookup.segments([whole.partition for whole in fetched])
    for whole in fetched:
        segments = described[whole.partition]
        pieces = [FilePiece(each.base_offset, each.next_offset, each.size_bytes) for each in segments]
        found[whole.partition] = EstimatedBacklog(pieces, whole)
    return found
