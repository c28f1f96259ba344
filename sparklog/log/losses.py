"""Detection of lost flushed records: index files whose `.log` file is missing or empty.

A lost segment leaves a gap like that of compaction, so it must be reported. A broker that removes segments first
lowers the recovery point or raises the log start offset, and compaction rebuilds indexes. So an index that is left over
below the recovery point and above the log start belongs to a file that the disk or a person has removed or emptied.
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
    """Check an index file that has no .log. bases: of the existing segments. Raises CorruptRecord or OSError."""
    end = min((base for base in bases if base > index.base_offset), default=recovery_point)
    is_promised = index.base_offset < recovery_point and end > log_start_offset
    if is_promised and index.suffix in _INDEXES and _size_of(fs, path_in(folder, index)):
        raise _lost(path_in(folder, index._replace(suffix=LOG)), "is missing", index.base_offset)


def check_emptied(fs: Fs, folder: str, base_offset: int) -> None:
    """Check an empty closed segment below the recovery point. Raises CorruptRecord or OSError."""
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
