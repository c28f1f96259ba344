"""Partitions in a log directory: their folders and their readable records.

Records are readable below the high watermark in the checkpoint of the log directory
(``replication-offset-checkpoint``), or to the end of the log without a checkpoint. Reads of committed transactions also
end before the first offset of an open transaction.
"""

from __future__ import annotations

from typing import NamedTuple

from sparklog.arrow.filesystems import open_folder
from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import ConfigError, OffsetOutOfRange
from sparklog.base.ids import TopicPartition
from sparklog.log.files import LOG, parse_name
from sparklog.log.reader import LogReader
from sparklog.log.transactions import TransactionWalk
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges


class ReadableOffsets(NamedTuple):
    """Readable offsets of a partition: from `log_start` to before `end`."""

    log_start: int
    high_watermark: int
    first_unstable: int = MAX_LONG
    """For a read of committed transactions: the first offset of an open transaction, if there is one."""

    @property
    def end(self) -> int:
        """The last stable offset or, for a read of uncommitted transactions too, the high watermark."""
        return max(self.log_start, min(self.high_watermark, self.first_unstable))

    def end_after(self, offset: int) -> int:
        """Return the end of a read that has come to `offset`.

        An earlier read of uncommitted transactions may have come further than `end`: it then waits at `offset`.
        """
        return max(self.end, min(offset, self.high_watermark))


class PartitionFolder:
    """The readable records of a partition, from its folder."""

    def __init__(self, partition: TopicPartition, location: str, *, is_committed_only: bool) -> None:
        """is_committed_only: whether a read omits records of open and of aborted transactions"""
        self.partition = partition
        self.location = location
        self.is_committed_only = is_committed_only
        self._walked: TransactionWalk | None = None
        """Transactions up to the end of the last walk, from which the next one continues."""

    def bounds(self, reader: LogReader) -> ReadableOffsets:
        """Return the readable offsets; those of an empty log during the partition's creation. Raises OSError.

        reader: a reader of this folder
        """
        try:
            start, end, high_watermark = reader.bounds()
        except OffsetOutOfRange:
            return ReadableOffsets(0, 0)  # no segment yet
        committed = max(start, end if high_watermark is None else min(high_watermark, end))
        if not self.is_committed_only:
            return ReadableOffsets(start, committed)
        self._walked = reader.follow_transactions(committed, self._walked)
        unstable = self._walked.first_unstable_offset
        return ReadableOffsets(start, committed) if unstable is None else ReadableOffsets(start, committed, unstable)

    def offset_for_timestamp(self, reader: LogReader, timestamp_ms: int) -> int | None:
        """Return the offset of the first readable record at or after a timestamp; None if there is none."""
        offset = reader.offset_for_timestamp(timestamp_ms)
        return offset if offset is not None and offset < self.bounds(reader).end else None

    def aborted(self, reader: LogReader, offset_from: int, offset_to: int) -> AbortedRanges:
        """Return the aborted transactions that may have records at these offsets; none for a read of all records.

        Raises OSError, OffsetOutOfRange or CorruptRecord.
        """
        if not self.is_committed_only:
            return NONE_ABORTED
        if self._walked is None:
            self.bounds(reader)
        found = reader.aborted_transactions(offset_from, offset_to, self._walked)
        return AbortedRanges(each[:3] for each in found)


def partition_folders(path: str) -> dict[TopicPartition, str]:
    """Return the folder of each partition. Raises ConfigError if `path` has no partition.

    path: a log directory, or the folder of a single partition
    """
    path = path.rstrip("/") or "/"
    fs, folder = open_folder(path)
    try:
        names = fs.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"path {path}: there is no such folder") from None
    if _holds_segments(names):
        return {_parse_folder(path): path}
    folders = {}
    for name in names:
        try:
            partition = TopicPartition.parse(name)
        except ValueError:
            continue  # a checkpoint, meta.properties, or a folder that is being deleted
        folders[partition] = f"{path}/{name}"
    if not folders:
        raise ConfigError(f"path {path} is neither a log directory nor a partition's folder: no <topic>-<n>, no .log")
    return folders


def _holds_segments(names: list[str]) -> bool:
    files = map(parse_name, names)
    return any(file is not None and file.suffix == LOG for file in files)


def _parse_folder(path: str) -> TopicPartition:
    name = path.rpartition("/")[2]
    try:
        return TopicPartition.parse(name)
    except ValueError:
        raise ConfigError(f"path {path} holds segments, but its name is not <topic>-<n>") from None
