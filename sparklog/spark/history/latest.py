"""A Delta table of the newest record of each key of a compacted topic.

    log, from the table's progress to the last stable offset ─▶ newest record of each key ─▶ MERGE ─▶ progress
    key, value, partition int, offset bigint, timestamp timestamp

A tombstone deletes its key's row. A row has its record's offset; only a record with a greater offset replaces it. So a
run that died between MERGE and progress does no harm: the next run reads from the same offset, at least as far.

A run that is behind another one could bring back keys that the other has deleted. So each MERGE has a number in Delta's
`txn`: one more than the table's number before the run described the logs. If another MERGE has that number already,
Delta does nothing.

Compaction may remove a tombstone that the table has not seen. If a partition was compacted, or trimmed, beyond the
table's progress, or lacks a record that the run would read, the run reads it as a whole, and deletes keys that it no
longer has.

A log that is trimmed, by retention or DeleteRecords, takes the rows of its former records with it: the run that sees a
new log start deletes the rows below, as a new table would not have them. The log start is a part of the progress.

This module loads `deltalake`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delta.tables import DeltaTable as SparkDeltaTable
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.base.errors import ConfigError, SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.log.description import LogDescription
from sparklog.spark.history.progress import TableProgress, TableRange, progress_of

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
RUN_APP = "sparklog/latest"
"""The transaction identifier whose version is the number of the newest MERGE."""


class ConcurrentMerge(SparklogError):
    """Another run has changed the table since this one opened it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRange:
    """The offsets of a partition to merge."""

    log: LogDescription
    offset_from: int
    offset_to: int
    """At most the last stable offset."""
    is_whole: bool
    """Whether these are all records of the partition: then keys without a record are deleted."""
    is_trimmed: bool = False
    """Whether the table may have rows below the log start: then they are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCounts:
    """Result of a merge for one partition."""

    upserted: int = 0
    """Keys whose newest record in these offsets has a value."""
    deleted: int = 0
    """Keys whose newest record there is a tombstone."""


NOTHING = MergeCounts()


class LatestTable:
    """The table as of its opening."""

    def __init__(self, path: str, table: DeltaTable | None) -> None:
        self.path = path
        self._progress = _progress(path, table) if table else None
        self._run = (table.transaction_version(RUN_APP) if table else None) or 0

    @classmethod
    def open(cls, path: str) -> LatestTable:
        """Open the table, which need not exist. Raises ConfigError if something else is there, or it is unreadable."""
        try:
            table = DeltaTable(path)
        except TableNotFoundError:
            return cls(path, None)
        except (DeltaError, OSError) as error:
            raise ConfigError(f"table {path} cannot be opened: {error}") from error
        if missing := set(COLUMNS) - {field.name for field in table.schema().fields}:
            raise ConfigError(f"{path} is a table of another kind: it has no column {', '.join(sorted(missing))}")
        return cls(path, table)

    def merged(self, log: LogDescription) -> TableRange | None:
        """Return the offsets of a log that the table has; None if it has none.

        Raises ConfigError if they are of another topic of that name, or of records that the log has lost.
        """
        return self._progress.archived_of(log) if self._progress else None

    def merge(
        self, spark: SparkSession, parts: Sequence[MergeRange], options: Mapping[str, str]
    ) -> dict[TopicPartition, MergeCounts]:
        """Merge ranges of one topic; return the result of each partition.

        options: of the Spark source, for servers, security and types
        Raises ConcurrentMerge, ConfigError, and errors of Spark.
        """
        session = spark.newSession()  # with settings of its own
        newest = newest_records(session, parts, options).persist()
        try:
            counts = _count_merged(newest)
            self._merge(session, newest, [_rows_to_delete(each) for each in parts if each.is_whole or each.is_trimmed])
        finally:
            newest.unpersist()
        _commit_progress(self.path, parts)
        return {each.log.partition: counts.get(each.log.partition.partition, NOTHING) for each in parts}

    def _merge(self, session: SparkSession, newest: DataFrame, gone: Sequence[str]) -> None:
        if self._progress is None:
            # Not by DeltaTable.create, which looks up a catalog, and the catalog creates a folder.
            empty = session.createDataFrame([], newest.schema).write.format("delta").mode("append")
            empty.option("delta.autoOptimize.autoCompact", "true").save(self.path)
        session.conf.set("spark.databricks.delta.write.txnAppId", RUN_APP)
        session.conf.set("spark.databricks.delta.write.txnVersion", str(self._run + 1))
        table = SparkDeltaTable.forPath(session, self.path).alias("old")
        merge = (
            table.merge(newest.alias("new"), "old.partition = new.partition AND old.key = new.key")
            .whenMatchedDelete("new.offset > old.offset AND new.value IS NULL")
            .whenMatchedUpdateAll("new.offset > old.offset")
            .whenNotMatchedInsertAll("new.value IS NOT NULL")
            .withSchemaEvolution()
        )
        if gone:
            merge = merge.whenNotMatchedBySourceDelete(" OR ".join(gone))
        if not merge.execute().collect():
            raise ConcurrentMerge(f"table {self.path}: another run was first")


def _rows_to_delete(part: MergeRange) -> str:
    """Return the condition for rows that go unless their key has a record in the range."""
    of_partition = f"old.partition = {part.log.partition.partition}"
    return of_partition if part.is_whole else f"({of_partition} AND old.offset < {part.log.log_start_offset})"


def newest_records(session: SparkSession, parts: Sequence[MergeRange], options: Mapping[str, str]) -> DataFrame:
    """Return the newest record of each key in these ranges; leave out records without a key."""
    ends = {each.log.partition: (each.offset_from, each.offset_to) for each in parts}
    topic = parts[0].log.partition.topic
    rows = (
        session.read.format("sparklog")
        .options(**options)
        .option("assign", json.dumps({topic: [name.partition for name in ends]}))
        .option("startingOffsets", json.dumps({topic: {name.partition: start for name, (start, _) in ends.items()}}))
        .option("endingOffsets", json.dumps({topic: {name.partition: end for name, (_, end) in ends.items()}}))
        .load()
    )
    newest = F.max_by(F.struct("value", "offset", "timestamp"), "offset").alias("newest")
    return (
        rows.where("key IS NOT NULL")
        .groupBy("partition", "key")
        .agg(newest)
        .select("key", "newest.value", "partition", "newest.offset", "newest.timestamp")
    )


def _count_merged(newest: DataFrame) -> dict[int, MergeCounts]:
    deleted = F.count_if(F.col("value").isNull()).alias("deleted")
    rows = newest.groupBy("partition").agg(F.count("*").alias("keys"), deleted).collect()
    return {
        row["partition"]: MergeCounts(upserted=row["keys"] - row["deleted"], deleted=row["deleted"]) for row in rows
    }


def _commit_progress(path: str, parts: Sequence[MergeRange]) -> None:
    """Commit the progress, unless another run has come further. Raises ConcurrentMerge and ConfigError."""
    table = DeltaTable(path)
    progress = _progress(path, table)
    transactions = []
    for each in parts:
        before = progress.archived(each.log.partition, each.log.topic_id)
        after = TableRange(each.log.log_start_offset if each.is_whole or each.is_trimmed else 0, each.offset_to)
        if before:
            after = TableRange(max(before.offset_from, after.offset_from), max(before.offset_to, after.offset_to))
        if after != before:
            transactions += progress.transactions(each.log.partition, progress_of(each.log, *after))
    if not transactions:
        return
    properties = CommitProperties(app_transactions=transactions)
    try:
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
    except (DeltaError, OSError) as error:
        if "oncurrent" in str(error):
            raise ConcurrentMerge(f"table {path}: another run was first") from error
        raise ConfigError(f"table {path}: {error}") from error


def _progress(path: str, table: DeltaTable) -> TableProgress:
    return TableProgress(table, f"table {path}", "remove the table, and the next run makes it anew")


def source_options(client: Mapping[str, Any], security_keys: Sequence[str]) -> dict[str, str]:
    """Return the options of the Spark source that say how to reach the brokers that `client` names."""
    named = {key: client.get(key.replace(".", "_")) for key in ("bootstrap.servers", *security_keys)}
    return {f"kafka.{key}": str(value) for key, value in named.items() if value is not None}
