"""Reads of a topic's log directory, without a broker and without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa

from sparklog.arrow.columns import COLUMNS, TableShape, table_schema
from sparklog.arrow.filesystems import LogReaders
from sparklog.arrow.folders import PartitionFolder, ReadableOffsets, partition_folders
from sparklog.arrow.options import CORRUPT_RECORD, IsolationLevel, ParseMode
from sparklog.arrow.segments import PartitionRead, settled
from sparklog.base.errors import ConfigError, DataLost, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.log.reader import LogReader
from sparklog.log.segment.ranges import ReadRange
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges

if TYPE_CHECKING:
    from sparklog.schemas.formats import Format

Path = str | os.PathLike[str]
Position = int | datetime
"""An offset, or a time: the first record with this timestamp or a later one."""
Positions = Position | Mapping[int, Position] | None
"""One position for all partitions, or positions by partition number; None or no entry: no limit."""
DEFAULT_COLUMNS = tuple(name for name in COLUMNS if name != "headers")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_table(
    path: Path,
    topic: str,
    partitions: Iterable[int] | None = None,
    *,
    start: Positions = None,
    end: Positions = None,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed",
    key: Format | None = None,
    value: Format | None = None,
    mode: Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"] = "FAILFAST",
) -> pa.Table:
    """Return records of a topic as a table in memory. Arguments and errors are those of `record_batches`."""
    return record_batches(
        path, topic, partitions, start=start, end=end, columns=columns, isolation_level=isolation_level,
        key=key, value=value, mode=mode,
    ).read_all()  # fmt: skip


def record_batches(
    path: Path,
    topic: str,
    partitions: Iterable[int] | None = None,
    *,
    start: Positions = None,
    end: Positions = None,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed",
    key: Format | None = None,
    value: Format | None = None,
    mode: Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"] = "FAILFAST",
) -> pa.RecordBatchReader:
    """Return a reader of a topic's records, partition after partition, each in the order of its offsets.

    The call determines the records; the reader then reads a few MB at a time. The read ends at the high watermark in
    the checkpoint of the log directory, which a broker writes every few seconds, and before the first open
    transaction. Records of aborted transactions are omitted. A reader can be read once.

    `path`: a log directory, or the folder of one partition, of sparklog or of Apache Kafka: a local path or a URI
    (``s3://``, ``hdfs://``, ``file://``). `partitions`: numbers; None: all in the directory. `start`, `end`: the first
    record, and the record after the last one: an offset or a time, for all partitions or by their numbers; None: the
    start and the end of the log. `isolation_level`: with read_uncommitted, open and aborted transactions are read too.

    `columns`: some of ``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType`` and
    ``headers``, as in the Spark source; others are not decoded. `key`, `value`: the encodings, as formats of this
    package; None: they stay bytes. `mode`: the treatment of malformed records. FAILFAST raises MalformedRecord,
    DROPMALFORMED omits the record, PERMISSIVE returns null, and the bytes and the reason in the column
    ``_corrupt_record``, which `columns` then may contain.

    Raises UnknownTopicOrPartition if the directory does not have the topic or a partition, ConfigError for wrong
    arguments, SchemaError for schemas that do not fit, DataLost if an offset lies outside the log, and CorruptRecord.
    The reader raises DataLost if records were deleted since the call, MalformedRecord, CorruptRecord and OSError.
    """
    shape = shape_of(columns, {"key": key, "value": value}, ParseMode(mode))
    folders = _folders(os.fspath(path), topic, partitions, IsolationLevel(isolation_level))
    _check_numbers(start, folders, "start")
    _check_numbers(end, folders, "end")
    readers = LogReaders()
    plans = [_plan_partition(each, readers, start, end) for each in folders]
    batches = (batch for plan in plans for batch in plan.read(shape))
    return pa.RecordBatchReader.from_batches(shape.schema, batches)


def shape_of(columns: Sequence[str], formats: Mapping[str, Format | None], mode: ParseMode) -> TableShape:
    """Return the shape of a table. formats: those of ``key`` and ``value``. Raises ConfigError and SchemaError."""
    given = {name: of for name, of in formats.items() if of is not None}
    if not given:
        return TableShape(table_schema(columns, {}))
    # Loads the decoders, which are not needed for bytes.
    from sparklog.arrow.typed import CORRUPT, DecodingPlan

    types = {name: of.decoder(name).type for name, of in given.items()}
    if mode is ParseMode.PERMISSIVE:
        types[CORRUPT_RECORD] = CORRUPT
    return TableShape(table_schema(columns, types), DecodingPlan(given, mode, CORRUPT_RECORD))


class _PartitionPlan(NamedTuple):
    """The planned read of one partition."""

    folder: PartitionFolder
    pieces: Sequence[ReadRange]
    aborted: AbortedRanges

    def read(self, shape: TableShape) -> Iterator[pa.RecordBatch]:
        partition = self.folder.partition
        records = PartitionRead(
            partition=partition,
            folder=self.folder.location,
            columns=shape.decoded,
            is_committed_only=self.folder.is_committed_only,
            aborted=self.aborted,
        )

        def what_is_left(missing: ReadRange) -> Iterator[pa.RecordBatch]:
            lost, rest = records.read_left(missing)
            if lost:
                raise DataLost("; ".join(lost))
            return rest

        return shape.apply(records.read(self.pieces, what_is_left), partition)


def _folders(
    path: str, topic: str, numbers: Iterable[int] | None, isolation_level: IsolationLevel
) -> list[PartitionFolder]:
    """Return the partitions to read, in order."""
    there = {partition: place for partition, place in partition_folders(path).items() if partition.topic == topic}
    wanted = sorted(there) if numbers is None else [TopicPartition(topic, number) for number in sorted({*numbers})]
    missing = [str(partition) for partition in wanted if partition not in there]
    if missing or not there:
        raise UnknownTopicOrPartition(f"not in {path}: {', '.join(missing) or topic}")
    committed_only = isolation_level is IsolationLevel.READ_COMMITTED
    return [PartitionFolder(each, there[each], is_committed_only=committed_only) for each in wanted]


def _check_numbers(positions: Positions, folders: Iterable[PartitionFolder], name: str) -> None:
    if isinstance(positions, Mapping):
        extra = {*positions} - {each.partition.partition for each in folders}
        if extra:
            raise ConfigError(f"{name} has partitions that are not read: {', '.join(map(str, sorted(extra)))}")


def _plan_partition(folder: PartitionFolder, readers: LogReaders, start: Positions, end: Positions) -> _PartitionPlan:
    reader = readers.open(folder.location)

    def plan() -> _PartitionPlan:
        bounds = folder.bounds(reader)
        low = _offset_of(start, "start", folder, reader, bounds)
        high = _offset_of(end, "end", folder, reader, bounds)
        low, high = bounds.log_start if low is None else low, bounds.end if high is None else high
        if low >= high:
            return _PartitionPlan(folder, (), NONE_ABORTED)
        return _PartitionPlan(folder, reader.ranges(low, high), folder.aborted(reader, low, high))

    return settled(plan)


def _offset_of(
    positions: Positions, name: str, folder: PartitionFolder, reader: LogReader, bounds: ReadableOffsets
) -> int | None:
    """Return the offset of a position, or None. Raises ConfigError, and DataLost for an offset outside the log."""
    position = positions.get(folder.partition.partition) if isinstance(positions, Mapping) else positions
    if position is None:
        return None
    if isinstance(position, datetime):
        if position.tzinfo is None:
            raise ConfigError(f"{name} = {position}: the time needs a time zone, such as datetime.now(UTC)")
        found = folder.offset_for_timestamp(reader, -((_EPOCH - position) // timedelta(milliseconds=1)))
        return bounds.end if found is None else found
    if not bounds.log_start <= position <= bounds.high_watermark:
        raise DataLost(
            f"{folder.partition} was to be read with {name} = {position}, but has the offsets {bounds.log_start} to "
            f"{bounds.high_watermark}. Leave {name} out to read what is there"
        )
    if name == "end" and position > bounds.end:
        raise ConfigError(
            f"{folder.partition} was to be read up to offset {position}, but a transaction is open from offset "
            f"{bounds.end} on: read again when it has ended, or with isolation_level = read_uncommitted"
        )
    return position
