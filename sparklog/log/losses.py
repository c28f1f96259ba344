"""What the disk, or somebody, has taken from a log that was flushed: index files tell of batches that are in no file.

A gap in a log looks like what compaction leaves, so it must not be met without a word. Whoever removes segments lets
go of what was promised first (the recovery point, the log start offset), and compaction makes indexes anew: what is
left of an index below the recovery point and above the log start is of a file that nobody meant to change.
"""

from __future__ import annotations

from collections.abc import Collection

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import Fs
from sparklog.log.files import LOG, OFFSET_INDEX, TIME_INDEX, SegmentFile, path_in

HOW_TO_GO_ON = (
    "Restore the file. Or, where another broker has a replica, stop this one and move the partition's folder away: it "
    "is fetched again. Or, to give the records up, move away"
)
_INDEXES = (OFFSET_INDEX, TIME_INDEX)


def check_missing(
    fs: Fs, folder: str, index: SegmentFile, bases: Collection[int], *, log_start_offset: int, recovery_point: int
) -> None:
    """`index`: without its .log; bases: of the segments that there are. Raises CorruptRecord or OSError."""
    end = min((base for base in bases if base > index.base_offset), default=recovery_point)
    is_promised = index.base_offset < recovery_point and end > log_start_offset
    if is_promised and index.suffix in _INDEXES and _size_of(fs, path_in(folder, index)):
        raise _lost(path_in(folder, index._replace(suffix=LOG)), "is missing", index.base_offset)


def check_emptied(fs: Fs, folder: str, base_offset: int) -> None:
    """A closed segment below the recovery point, without a byte. Raises CorruptRecord or OSError."""
    if any(_size_of(fs, path_in(folder, SegmentFile(base_offset, suffix, ""))) for suffix in _INDEXES):
        raise _lost(path_in(folder, SegmentFile(base_offset, LOG, "")), "is empty", base_offset)


def _lost(path: str, what: str, base_offset: int) -> CorruptRecord:
    return CorruptRecord(
        f"{path} {what}: flushed records are lost, from offset {base_offset} on at the earliest. {HOW_TO_GO_ON} what "
        "there is of the segment, its .index and .timeindex too"
    )


def _size_of(fs: Fs, path: str) -> int:
    if not fs.exists(path):
        return 0
    file = fs.open_read(path)
    try:
        return file.size
    finally:
        file.close()
