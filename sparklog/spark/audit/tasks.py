"""The tasks of an audit: they read segments, from the folder if the task sees it, else through the broker.

A task reads a file as it is when the task opens it, not as it was when the work was planned. It also reads records that
were appended meanwhile, so a high watermark that was reported earlier lies within the file. A segment that was replaced
meanwhile has other bytes, so the comparison checks its identity once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.arrow.filesystems import LogDirOwner, log_directory, not_seen, open_folder, sees
from sparklog.base.errors import (
    BrokerNotAvailable,
    InvalidUpdateVersion,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from sparklog.base.fs import ReadFile, ReadFs
from sparklog.base.ids import TopicPartition
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.files import LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, segment_name
from sparklog.spark.audit.segment_scan import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    SegmentFiles,
    SegmentWork,
    list_batches,
    scan_segment,
)
from sparklog.spark.audit.tables import BATCHES, FACTS, WORK, to_arrow, to_table
from sparklog.spark.shipping import task_function

LISTED_ROWS = 4096
TASKS_PER_CORE = 4
GONE = (BrokerNotAvailable, InvalidUpdateVersion, NotLeaderOrFollower, OffsetOutOfRange, UnknownTopicOrPartition)
"""Errors if the segment is gone, the replica was moved, or its broker is gone. The next view shows which."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SegmentAccess:
    """How tasks reach segments: in the folders that the driver saw, else through brokers."""

    owners: Mapping[str, LogDirOwner | None]
    """The broker of each log directory, as the driver sees it."""
    client: Mapping[str, Any]
    """Keyword arguments of clients; empty for an audit of folders without brokers."""

    @classmethod
    def of(cls, work: list[tuple[Any, ...]], client: Mapping[str, Any]) -> SegmentAccess:
        """Return the access to the segments that rows of WORK name."""
        return cls({path: LogDirOwner.of(path) for path in {log_directory(row[3]) for row in work if row[3]}}, client)


def read_facts(spark: SparkSession, work: list[tuple[Any, ...]], client: Mapping[str, Any]) -> DataFrame:
    """Return FACTS of the segments that rows of WORK name."""
    access = SegmentAccess.of(work, client)
    return _in_tasks(spark, work, WORK, FACTS, lambda row: iter([scan_row(row, access)]))


def read_batches(spark: SparkSession, work: list[tuple[Any, ...]], client: Mapping[str, Any]) -> DataFrame:
    """Return BATCHES of the segments that rows of WORK name, from `compare_from` up to `compare_to`."""
    access = SegmentAccess.of(work, client)
    return _in_tasks(spark, work, WORK, BATCHES, lambda row: _batch_rows(row, access))


def _in_tasks(
    spark: SparkSession,
    work: list[tuple[Any, ...]],
    work_schema: str,
    schema: str,
    read: Callable[[Row], Iterator[tuple[Any, ...]]],
) -> DataFrame:
    """Return the rows of `schema` that `read` makes of each row of work. The largest segments begin first."""
    count = max(1, min(len(work), TASKS_PER_CORE * spark.sparkContext.defaultParallelism))
    largest_first = sorted(work, key=lambda row: -row[7])
    rows = to_table(spark, largest_first, work_schema)
    arrow_schema = to_arrow_schema(StructType.fromDDL(schema))

    reading = uuid4()

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _ = reading  # makes it another plan: Spark would answer an equal plan from the cache of an earlier reading
        for batch in batches:
            for row in batch.to_pylist():
                held: list[tuple[Any, ...]] = []
                for made in read(row):
                    held.append(made)
                    if len(held) == LISTED_ROWS:
                        yield from to_arrow(held, arrow_schema).to_batches()
                        held = []
                if held:
                    yield from to_arrow(held, arrow_schema).to_batches()

    return rows.repartition(count).mapInArrow(task_function(run), schema)


def scan_row(row: Row, access: SegmentAccess) -> tuple[Any, ...]:
    """Return a row of FACTS for a row of WORK."""
    with ExitStack() as opened:
        facts = scan_segment(_open_files(row, access, opened), _segment_work(row))
    return (
        row["broker"], row["topic"], row["partition"], row["base_offset"], row["next_offset"], row["identity"],
        facts.is_gone, facts.size_bytes, facts.batches, facts.end_offset,
        [problem._asdict() for problem in facts.problems], [each._asdict() for each in facts.slices],
    )  # fmt: skip


