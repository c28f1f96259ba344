"""Results of log operations: an append, a read, a lookup by timestamp."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from sparklog.base.fs import ReadFile
from sparklog.log.disk import DiskGuard


class LogAppendInfo(NamedTuple):
    """The result of one append."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    """The last offset of the first batch with that timestamp."""
    log_append_time_ms: int
    """-1 if the timestamps are the producer's."""
    leader_epoch: int
    size_bytes: int
    log_start_offset: int = 0
    must_flush: bool = False
    """flush.messages records are unflushed: the caller must flush."""
    is_duplicate: bool = False
    """The batches were already in the log: this is their earlier result, and nothing was written."""


class TimestampOffset(NamedTuple):
    """A record found by its timestamp; leader_epoch is -1 if unknown."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class LogSlice(Struct):
    """Whole batches in a segment's file. Stays readable after the segment is deleted."""

    file: ReadFile
    position: int
    size: int
    """Bytes; 0 if there is nothing to read."""
    next_offset: int
    """The offset to read next: after the last record, or the requested offset if there is nothing to read. The first
    batch may begin below the requested offset."""
    disk: DiskGuard
    segment_base_offset: int = -1
    """The segment's base offset; if there is nothing to read, that of the segment expected to get the next batch."""
    data: bytes = b""
    """The bytes; empty if they have not been read yet."""

    def forget(self) -> None:
        """Free the bytes; `read` reads them again."""
        self.data = b""

    def read(self) -> bytes:
        """Return the bytes. Raises KafkaStorageError."""
        return self.data or self.head(self.size)

    def head(self, size: int) -> bytes:
        """Return the first `size` bytes, or all if there are fewer. Raises KafkaStorageError."""
        size = min(size, self.size)
        try:
            return self.file.read_at(self.position, size) if size else b""
        except OSError as error:
            raise self.disk.failed(error) from error
