"""Explains a batch read: the files of each partition that it would open, and why. Reads no records.

>>> since = GreaterThanOrEqual(("timestamp",), datetime(2013, 12, 20, tzinfo=UTC))
>>> print(explain({"path": "./sparklog-data", "subscribe": "departures"}, [since]))
5 of 61 segments, 4.4 of 58.9 MB, in 3 tasks
departures-0: offsets 0 to 33570, from files in ./sparklog-data/departures-0: path names the log directory
  2 of 20 segments, 1.6 of 19.8 MB, in 1 task; left out: 18 by the filters on timestamp
...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sparklog.arrow.filesystems import open_reader
from sparklog.arrow.folders import ReadableOffsets
from sparklog.arrow.segments import settled
from sparklog.base.errors import OffsetOutOfRange
from sparklog.base.ids import TopicPartition
from sparklog.log.description import SegmentDescription
from sparklog.log.reader import SegmentInfo
from sparklog.spark.folders import open_lookup
from sparklog.spark.source.filters import Predicate, fold
from sparklog.spark.source.offsets import Lookup, PartitionRange, batch_ranges
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.options import ReadMode, ReadOptions
from sparklog.spark.source.plan import narrow
from sparklog.spark.source.scan import FilesTask, Task, plan_tasks
from sparklog.spark.spark_api import Filter

AnyTask = TypeVar("AnyTask")
BY_RANGE = "by the starting and ending offsets"
BY_PARTITION = "by the filters on topic and partition"
BY_OFFSETS = "by the filters on offset"
BY_TIMESTAMPS = "by the filters on timestamp"
IN_ARCHIVE = "whose offsets are in the archive"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveScan:
    """The part of a partition that readMode history takes from the archive."""

    uri: str
    offset_to: int
    """The archive has the offsets below this one; the log is read from this one on."""
    files: int
    """Parquet files that are opened."""
    files_total: int
    """Parquet files that may hold records of the partition."""
    size_bytes: int
    tasks: int

    def __str__(self) -> str:
        files, tasks = _count_text(self.files_total, "file"), _count_text(self.tasks, "task")
        return (
            f"below offset {self.offset_to} from the archive {self.uri}: {self.files} of {files}, "
            f"{self.size_bytes / 1e6:.1f} MB, in {tasks}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionScan:
    """The part of one partition that a read opens."""

    partition: TopicPartition
    offset_from: int
    offset_to: int
    """`offset_from` to before `offset_to` are the offsets that options and filters allow; equal if they allow none."""
    folder: str | None
    """The folder of its segment files; None: its records are fetched through the broker."""
    why: str
    """The reason why its records are read from there, or why none are read."""
    tasks: int
    """Tasks that read the log; `archive` has those that read the archive."""
    segments: int
    """Segment files that are opened; for a partition that is fetched, segments that the broker opens."""
    segments_total: int
    size_bytes: int
    """For a partition that is fetched, an estimate: as if each segment's bytes were spread evenly over its offsets."""
    size_bytes_total: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Numbers of segments that are not opened, by the reason."""
    archive: ArchiveScan | None = None
    """None: nothing is read from an archive."""

    def __str__(self) -> str:
        if self.offset_from >= self.offset_to:
            return f"{self.partition}: nothing: {self.why}"
        place = "fetched" if self.folder is None else f"from files in {self.folder}"
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        lines = [f"{self.partition}: offsets {self.offset_from} to {self.offset_to - 1}, {place}: {self.why}"]
        if self.archive is not None:
            lines.append(f"  {self.archive}")
        lines.append(f"  {_size_text(self)}{'; left out: ' if left_out else ''}{left_out}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """All that a read opens: each partition, and the totals."""

    partitions: tuple[PartitionScan, ...]
    lost: tuple[str, ...] = ()
    """Sentences about offsets that the options name and the log has lost; failOnDataLoss fails the read."""

    @property
    def tasks(self) -> int:
        """Tasks of log and archive."""
        return sum(each.tasks + (each.archive.tasks if each.archive else 0) for each in self.partitions)

    @property
    def segments(self) -> int:
        """Segments that are opened."""
        return sum(each.segments for each in self.partitions)

    @property
    def segments_total(self) -> int:
        """Segments of the selected partitions."""
        return sum(each.segments_total for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes that are read of segments; without the archive."""
        return sum(each.size_bytes for each in self.partitions)

    @property
    def size_bytes_total(self) -> int:
        """Bytes of the segments of the selected partitions."""
        return sum(each.size_bytes_total for each in self.partitions)

    @property
    def summary(self) -> str:
        """The totals in one line."""
        return _size_text(self)

    def __str__(self) -> str:
        return "\n".join([self.summary, *map(str, self.partitions), *(f"lost: {each}" for each in self.lost)])


