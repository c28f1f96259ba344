"""The Delta table of archived records: its columns, its progress, and the contents of its files.

    topic string, partition int, offset bigint, timestamp timestamp, timestampType int, key binary, value binary,
    headers array<struct<key: string, value: binary>>, date date        partitioned by date

The columns are those of a read; `date` is the day of the timestamp in UTC (null outside of the years 1 to 9999).
Several topics may share a table.

The table also holds the progress of each partition (progress.py). A commit writes it together with the files, so every
offset is archived exactly once. A job that dies before its commit has done nothing. If two jobs copy the same offsets,
Delta refuses the second commit with `ConcurrentCommit`: the partition's progress is no longer what that job read.

This module loads `deltalake`; of the history package, only reads and jobs that need an archive import it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.types import DateType, StructField, StructType

from sparklog.base.errors import ConfigError, SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.log.description import LogDescription
from sparklog.spark.columns import TYPES
from sparklog.spark.history.archive_files import ArchivedFile, FilePart, TableLocation
from sparklog.spark.history.progress import Progress, TableProgress, TableRange
from sparklog.spark.spark_api import arrow_schema

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
DATE = "date"
FILE_SCHEMA = StructType([StructField(name, TYPES[name]) for name in COLUMNS])
"""Columns in a file: Delta keeps the date, by which the table is partitioned, outside of the files."""
SCHEMA = StructType([*FILE_SCHEMA.fields, StructField(DATE, DateType())])
_DELTA_SCHEMA = Schema.from_arrow(arrow_schema(SCHEMA))
REPLACE_ATTEMPTS = 10
"""Attempts of a commit that replaces files, if another writer is first."""


class ConcurrentCommit(SparklogError):
    """Another run has committed some of the same partitions or files meanwhile: read the table's progress again."""