def _batch_rows(row: Row, access: SegmentAccess) -> Iterator[tuple[Any, ...]]:
    with ExitStack() as opened:
        files = _open_files(row, access, opened)
        for batch in list_batches(files, row["base_offset"], row["compare_from"], row["compare_to"]):
            yield (row["broker"], row["topic"], row["partition"], *batch)


def _segment_work(row: Row) -> SegmentWork:
    return SegmentWork(
        base_offset=row["base_offset"],
        next_offset=row["next_offset"],
        log_start_offset=row["log_start_offset"],
        gaps_to=row["gaps_to"],
        epochs=tuple((each["epoch"], each["start_offset"]) for each in row["epochs"]),
        known_to=row["known_to"],
        compare_from=row["compare_from"],
        compare_to=row["compare_to"],
        cuts=tuple(row["cuts"]),
    )


def _open_files(row: Row, access: SegmentAccess, opened: ExitStack) -> SegmentFiles:
    """Return the files of a segment. Raises ConfigError if there is no broker and this machine sees no folder."""
    if folder := row["folder"]:
        if sees(folder, access.owners[log_directory(folder)]):
            return FolderFiles(*open_folder(folder), row["base_offset"], opened)
        if not access.client:
            raise not_seen(folder)
    # Loads the gRPC client, which tasks that read folders do not need.
    from sparklog.client import Maintenance

    return BrokerFiles(opened.enter_context(Maintenance(**access.client)), row)


class FolderFiles:
    """Files of a segment in a folder. Implements SegmentFiles.

    The log is opened once: renamed or replaced meanwhile, it is read to its end.
    """

    def __init__(self, fs: ReadFs, folder: str, base_offset: int, opened: ExitStack) -> None:
        self._fs = fs
        self._folder = folder
        self._base_offset = base_offset
        self._opened = opened
        self._log: ReadFile | None = None

    def size(self) -> int:
        return self._file().size

    def read(self, position: int, size: int) -> bytes:
        return self._file().read_at(position, size)

    def index(self) -> bytes:
        return self._all(OFFSET_INDEX)

    def time_index(self) -> bytes:
        return self._all(TIME_INDEX)

    def transaction_index(self) -> bytes:
        return self._all(TXN_INDEX)

    def _file(self) -> ReadFile:
        if self._log is None:
            self._log = self._open(LOG)
            self._opened.callback(self._log.close)
        return self._log

    def _open(self, suffix: str) -> ReadFile:
        return self._fs.open_read(f"{self._folder}/{segment_name(self._base_offset, suffix)}")

    def _all(self, suffix: str) -> bytes:
        file = self._open(suffix)
        try:
            return file.read_at(0, file.size)
        finally:
            file.close()


class BrokerFiles:
    """Files of a segment, read through the Maintenance service of its broker, up to the size that the broker described.

    So newer index entries of the active segment are left out. Implements SegmentFiles.
    """

    def __init__(self, maintenance: Any, row: Row) -> None:
        self._maintenance = maintenance
        self._is_written = row["next_offset"] < 0
        self._end_offset = row["known_to"] - row["base_offset"]
        self._log = LogDescription(partition=TopicPartition(row["topic"], row["partition"]), broker_id=row["broker"])
        self._segment = SegmentDescription(
            base_offset=row["base_offset"],
            next_offset=row["next_offset"],
            size_bytes=row["size_bytes"],
            largest_timestamp_ms=-1,
            first_timestamp_ms=-1,
            identity=row["identity"],
        )

    def size(self) -> int:
        return self._segment.size_bytes

    def read(self, position: int, size: int) -> bytes:
        return self._read("log", position, size)

    def index(self) -> bytes:
        return self._entries("index", OFFSET_ENTRY)

    def time_index(self) -> bytes:
        return self._entries("timeindex", TIME_ENTRY)

    def transaction_index(self) -> bytes:
        return self._read("txnindex", 0, None)

    def _entries(self, file: str, layout: list[tuple[str, str]]) -> bytes:
        content = self._read(file, 0, None)
        if not self._is_written:
            return content
        size = np.dtype(layout).itemsize
        entries = np.frombuffer(content[: len(content) // size * size], np.dtype(layout))
        return bytes(entries[entries["offset"] < self._end_offset].tobytes())

    def _read(self, file: str, position: int, size: int | None) -> bytes:
        try:
            return b"".join(self._maintenance.read_segment(self._log, self._segment, position, size, file))
        except GONE as error:
            raise FileNotFoundError(str(error)) from error
        except KafkaStorageError as error:
            raise OSError(str(error)) from error
