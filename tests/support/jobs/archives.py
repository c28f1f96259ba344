"""Archiving without a JVM: what Spark would do with the tasks is done here, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from sparklog.base.ids import TopicPartition
from sparklog.client import Maintenance
from sparklog.log.description import LogDescription
from sparklog.spark.history.archive import ArchiveTarget, CopyResult, archive
from sparklog.spark.history.archive_files import TableLocation
from support.spark_topics import Topics

DAY_MS = 86_400_000
FIRST_DAY_MS = 15_000 * DAY_MS


class InProcess:
    """As much of a SparkSession as archiving asks for."""

    def __init__(self, before_collect: Callable[[], None] = lambda: None) -> None:
        self.sparkContext = self
        self._before_collect = before_collect
        self._tasks: Sequence[Any] = ()
        self._function: Callable[[Any], Any]

    def parallelize(self, tasks: Sequence[Any], _: int) -> InProcess:
        self._tasks = tasks
        return self

    def map(self, function: Callable[[Any], Any]) -> InProcess:
        self._function = function
        return self

    def collect(self) -> list[Any]:
        done = [self._function(task) for task in self._tasks]
        self._before_collect()
        return done


def fill_days(topics: Topics, topic: str, count: int, *, partition: int = 0, first: int = 0) -> None:
    """Records in batches of ten, four a day, every second one late by three days, with headers."""
    numbers = range(first, first + count)
    moments = [FIRST_DAY_MS + i * DAY_MS // 4 - (i % 2) * 3 * DAY_MS for i in numbers]
    topics.fill(
        topic,
        count,
        partition=partition,
        batches=count // 10,
        key=[b"k%d" % (i % 7) if i % 3 else None for i in numbers],
        timestamp=pa.array(moments, pa.timestamp("ms", "UTC")),
        headers=[[{"key": "n", "value": b"%d" % i}, {"key": "n", "value": None}][: i % 3] for i in numbers],
    )


def describe(topics: Topics, topic: str) -> dict[TopicPartition, LogDescription]:
    """The topic's logs."""
    with Maintenance(bootstrap_servers=topics.bootstrap) as maintenance:
        found = maintenance.describe_logs()
    return {name: log for name, log in found.items() if name.topic == topic and isinstance(log, LogDescription)}


def archive_closed(
    topics: Topics, topic: str, uri: str | Path, spark: Any = None, **options: Any
) -> dict[TopicPartition, CopyResult]:
    """Archive the topic's closed segments."""
    wanted = [
        ArchiveTarget(log=log, offset_to=log.closed_segments[-1].next_offset)
        for log in describe(topics, topic).values()
        if log.closed_segments
    ]
    client = {"bootstrap_servers": topics.bootstrap}
    return archive(spark or InProcess(), TableLocation(str(uri)), wanted, client, **options)


def archived_rows(uri: str | Path) -> list[dict[str, Any]]:
    """What the table has, by partition and offset."""
    rows: list[dict[str, Any]] = DeltaTable(str(uri)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def parquet_files(uri: str | Path) -> set[str]:
    """The names of all Parquet files in the table's folder, whether the table names them or not."""
    return {path.name for path in Path(uri).glob("date=*/*.parquet")}


def named_files(uri: str | Path) -> set[str]:
    """The names of the files that the table has."""
    return {Path(name).name for name in DeltaTable(str(uri)).file_uris()}