class ArchiveTable:
    """An archive's table as of its opening, or of the last `refresh`."""

    def __init__(self, place: TableLocation, table: DeltaTable) -> None:
        self.place = place
        self._table = table
        self._progress = TableProgress(
            table, f"archive {place.uri}", "give this one another table in retention.archive"
        )
        _check_archive(place.uri, table)

    @classmethod
    def open(cls, place: TableLocation) -> ArchiveTable | None:
        """Open the table; return None if there is none. Raises ConfigError if it is no archive, or is unreadable."""
        try:
            return cls(place, DeltaTable(place.folder or place.uri))
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise ConfigError(f"archive {place.uri} cannot be opened: {error}") from error

    @classmethod
    def create(cls, place: TableLocation) -> ArchiveTable:
        """Return the table; create it if there is none. Raises as `open`, and ConfigError if it cannot be created."""
        if found := cls.open(place):
            return found
        try:
            DeltaTable.create(
                place.folder or place.uri,
                _DELTA_SCHEMA,
                mode="ignore",
                partition_by=[DATE],
                description="Records archived from the log by sparklog's retention job",
            )
        except (DeltaError, OSError) as error:
            if not (found := cls.open(place)):  # if found, another run was first
                raise ConfigError(f"archive {place.uri} cannot be created: {error}") from error
            return found
        made = cls.open(place)
        if made is None:
            raise ConfigError(f"archive {place.uri} was removed right after it was created")
        return made

    def refresh(self) -> None:
        """Load the commits of other writers."""
        self._table.update_incremental()

    def archived(self, partition: TopicPartition, topic_id: str = "") -> TableRange | None:
        """Return the offsets of a partition that the table has; None if it has none.

        Raises ConfigError if they are of another topic of that name; without `topic_id` that is not checked.
        """
        return self._progress.archived(partition, topic_id)

    def gaps(self, partition: TopicPartition) -> list[TableRange]:
        """Return the offsets that the table lacks between those that it has, because they were deleted too early."""
        return self._progress.gaps(partition)

    def archived_of(self, log: LogDescription) -> TableRange | None:
        """Return the offsets of a log that the table has; None if it has none.

        Raises as `archived`, and if the table has records that the log has lost.
        """
        return self._progress.archived_of(log)

    def commit(self, files: Iterable[ArchivedFile], progress: Mapping[TopicPartition, Progress]) -> int:
        """Add the files and the partitions' progress in one commit; return the table's version.

        On a local disk the commit is flushed when this returns. Raises ConcurrentCommit, and ConfigError for any other
        failure.
        """
        written_ms = _now_ms()
        return self._commit(
            [_add_action(file, written_ms) for file in files],
            [each for item in progress.items() for each in self._progress.transactions(*item)],
        )

    def replace(self, old: Sequence[FilePart], new: Iterable[ArchivedFile]) -> int:
        """Replace old files by new ones with the same records, in one commit; return the table's version.

        Streams from the table see no change. Raises ConcurrentCommit if another writer has removed one of the old
        files, or commits all the time, and ConfigError for any other failure.
        """
        now_ms = _now_ms()
        removed = [RemoveAction(file.path, False, now_ms, file.size_bytes, {DATE: file.date}) for file in old]
        added = [_add_action(file, now_ms, data_change=False) for file in new]
        for _ in range(REPLACE_ATTEMPTS):
            paths = {unquote(path.as_py()) for path in self._adds()["path"]}
            if gone := [file.path for file in old if file.path not in paths]:
                raise ConcurrentCommit(f"archive {self.place.uri}: another writer has replaced {gone[0]}")
            try:
                # No retries: delta-rs would not notice a concurrent commit that has removed the same file without
                # changing data, and the table would have the records twice.
                return self._commit([*removed, *added], [], retries=0)
            except ConcurrentCommit:
                self.refresh()
        raise ConcurrentCommit(f"archive {self.place.uri}: other writers committed {REPLACE_ATTEMPTS} times meanwhile")

    def _commit(
        self, actions: list[AddAction | RemoveAction], transactions: list[Transaction], retries: int | None = None
    ) -> int:
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                _DELTA_SCHEMA,
                partition_by=[DATE],
                commit_properties=CommitProperties(app_transactions=transactions, max_commit_retries=retries),
            )
        except CommitFailedError as error:
            if retries == 0 or "oncurrent" in str(error):
                raise ConcurrentCommit(f"archive {self.place.uri}: {error}") from error
            raise ConfigError(f"archive {self.place.uri}: {error}") from error
        except (DeltaError, OSError) as error:
            raise ConfigError(f"archive {self.place.uri}: {error}") from error
        version = self._table.version()
        self.place.flush(f"_delta_log/{version:020}.json")
        return int(version)

    def files(
        self,
        partition: TopicPartition,
        offset_from: int,
        offset_to: int,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> list[FilePart]:
        """Return the files that may hold records of a partition, by their statistics; sorted by offset.

        The records are at offsets from `offset_from` to before `offset_to`. If given, `since` is their earliest
        timestamp and `before` their latest.
        """
        adds = self._adds()
        wanted = _may_hold(adds, "topic", partition.topic, partition.topic)
        wanted = pc.and_(wanted, _may_hold(adds, "partition", partition.partition, partition.partition))
        wanted = pc.and_(wanted, _may_hold(adds, "offset", offset_from, offset_to - 1))
        if since is not None or before is not None:
            wanted = pc.and_(wanted, _may_hold(adds, "timestamp", since, before))
        rows = adds.filter(wanted).to_pylist()
        parts = [
            FilePart(
                path=unquote(row["path"]),
                size_bytes=row["size_bytes"],
                offset_first=_value_or(row.get("min.offset"), offset_from),
                offset_last=_value_or(row.get("max.offset"), offset_to - 1),
                alone=all(
                    row.get(f"{edge}.{name}") == value
                    for edge in ("min", "max")
                    for name, value in (("topic", partition.topic), ("partition", partition.partition))
                ),
                date=None if (day := row.get(f"partition.{DATE}")) is None else day.isoformat(),
            )
            for row in rows
        ]
        return sorted(parts, key=lambda part: (part.offset_first, part.path))

    def _adds(self) -> pa.Table:
        return pa.table(self._table.get_add_actions(flatten=True))


def _check_archive(uri: str, table: DeltaTable) -> None:
    """Raise ConfigError unless the table is an archive that can be read file by file."""
    there = {each.name: each.type for each in table.schema().fields}
    ours = {each.name: each.type for each in _DELTA_SCHEMA.fields}
    if there != ours or table.metadata().partition_columns != [DATE]:
        raise ConfigError(
            f"archive {uri} is a table of another kind: an archive has the columns {SCHEMA.simpleString()[7:-1]}, and "
            f"is partitioned by {DATE}. Name another table in retention.archive, or none: it is made then"
        )
    if table.protocol().min_reader_version > 1:
        raise ConfigError(
            f"archive {uri} has been given features that readers must know "
            f"({', '.join(table.protocol().reader_features or ['column mapping'])}); an archive cannot have any"
        )


def _may_hold(adds: pa.Table, column: str, low: Any, high: Any) -> Any:
    """Return which files may hold values from `low` to `high`; files without statistics may."""
    answer = pa.array(np.ones(adds.num_rows, bool))
    if high is not None and f"min.{column}" in adds.column_names:
        answer = pc.and_(answer, pc.fill_null(pc.less_equal(adds[f"min.{column}"], pa.scalar(high)), True))
    if low is not None and f"max.{column}" in adds.column_names:
        answer = pc.and_(answer, pc.fill_null(pc.greater_equal(adds[f"max.{column}"], pa.scalar(low)), True))
    return answer


def _now_ms() -> int:
    return int(time.time() * 1000)


def _add_action(file: ArchivedFile, written_ms: int, *, data_change: bool = True) -> AddAction:
    lowest: dict[str, Any] = {"topic": file.partition.topic, "partition": file.partition.partition}
    highest = dict(lowest)
    lowest["offset"], highest["offset"] = file.offset_first, file.offset_last
    if file.timestamp_first is not None and file.timestamp_last is not None:
        lowest["timestamp"], highest["timestamp"] = _iso(file.timestamp_first), _iso(file.timestamp_last)
    stats = {
        "numRecords": file.records,
        "minValues": lowest,
        "maxValues": highest,
        "nullCount": dict.fromkeys(("topic", "partition", "offset", "timestamp"), 0),
    }
    return AddAction(file.path, file.size_bytes, {DATE: file.date}, written_ms, data_change, json.dumps(stats))


def _iso(moment: datetime) -> str:
    """Return a timestamp as Delta writes it; timestamps are of whole milliseconds here."""
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _value_or(value: int | None, instead: int) -> int:
    return instead if value is None else value
