"""Merges small files of an archive (archive_table.py): frequent runs of the job leave many of them.

Only adjacent files of one partition and one day are merged, in the order of their offsets: readers rely on this order
(plan.py: `first_since`). The records stay the same, so streams from the table see no change, and readers that have
planned with the old files find them until VACUUM.

`choose` goes from the newest file back. It adds a file to the group if the file is tiny, or no larger than the group so
far. A group of `FEWEST` files or more is merged. So a merged file waits until the files after it are as large as
itself. A record is rewritten only as often as its file doubles, and about `FEWEST` small files of a day remain.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

import pyarrow as pa
from pyspark.sql import SparkSession

from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.spark.history.archive_files import ArchivedFile, DatedFiles, FilePart, TableLocation, discard
from sparklog.spark.history.archive_table import COLUMNS, ArchiveTable, ConcurrentCommit
from sparklog.spark.history.archived import read_file
from sparklog.spark.shipping import task_function
from sparklog.spark.source.offsets import PartitionRange

FEWEST = 16
SMALL_BYTES = 64 << 20
"""Files that are larger are left as they are."""
TINY_BYTES = 1 << 20
"""Rewriting this much costs no more than keeping a file."""
GROUP_BYTES = 128 << 20
RUN_BYTES = 1 << 30
"""Bytes of files that one call merges. Other files wait, so that fresh records do not."""
_ALL_OFFSETS = (0, (1 << 63) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeGroup:
    """Files to merge into one, in the order of their offsets."""

    partition: TopicPartition
    files: tuple[FilePart, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MergeOutcome:
    """The files that a task has written for a group, or its error."""

    group: MergeGroup
    files: list[ArchivedFile] = field(default_factory=list)
    error: str = ""


def merge_small_files(
    spark: SparkSession,
    place: TableLocation,
    partitions: Iterable[TopicPartition],
    say: Callable[[str], None] = lambda _: None,
) -> dict[TopicPartition, int]:
    """Merge small files of these partitions in one commit; return how many files of each were merged into others.

    If another writer has removed one of them meanwhile, do nothing, and tell `say`. Raises ConfigError if the table
    cannot be read or written.
    """
    table = ArchiveTable.open(place)
    groups = list(_groups_to_merge(table, partitions)) if table else []
    if table is None or not groups:
        return {}
    say(f"merging {sum(len(group.files) for group in groups)} small files of {place.uri}")
    merge = partial(merge_group, place=place)
    done = spark.sparkContext.parallelize(groups, len(groups)).map(task_function(merge)).collect()
    for failed in (each for each in done if each.error):
        say(f"{failed.group.partition}: small files could not be merged: {failed.error}")
    good = [each for each in done if not each.error]
    written = [file for each in good for file in each.files]
    try:
        table.replace([file for each in good for file in each.group.files], written)
    except ConcurrentCommit as moved:
        discard(place, [file.path for file in written])
        say(f"small files were not merged: {moved}")
        return {}
    counts: dict[TopicPartition, int] = {}
    for each in good:
        counts[each.group.partition] = counts.get(each.group.partition, 0) + len(each.group.files)
    return counts


def choose(files: Sequence[FilePart]) -> list[tuple[FilePart, ...]]:
    """Return the groups to merge of a partition's files, which are sorted by offset; each group is of one day."""
    groups = []
    by_day = sorted((file for file in files if file.alone), key=lambda file: file.date or "")
    for _, same_day in groupby(by_day, key=lambda file: file.date):
        for group in _back_from_the_newest(list(same_day)):
            if len(group) >= FEWEST:
                groups.append(tuple(reversed(group)))
    return groups


def merge_group(group: MergeGroup, *, place: TableLocation) -> _MergeOutcome:
    """Write the records of a group as one file, in a Spark task. If that fails, remove it and return the error."""
    writing = DatedFiles(place, group.partition)
    fs = place.files()
    try:
        for file in group.files:
            for rows in read_file(fs, file, PartitionRange(group.partition, *_ALL_OFFSETS), COLUMNS):
                writing.add(rows)
        return _MergeOutcome(group=group, files=writing.finish())
    except (SparklogError, OSError, pa.ArrowException) as error:
        writing.discard()
        reason = str(error) or traceback.format_exc(limit=1)
        return _MergeOutcome(group=group, error=f"{type(error).__name__}: {reason}")


def _groups_to_merge(table: ArchiveTable, partitions: Iterable[TopicPartition]) -> Iterator[MergeGroup]:
    """Yield the groups to merge, about `RUN_BYTES` of them."""
    total = 0
    for partition in partitions:
        for files in choose(table.files(partition, *_ALL_OFFSETS)):
            group = MergeGroup(partition=partition, files=files)
            total += group.size_bytes
            yield group
            if total >= RUN_BYTES:
                return


def _back_from_the_newest(files: Sequence[FilePart]) -> Iterator[list[FilePart]]:
    """Yield groups of files, newest first; a file is tiny, or no larger than the newer ones of its group together."""
    group: list[FilePart] = []
    total = 0
    for file in reversed(files):
        is_small = file.size_bytes < SMALL_BYTES
        fits = file.size_bytes <= max(total, TINY_BYTES) and total + file.size_bytes <= GROUP_BYTES
        if group and not (is_small and fits):
            yield group
            group, total = [], 0
        if is_small:
            group.append(file)
            total += file.size_bytes
    if group:
        yield group
