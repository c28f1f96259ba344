"""The offsets topic as DataFrames. Each task reads one partition in log order, a column at a time.

    surveys(slices)            facts from batch headers: where transactions ended
    commits(slices)            every commit and tombstone, with its member: rows of COMMITS  -> consumer_offsets_history
    changes(slices)            the newest record of each key in the slices, raw: rows of NEWEST
    newest(before, changes)    of both, the newest record of each key: the topic's current state
    current_offsets(newest)    rows of OFFSETS                                               -> consumer_offsets
    current_members(newest)    rows of MEMBERS                                               -> group_members

A record that cannot be read is skipped, as the coordinator does.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from sparklog.offsets_topic.commits import COMMITS as COMMIT_COLUMNS
from sparklog.offsets_topic.commits import read_offset_records
from sparklog.spark.offsets.groups import PartitionGroups, RecordPosition
from sparklog.spark.offsets.read import PartitionSlice, SliceSurvey, records, survey
from sparklog.spark.shipping import task_function

_TIME = pa.timestamp("us", "UTC")
_MEMBER_COLUMNS = ("member_id", "client_id", "client_host")


def _with_spark_times(schema: pa.Schema) -> pa.Schema:
    """Return the schema with timestamps as Spark has them."""
    return pa.schema([(each.name, _TIME if pa.types.is_timestamp(each.type) else each.type) for each in schema])


COMMITS = pa.schema(
    [
        ("log_partition", pa.int32()),
        *_with_spark_times(COMMIT_COLUMNS),
        *((name, pa.string()) for name in _MEMBER_COLUMNS),
        ("transactional", pa.bool_()),
    ]
)
NEWEST = pa.schema(
    [
        ("log_partition", pa.int32()),
        ("key", pa.binary()),
        ("log_offset", pa.int64()),
        ("log_time", _TIME),
        ("value", pa.binary()),
        ("transactional", pa.bool_()),
    ]
)
OFFSETS = pa.schema([each for each in COMMITS if each.name not in ("deleted", "transactional", *_MEMBER_COLUMNS)])
_ASSIGNMENT = pa.list_(
    pa.struct([("topic", pa.string()), ("topic_id", pa.string()), ("partitions", pa.list_(pa.int32()))])
)
MEMBERS = pa.schema(
    [
        *((name, pa.string()) for name in ("group_id", "member_id", "protocol")),
        ("epoch", pa.int32()),
        *((name, pa.string()) for name in ("group_instance_id", "client_id", "client_host", "rack_id", "assignor")),
        ("is_leader", pa.bool_()),
        ("subscribed_topics", pa.list_(pa.string())),
        ("subscribed_regex", pa.string()),
        ("assignment", _ASSIGNMENT),
        ("log_partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("log_time", _TIME),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """A slice for a task, and the groups before it."""

    slice: PartitionSlice
    history_from: int
    """Commits below are already in the history; offsets below are read for their other records."""
    groups: Sequence[tuple[bytes, bytes, RecordPosition]] = ()
    """The newest records of groups and their members below the slice, in log order."""


def surveys(spark: SparkSession, slices: Sequence[PartitionSlice]) -> list[SliceSurvey]:
    """Return a survey of each slice, in their order; made in tasks."""
    if not slices:
        return []
    found: list[SliceSurvey] = spark.sparkContext.parallelize(slices, len(slices)).map(task_function(survey)).collect()
    return found


def commits(spark: SparkSession, works: Sequence[ReplayTask]) -> DataFrame:
    """Return rows of COMMITS, one for each commit and tombstone in the slices from `history_from` on."""
    return _in_tasks(spark, works, read_commits, COMMITS)


def changes(spark: SparkSession, works: Sequence[ReplayTask]) -> DataFrame:
    """Return rows of NEWEST: the newest record of each key in the slices, tombstones included."""
    return _newest_of(_in_tasks(spark, works, read_changes, NEWEST))


def newest(before: DataFrame, changed: DataFrame, rebuilt: Sequence[int]) -> DataFrame:
    """Return the topic's current state; for the partitions `rebuilt`, `before` does not count."""
    kept = before.filter(~F.col("log_partition").isin(*rebuilt)) if rebuilt else before
    return _newest_of(kept.unionByName(changed)).filter("value is not null")


