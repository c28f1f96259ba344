"""Values that a log gives out: what an append did, bytes that a read found, a record found by its timestamp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sparklog.base.fs import ReadFile
from sparklog.log.disk import DiskGuard


class Appended(NamedTuple):
    """What became of the batches of one append."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    """The last offset of the first batch that has it."""
    log_append_time_ms: int
    """-1 where timestamps are the producer's."""
    leader_epoch: int
    size_bytes: int
    must_flush: bool = False
    """flush.messages records are unflushed: whoever appended sees to a flush."""
    is_duplicate: bool = False
    """The batches were in the log already, and this is what became of them then; nothing was written."""


class TimestampOffset(NamedTuple):
    """A record by its timestamp; leader_epoch -1: not known."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Whole batches in a segment's file, unread. Stays readable while the segment is deleted, until it is let go."""

    file: ReadFile
    position: int
    size: int
    """0: there is nothing to read."""
    next_offset: int
    """Where to read on: behind the last record, or what was asked for where there is nothing to read. The first batch
    may begin below the offset that was asked for."""
    disk: DiskGuard
    segment_base_offset: int = -1
    """Of the segment; where there is nothing to read, of the one that the next batch will be in, as far as is known."""

    def read(self) -> bytes:
        """The bytes. Raises KafkaStorageError."""
        try:
            return self.file.read_at(self.position, self.size) if self.size else b""
        except OSError as error:
            raise self.disk.failed(error) from error