def explain(options: Mapping[str, str], filters: Sequence[Filter] = ()) -> Scan:
    """Return all that a batch read with these options opens if Spark pushes these filters down.

    Raises ConfigError for options that are not allowed, and the errors of planning a read, but not DataLost.
    """
    parsed = parse_read_options(options, OptionUse.BATCH)
    predicate, _ = fold(filters)
    lookup = open_lookup(parsed)
    try:
        return settled(lambda: _explain(parsed, lookup, predicate))
    finally:
        lookup.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadPlan:
    """The ranges and tasks of a read, in archive and log."""

    ranges: Mapping[TopicPartition, PartitionRange]
    """Ranges that the options select, of archive and log together."""
    log: Mapping[TopicPartition, PartitionRange]
    """The parts of `ranges` that are read from the log."""
    tasks: Mapping[TopicPartition, Sequence[Task]]
    """Tasks that read the log."""
    archives: Mapping[TopicPartition, ArchiveScan]
    lost: Sequence[str]


def _explain(options: ReadOptions, lookup: Lookup, predicate: Predicate) -> Scan:
    bounds = lookup.bounds(options.selection)
    folders = {partition: lookup.folder(partition) for partition in sorted(bounds)}
    described = lookup.segments([partition for partition, folder in folders.items() if folder is None])
    plan = (_plan_history if options.read_mode is ReadMode.HISTORY else _plan_log)(options, lookup, predicate)
    found = []
    for partition, folder in folders.items():
        segments = _folder_segments(folder) if folder else _broker_segments(described[partition])
        found.append(_explain_partition(options, predicate, plan, bounds[partition], partition, folder, segments))
    return Scan(partitions=tuple(found), lost=tuple(plan.lost))


def _plan_log(options: ReadOptions, lookup: Lookup, predicate: Predicate) -> _ReadPlan:
    ranges, lost = batch_ranges(options, lookup)
    tasks = plan_tasks(options, lookup, ranges, predicate)
    by_partition = {each.partition: each for each in ranges}
    return _ReadPlan(
        ranges=by_partition,
        log=by_partition,
        tasks=_group_by_partition(tasks, lambda task: task.partition),
        archives={},
        lost=lost,
    )


def _plan_history(options: ReadOptions, lookup: Lookup, predicate: Predicate) -> _ReadPlan:
    from sparklog.spark.history.plan import divide_history  # loads deltalake, which no other read needs

    history = divide_history(options, lookup)
    archived, log = history.tasks(options, lookup, predicate)
    archives = {}
    for partition, tasks in _group_by_partition(archived, lambda task: task.partition).items():
        part = history.archived_parts[partition]
        opened = {file.path: file.size_bytes for task in tasks for file in task.files}
        archives[partition] = ArchiveScan(
            uri=part.table.place.uri,
            offset_to=part.archived.offset_to,
            files=len(opened),
            files_total=len(part.table.files(partition, *part.archived)),
            size_bytes=sum(opened.values()),
            tasks=len(tasks),
        )
    return _ReadPlan(
        ranges={each.partition: each for each in history.ranges},
        log={each.partition: each for each in history.newer},
        tasks=_group_by_partition(log, lambda task: task.partition),
        archives=archives,
        lost=history.lost,
    )


def _explain_partition(
    options: ReadOptions,
    predicate: Predicate,
    plan: _ReadPlan,
    bounds: ReadableOffsets,
    partition: TopicPartition,
    folder: str | None,
    segments: Sequence[SegmentInfo],
) -> PartitionScan:
    whole = plan.ranges.get(partition, PartitionRange(partition, bounds.log_start, bounds.log_start))
    left = next(iter(narrow([whole], predicate)), whole._replace(offset_to=whole.offset_from))
    tasks = plan.tasks.get(partition, ())
    opened = _opened_bytes(tasks, segments)
    closed = [each for each in segments if each.base_offset not in opened]
    return PartitionScan(
        partition=partition,
        offset_from=left.offset_from,
        offset_to=left.offset_to,
        folder=folder,
        why=_location_reason(options, folder) if left.size else _empty_reason(whole, bounds, predicate),
        tasks=len(tasks),
        segments=len(opened),
        segments_total=len(segments),
        size_bytes=sum(opened.values()),
        size_bytes_total=sum(each.size for each in segments),
        left_out=Counter(_skip_reason(each, plan, whole, left, predicate) for each in closed),
        archive=plan.archives.get(partition),
    )