def current_offsets(of: DataFrame) -> DataFrame:
    """Return rows of OFFSETS from rows of NEWEST."""
    return of.filter(is_commit()).mapInArrow(task_function(_offsets_of), _spark_schema(OFFSETS))


def current_members(of: DataFrame) -> DataFrame:
    """Return rows of MEMBERS.

    A topic that an assignment names by id gets its name from a commit with that id; null if there is no such commit.
    """
    return of.repartition("log_partition").mapInArrow(task_function(_members_of), _spark_schema(MEMBERS))


def read_commits(work: ReplayTask) -> Iterator[pa.RecordBatch]:
    """Yield the commits of a slice from `history_from` on, each with the member that owned the partition then."""
    groups = PartitionGroups()
    for key, value, place in work.groups:
        groups.take(key, value, place)
    owners = _CommitOwners(groups)
    number = work.slice.partition.partition
    for batch in records(work.slice):
        found = read_offset_records(batch)
        transactional = batch.column("transactional").take(pa.array(found.rows))
        table = found.commits.append_column("transactional", transactional)
        for part in owners.join(table, batch, found.others):
            kept = part.filter(pc.greater_equal(part["log_offset"], work.history_from))
            if kept.num_rows:
                column = pa.array(np.full(kept.num_rows, number, np.int32))
                kept = kept.append_column("log_partition", column).select(COMMITS.names).cast(COMMITS)
                yield from kept.to_batches()


def read_changes(work: ReplayTask) -> Iterator[pa.RecordBatch]:
    """Yield the records of a slice, raw; of the records with one key in a chunk, only the last."""
    number = work.slice.partition.partition
    for batch in records(work.slice):
        table = pa.table(
            {
                "log_partition": pa.array(np.full(batch.num_rows, number, np.int32)),
                "key": batch.column("key"),
                "log_offset": batch.column("offset"),
                "log_time": batch.column("timestamp").cast(_TIME),
                "value": batch.column("value"),
                "transactional": batch.column("transactional"),
            }
        ).filter(pc.is_valid(batch.column("key")))
        last = table.select(["key", "log_offset"]).group_by("key").aggregate([("log_offset", "max")])
        rows = pc.index_in(last["log_offset_max"], table["log_offset"])
        yield from table.take(rows.sort()).cast(NEWEST).to_batches()


class _CommitOwners:
    """Joins commits to the members that owned their partitions; groups change from record to record."""

    def __init__(self, groups: PartitionGroups) -> None:
        self._groups = groups
        self._names: dict[str, str] = {}
        self._owners: pa.Table | None = None

    def join(self, table: pa.Table, batch: pa.RecordBatch, others: np.ndarray[Any, Any]) -> Iterator[pa.Table]:
        """Yield the commits of a batch with their members, cut where another record, at rows `others`, changes them."""
        self._learn_topic_names(table)
        offsets, begin = table["log_offset"].to_numpy(), 0
        for row in others.tolist():
            offset = batch.column("offset")[row].as_py()
            end = int(np.searchsorted(offsets, offset))
            if end > begin:
                yield self._with_owners(table.slice(begin, end - begin))
                begin = end
            place = RecordPosition(offset, batch.column("timestamp")[row].value)
            if self._groups.take(batch.column("key")[row].as_py(), batch.column("value")[row].as_py(), place):
                self._owners = None
        if begin < table.num_rows:
            yield self._with_owners(table.slice(begin))

    def _learn_topic_names(self, table: pa.Table) -> None:
        """Learn the names of topic ids from the commits, which have both."""
        before = len(self._names)
        self._names |= _topic_names(table)
        if len(self._names) != before:
            self._owners = None

    def _with_owners(self, table: pa.Table) -> pa.Table:
        if self._owners is None:
            self._owners = self._groups.owners(self._names)
        return table.join(self._owners, ["group_id", "topic", "partition"]).sort_by("log_offset")


