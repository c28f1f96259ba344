"""Detection of lost flushed records: a `.log` file that is missing, empty or cut short, and a log that ends too early.

A lost segment leaves a gap like one that compaction makes, so a start would not notice the loss. These facts show it:

- A broker lowers the recovery point or raises the log start offset before it removes segments, and compaction rebuilds
  indexes. So an index without a log, below the recovery point and above the log start, belongs to a file that the disk
  or a person has removed or emptied.
- A closed segment ends with a whole batch, and its indexes describe no batch beyond that.
- A truncation lowers the checkpointed recovery point before it touches a file. So the log never ends below that point.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import ReadFile, ReadFs
from sparklog.log.directory.checkpoints import RECOVERY_POINTS
from sparklog.log.files import LOG, OFFSET_INDEX, TIME_INDEX, SegmentFile, path_in
from sparklog.log.segment.indexes import IndexEntries, OffsetIndex, TimeIndex
from sparklog.log.segment.scan import walk

HOW_TO_GO_ON = (
    "Restore the file. Or, where another broker has a replica, stop this one and move the partition's folder away: it "
    "is fetched again. Or, to give the records up, move away"
)
_INDEXES = (OFFSET_INDEX, TIME_INDEX)
Index = TypeVar("Index", bound=IndexEntries)


def check_missing(
    fs: ReadFs, folder: str, index: SegmentFile, bases: Collection[int], *, log_start_offset: int, recovery_point: int
) -> None:
    """Check an index file that has no .log. bases: of the existing segments. Raises CorruptRecord or OSError."""
    end = min((base for base in bases if base > index.base_offset), default=recovery_point)
    is_promised = index.base_offset < recovery_point and end > log_start_offset
    if is_promised and index.suffix in _INDEXES and _size_of(fs, path_in(folder, index)):
        raise _lost_records_error(path_in(folder, index._replace(suffix=LOG)), "is missing", index.base_offset)


def check_closed(fs: ReadFs, folder: str, base_offset: int, next_offset: int) -> None:
    """Check a closed segment that lies below the recovery point, and before the one that begins at `next_offset`.

    Only the end of its file is read, unless that does not match the index. Raises CorruptRecord or OSError.
    """
    file = fs.open_read(path_in(folder, SegmentFile(base_offset, LOG, "")))
    try:
        check_closed_file(fs, folder, file, base_offset, next_offset)
    finally:
        file.close()


def check_closed_file(fs: ReadFs, folder: str, file: ReadFile, base_offset: int, next_offset: int) -> None:
    """Do what `check_closed` does, for a segment whose file is open."""
    path = path_in(folder, SegmentFile(base_offset, LOG, ""))
    size = file.size
    if not size:
        if any(_size_of(fs, path_in(folder, SegmentFile(base_offset, suffix, ""))) for suffix in _INDEXES):
            raise _lost_records_error(path, "is empty", base_offset)
        return
    offsets = _last_of(OffsetIndex, fs, path_in(folder, SegmentFile(base_offset, OFFSET_INDEX, "")), base_offset)
    offset, position = offsets[len(offsets) - 1] if len(offsets) else (base_offset, 0)
    found = _find_end(file, position, base_offset) if 0 <= position < size else None
    if found is None or found[1] < size:  # the index does not match the file
        found = _find_end(file, 0, base_offset)
    if found is None:
        return  # no batch begins where one should: a read reports it
    end, position = found
    if position < size:
        raise _lost_records_error(path, "is cut off inside a batch", end)
    if end < next_offset:  # compaction leaves such gaps, too, but no index entries that describe them
        times = _last_of(TimeIndex, fs, path_in(folder, SegmentFile(base_offset, TIME_INDEX, "")), base_offset)
        if any(end <= claimed < next_offset for claimed in (offset, times.last.offset)):
            raise _lost_records_error(path, "ends before the last batch in its indexes", end)


def check_end(folder: str, end_offset: int, *, log_start_offset: int, recovery_point: int) -> None:
    """Check the end of the log that was found in its files. Raises CorruptRecord."""
    if max(end_offset, log_start_offset) < recovery_point:
        raise CorruptRecord(
            f"{folder} ends at offset {end_offset}, below the recovery point {recovery_point}: flushed records are "
            f"lost. {HOW_TO_GO_ON} {RECOVERY_POINTS} of the log directory, while the broker is stopped"
        )


def _find_end(file: ReadFile, position: int, end_offset: int) -> tuple[int, int] | None:
    """Return the offset and the position after the last whole batch; None if there are bytes that are no batch."""
    try:
        for place in walk(file, position, file.size):
            end_offset, position = place.last_offset + 1, place.end
    except CorruptRecord:
        return None
    return end_offset, position


def _last_of(kind: type[Index], fs: ReadFs, path: str, base_offset: int) -> Index:
    """Return an index of the file's last entry alone; of all its entries, if the file does not end with one."""
    if not fs.exists(path):
        return kind(base_offset)
    file = fs.open_read(path)
    try:
        size = kind.LAYOUT.size
        last = kind(base_offset, file.read_at(max(0, file.size // size - 1) * size, size))
        return last if len(last) else kind(base_offset, file.read_at(0, file.size))
    finally:
        file.close()


def _lost_records_error(path: str, what: str, base_offset: int) -> CorruptRecord:
    return CorruptRecord(
        f"{path} {what}: flushed records are lost, from offset {base_offset} on at the earliest. {HOW_TO_GO_ON} what "
        "there is of the segment, its .index and .timeindex too"
    )


def _size_of(fs: ReadFs, path: str) -> int:
    if not fs.exists(path):
        return 0
    file = fs.open_read(path)
    try:
        return file.size
    finally:
        file.close()