def _opened_bytes(tasks: Iterable[Task], segments: Sequence[SegmentInfo]) -> dict[int, int]:
    """Return the bytes that the tasks read of each segment that they open, by its base offset."""
    opened: dict[int, int] = {}
    for task in tasks:
        if isinstance(task, FilesTask):
            pieces = [(piece.segment_base, piece.size) for piece in task.ranges]
        else:
            pieces = [(each.base_offset, each.size) for each in _overlaps(segments, task.whole)]
        for base, size in pieces:
            opened[base] = opened.get(base, 0) + size
    return opened


def _overlaps(segments: Iterable[SegmentInfo], whole: PartitionRange) -> Iterator[SegmentInfo]:
    """Yield the parts of segments that a range touches, as if their bytes were spread evenly over their offsets."""
    for each in segments:
        low, high = max(each.base_offset, whole.offset_from), min(each.next_offset, whole.offset_to)
        if low < high:
            yield each._replace(size=each.size * (high - low) // (each.next_offset - each.base_offset))


def _location_reason(options: ReadOptions, folder: str | None) -> str:
    if options.path is not None:
        return "path names the log directory"
    if options.read_mode is ReadMode.FETCH:
        return "readMode = fetch"
    seen = "no log directory of an in-sync replica is" if folder is None else "the folder of an in-sync replica is"
    return f"readMode = {options.read_mode}, and {seen} visible from here"


def _empty_reason(whole: PartitionRange, bounds: ReadableOffsets, predicate: Predicate) -> str:
    if not predicate.wants(whole.partition):
        return "the filters want other topics or partitions"
    if whole.size:
        return f"the filters leave none of the offsets {whole.offset_from} to {whole.offset_to - 1}"
    if bounds.log_start == bounds.end:
        return f"there are no records: the log begins and ends at {bounds.end}"
    return f"the options leave none of the offsets {bounds.log_start} to {bounds.end - 1}"


def _skip_reason(
    each: SegmentInfo, plan: _ReadPlan, whole: PartitionRange, left: PartitionRange, predicate: Predicate
) -> str:
    """Return why a segment is not opened: the first reason on the way from options to tasks."""
    if not _touches(each, whole):
        return BY_RANGE
    if not predicate.wants(whole.partition):
        return BY_PARTITION
    if not _touches(each, left):
        return BY_OFFSETS
    log = plan.log.get(whole.partition)
    return BY_TIMESTAMPS if log is not None and _touches(each, log) else IN_ARCHIVE


def _touches(each: SegmentInfo, whole: PartitionRange) -> bool:
    return each.base_offset < whole.offset_to and each.next_offset > whole.offset_from


def _folder_segments(folder: str) -> tuple[SegmentInfo, ...]:
    try:
        return open_reader(folder).segments()
    except OffsetOutOfRange:
        return ()  # no segment yet: the partition is being created


def _broker_segments(segments: Iterable[SegmentDescription]) -> tuple[SegmentInfo, ...]:
    return tuple(SegmentInfo(each.base_offset, each.next_offset, each.size_bytes, None) for each in segments)


def _group_by_partition(
    tasks: Iterable[AnyTask], of: Callable[[AnyTask], TopicPartition]
) -> dict[TopicPartition, list[AnyTask]]:
    groups: dict[TopicPartition, list[AnyTask]] = {}
    for task in tasks:
        groups.setdefault(of(task), []).append(task)
    return groups


def _size_text(scan: Scan | PartitionScan) -> str:
    about = "about " if isinstance(scan, PartitionScan) and scan.folder is None else ""
    return (
        f"{scan.segments} of {_count_text(scan.segments_total, 'segment')}, {about}{scan.size_bytes / 1e6:.1f} of "
        f"{scan.size_bytes_total / 1e6:.1f} MB, in {_count_text(scan.tasks, 'task')}"
    )


def _count_text(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