def _offsets_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        as_records = _as_records(batch)
        found = read_offset_records(as_records)
        table = found.commits.append_column(
            "log_partition", as_records.column("log_partition").take(pa.array(found.rows))
        )
        yield from table.select(OFFSETS.names).cast(OFFSETS).to_batches()


def _members_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    by_partition: dict[int, list[tuple[int, int, bytes, bytes]]] = {}
    names: dict[str, str] = {}
    for batch in batches:
        as_records = _as_records(batch)
        found = read_offset_records(as_records)
        names |= _topic_names(found.commits)
        for row in as_records.take(pa.array(found.others)).to_pylist():
            time_ms = round(row["timestamp"].timestamp() * 1000)
            by_partition.setdefault(row["log_partition"], []).append((row["offset"], time_ms, row["key"], row["value"]))
    for number, rows in by_partition.items():
        groups = PartitionGroups()
        for offset, time_ms, key, value in sorted(rows):
            groups.take(key, value, RecordPosition(offset, time_ms))
        members = [_member_row(row, number, names) for row in groups.rows()]
        yield from pa.Table.from_pylist(members, MEMBERS).to_batches()


def _member_row(row: dict[str, Any], number: int, names: dict[str, str]) -> dict[str, Any]:
    assignment = [each | {"topic": each["topic"] or names.get(each["topic_id"])} for each in row["assignment"]]
    time = pa.scalar(row["log_time"] * 1000, _TIME)
    return row | {"assignment": assignment, "log_partition": number, "log_time": time}


def _topic_names(commits: pa.Table) -> dict[str, str]:
    """Return topic names by topic id, from the commits that have both."""
    pairs = commits.select(["topic_id", "topic"]).filter(pc.is_valid(commits["topic_id"]))
    distinct = pairs.group_by(["topic_id", "topic"]).aggregate([])
    return dict(zip(distinct["topic_id"].to_pylist(), distinct["topic"].to_pylist(), strict=True))


def _as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of NEWEST as records: with the column names of records, and times in ms."""
    columns = {
        "log_partition": batch.column("log_partition"),
        "offset": batch.column("log_offset"),
        "timestamp": batch.column("log_time").cast(pa.timestamp("ms", "UTC"), safe=False),
        "key": batch.column("key"),
        "value": batch.column("value"),
    }
    return pa.record_batch(columns)


def is_commit() -> F.Column:
    """Return the condition for commits: their keys begin with version 0 or 1."""
    return F.substring("key", 1, 2).isin(bytearray(b"\0\0"), bytearray(b"\0\1"))


def _newest_of(rows: DataFrame) -> DataFrame:
    rest = F.struct("log_time", "value", "transactional")
    found = rows.groupBy("log_partition", "key").agg(
        F.max("log_offset").alias("log_offset"), F.max_by(rest, "log_offset").alias("rest")
    )
    return found.select("log_partition", "key", "log_offset", "rest.*")


def _in_tasks(
    spark: SparkSession,
    works: Sequence[ReplayTask],
    read: Callable[[ReplayTask], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """Return the rows that `read` yields for each work. Each work is a task."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for pickled in batch.column("work").to_pylist():
                yield from read(pickle.loads(pickled))

    rows = spark.sparkContext.parallelize([(bytearray(pickle.dumps(work)),) for work in works], max(1, len(works)))
    return spark.createDataFrame(rows, "work binary").mapInArrow(task_function(run), _spark_schema(schema))


def _spark_schema(schema: pa.Schema) -> Any:
    return from_arrow_schema(schema)
