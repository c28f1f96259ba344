"""How many segments and bytes a read would open, out of how many, without reading them.

>>> since = GreaterThanOrEqual(("timestamp",), datetime(2013, 12, 20, tzinfo=UTC))
>>> print(explain({"path": "./sparklog-data", "subscribe": "departures"}, [since]))
5 of 61 segments, 4.4 of 58.9 MB, in 4 tasks
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql.datasource import Filter

from sparklog.arrow.filesystems import open_reader
from sparklog.base.errors import ConfigError
from sparklog.spark.folders import open_lookup
from sparklog.spark.source.filters import fold
from sparklog.spark.source.offsets import batch_ranges
from sparklog.spark.source.option_parsing import Use, parse_read_options
from sparklog.spark.source.options import ReadMode
from sparklog.spark.source.scan import FilesTask, plan_tasks


class Scan(NamedTuple):
    """How much of the selected partitions a read opens. Records fetched from the broker count only as a task."""

    tasks: int
    segments: int
    segments_total: int
    size_bytes: int
    size_bytes_total: int

    def __str__(self) -> str:
        return (
            f"{self.segments} of {self.segments_total} segments, {self.size_bytes / 1e6:.1f} of "
            f"{self.size_bytes_total / 1e6:.1f} MB, in {self.tasks} tasks"
        )


def explain(options: Mapping[str, str], filters: Sequence[Filter] = ()) -> Scan:
    """Return how much a batch read with these options opens if Spark pushes these filters down.

    Raises ConfigError for options that are not allowed, and for readMode history.
    """
    parsed = parse_read_options(options, Use.BATCH)
    if parsed.read_mode is ReadMode.HISTORY:
        raise ConfigError("explain covers logs, but not the archive that readMode = history reads")
    predicate, _ = fold(filters)
    lookup = open_lookup(parsed)
    try:
        folders = [lookup.folder(partition) for partition in lookup.bounds(parsed.selection)]
        there = [segment for folder in folders if folder for segment in open_reader(folder).segments()]
        ranges, _ = batch_ranges(parsed, lookup)
        tasks = plan_tasks(parsed, lookup, ranges, predicate)
    finally:
        lookup.close()
    opened = [(task.partition, piece) for task in tasks if isinstance(task, FilesTask) for piece in task.ranges]
    return Scan(
        tasks=len(tasks),
        segments=len({(partition, piece.segment_base) for partition, piece in opened}),
        segments_total=len(there),
        size_bytes=sum(piece.size for _, piece in opened),
        size_bytes_total=sum(segment.size for segment in there),
    )
