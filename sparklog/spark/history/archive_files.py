"""The Parquet files of an archive (archive_table.py), written by day: each holds one partition and one date.

Memory is bounded for any timestamps. Rows of all days wait together up to `WAITING_BYTES`; then the rows of the largest
day become a row group. If more than `MOST_OPEN` days have an unfinished file, the oldest file is finished. Rows before
the year 1 and after 9999, which dates do not reach, count as two days.

On a local disk a file and its folder are flushed before the file counts as written, because archived records leave the
log.

A table is local (a path or ``file://``), or at a URI that `deltalake` supports. `deltalake` takes the settings of an
object store (AWS_REGION …) from the environment. This module loads `deltalake` only for such a URI.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from sparklog.base.errors import ConfigError
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition

DAY_US = 86_400_000_000
WAITING_BYTES = 64 << 20
PART_BYTES = 4 << 10
"""Overhead, in bytes, of a day's rows in one batch."""
MOST_OPEN = 32
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
"""Folder of rows without a date: their timestamp is outside the years 1 to 9999, the range of dates."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_BEFORE, _DAY_AFTER = date.min.toordinal() - 1 - _EPOCH_DAY, date.max.toordinal() + 1 - _EPOCH_DAY


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Location of a table: an absolute path or a URI, the same in every process.

    Raises ConfigError for a relative path.
    """

    uri: str

    def __post_init__(self) -> None:
        if not urlsplit(self.uri).scheme and not Path(self.uri).is_absolute():
            raise ConfigError(f"archive {self.uri}: it must be an absolute path, or a URI")

    @property
    def folder(self) -> str | None:
        """The local folder; None if the table is not local."""
        parts = urlsplit(self.uri)
        if parts.scheme == "file":
            return unquote(parts.path)
        return None if parts.scheme else self.uri

    def files(self) -> pafs.FileSystem:
        """Return a file system of the table's files, with paths relative to the table."""
        if self.folder is not None:
            return pafs.SubTreeFileSystem(self.folder, pafs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler  # a tenth of a second, not needed for a local table

        return pafs.PyFileSystem(DeltaStorageHandler(self.uri))

    def flush(self, path: str) -> None:
        """Flush a finished file and its name to a local disk. Other stores are durable by themselves."""
        if self.folder is None:
            return
        fs, whole = LocalFs(), Path(self.folder, path)
        file = fs.open(str(whole))
        try:
            file.flush()
        finally:
            file.close()
        fs.flush_dir(str(whole.parent))
        fs.flush_dir(str(whole.parent.parent))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A Parquet file of an archive."""

    path: str
    size_bytes: int
    partition: TopicPartition
    date: str | None
    records: int
    offset_first: int
    offset_last: int
    timestamp_first: datetime | None
    """The earliest timestamp; None if it is outside of the years 1 to 9999. The same holds for `timestamp_last`."""
    timestamp_last: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A file of an archive, for planning a read."""

    path: str
    size_bytes: int
    offset_first: int
    offset_last: int
    alone: bool
    """Whether the file holds no other partition."""
    date: str | None = None


@dataclass(slots=True)
class _DayRows:
    """Rows of one day."""

    path: str = ""
    writer: Any = None
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    records: int = 0
    offset_first: int = 0
    offset_last: int = 0
    time_first: int = 0
    time_last: int = 0


class DatedFiles:
    """Writer of one partition's rows, in offset order, as files of an archive."""

    def __init__(
        self,
        place: TableLocation,
        partition: TopicPartition,
        *,
        waiting_bytes: int = WAITING_BYTES,
        most_open: int = MOST_OPEN,
    ) -> None:
        self._place = place
        self._fs = place.files()
        self._partition = partition
        self._limit = waiting_bytes
        self._most_open = most_open
        self._days: dict[int, _DayRows] = {}
        self._waiting = 0
        self._done: list[ArchivedFile] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows with columns topic, partition, offset, timestamp (us) and others; all columns are kept."""
        for number, part in by_day(rows):
            day = self._days.setdefault(number, _DayRows())
            _note_rows(day, part)
            day.waiting.append(part)
            size = part.nbytes + PART_BYTES
            day.waiting_bytes += size
            self._waiting += size
        while self._waiting > self._limit:
            self._write(max(self._days, key=lambda number: self._days[number].waiting_bytes))
        while sum(day.writer is not None for day in self._days.values()) > self._most_open:
            self._finish(next(number for number, day in self._days.items() if day.writer is not None))

    def finish(self) -> list[ArchivedFile]:
        """Complete and flush all files, and return them."""
        for number in list(self._days):
            self._finish(number)
        return self._done

    def discard(self) -> None:
        """Remove the files written so far."""
        begun = [day for day in self._days.values() if day.writer is not None]
        for day in begun:
            with contextlib.suppress(OSError, pa.ArrowException):  # the disk may be full
                day.writer.close()
        discard(self._place, [*(day.path for day in begun), *(file.path for file in self._done)])

    def _write(self, number: int) -> None:
        """Write a day's waiting rows as a row group."""
        day = self._days[number]
        if not day.waiting:
            return
        if day.writer is None:
            folder = f"date={date_of(number) or NO_DATE}"
            self._fs.create_dir(folder, recursive=True)
            day.path = f"{folder}/part-{uuid.uuid4()}.zstd.parquet"
            day.writer = pq.ParquetWriter(day.path, day.waiting[0].schema, filesystem=self._fs, compression="zstd")
        day.writer.write_table(pa.Table.from_batches(day.waiting))
        self._waiting -= day.waiting_bytes
        day.waiting, day.waiting_bytes = [], 0

    def _finish(self, number: int) -> None:
        self._write(number)
        day = self._days.pop(number)
        day.writer.close()
        self._place.flush(day.path)
        self._done.append(
            ArchivedFile(
                path=day.path,
                size_bytes=self._fs.get_file_info(day.path).size,
                partition=self._partition,
                date=date_of(number),
                records=day.records,
                offset_first=day.offset_first,
                offset_last=day.offset_last,
                timestamp_first=datetime_of(day.time_first),
                timestamp_last=datetime_of(day.time_last),
            )
        )


def discard(place: TableLocation, paths: Iterable[str]) -> None:
    """Remove files that no commit names. VACUUM removes those that cannot be removed here."""
    fs = place.files()
    for path in paths:
        with contextlib.suppress(OSError):
            fs.delete_file(path)


def by_day(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each day since 1970 (UTC) with its rows, in their order.

    Rows of a batch with several days are copied, so that a few of them do not keep the whole batch in memory.
    """
    days = np.floor_divide(rows.column("timestamp").cast(pa.int64()).to_numpy(), DAY_US)
    days = np.clip(days, _DAY_BEFORE, _DAY_AFTER)
    if not len(days):
        return
    if (days == days[0]).all():
        yield int(days[0]), rows
        return
    order = np.argsort(days, kind="stable")
    days = days[order]
    edges = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    for start, end in pairwise(edges):
        yield int(days[start]), rows.take(pa.array(order[start:end]))


def date_of(day: int) -> str | None:
    """Return a day since 1970 as Delta writes dates; None outside the years 1 to 9999."""
    try:
        return date.fromordinal(_EPOCH_DAY + day).isoformat()
    except (ValueError, OverflowError):
        return None


def _note_rows(day: _DayRows, rows: pa.RecordBatch) -> None:
    times = rows.column("timestamp").cast(pa.int64()).to_numpy()
    first, last = int(times.min()), int(times.max())
    offsets = rows.column("offset")
    if not day.records:
        day.offset_first, day.time_first, day.time_last = offsets[0].as_py(), first, last
    day.records += rows.num_rows
    day.offset_last = offsets[-1].as_py()
    day.time_first, day.time_last = min(day.time_first, first), max(day.time_last, last)


def datetime_of(time_us: int) -> datetime | None:
    """Return a timestamp as a datetime in UTC; None if it is beyond the range of datetime."""
    try:
        return _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return None
