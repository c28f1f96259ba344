"""How many bytes of archive and log wait to be read, and how far some of them reach (source/backlog.py).

Sizes of the archive are those of its Parquet files, as they are compressed there: an estimate, as a file's bytes are
spread evenly over its offsets. Sizes of the log are what any read takes them for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from sparklog.log.segment.ranges import RangePrefix
from sparklog.spark.history.archive_files import FilePart
from sparklog.spark.source.backlog import Backlog, EstimatedBacklog, FilePiece
from sparklog.spark.source.offsets import PartitionRange


class HistoryBacklog:
    """A range that begins in the archive, and may end in the log. Implements Backlog."""

    def __init__(self, archived: PartitionRange, files: Iterable[FilePart], log: Backlog | None) -> None:
        """log: what the range has in the log; None: it ends in the archive."""
        self._archived = archived
        self._files = EstimatedBacklog(disjoint_pieces(files), archived)
        self._log = log
        self.size_bytes = self._files.size_bytes + (log.size_bytes if log else 0)

    def take(self, size_bytes: int) -> RangePrefix:
        taken = self._files.take(size_bytes)
        if self._log is None or taken.offset_to < self._archived.offset_to:
            return taken
        more = self._log.take(size_bytes - taken.size)
        fits = taken.size + more.size <= size_bytes  # or its first batch is too large for what is left
        return RangePrefix(more.offset_to, taken.size + more.size) if fits else taken


def disjoint_pieces(files: Iterable[FilePart]) -> Iterator[FilePiece]:
    """Yield pieces that follow one another, with all bytes of files that may overlap, as those of different days do."""
    changes: defaultdict[int, float] = defaultdict(float)
    for file in files:
        density = file.size_bytes / (file.offset_last + 1 - file.offset_first)
        changes[file.offset_first] += density
        changes[file.offset_last + 1] -= density
    density = 0.0
    for low, high in pairwise(sorted(changes)):
        density += changes[low]
        yield FilePiece(low, high, round(max(0.0, density) * (high - low)))
