"""The Delta tables of the offsets topic, each with its own progress.

    consumer_offsets_history   every commit and tombstone; appended to
    offsets_topic              the newest record of each key, as bytes; replaced with each run
    consumer_offsets           the committed offsets; from offsets_topic; replaced
    group_members              the current members of groups; from offsets_topic; replaced

The user metadata of a table's newest commit holds its progress: for each partition of the topic, the offset up to which
the table has all records. So a run that dies leaves every table correct as of some offset, and the next run continues
there, each offset once. Two runs at the same time write nothing twice: both write the same number as Delta's
transaction identifier, and Delta accepts one of them. If the metadata is gone (other tools have rewritten the table,
and its log has expired), the newest row of each partition gives the progress.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from delta.tables import DeltaTable
from deltalake import DeltaTable as DeltaLog
from deltalake.exceptions import TableNotFoundError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.base.errors import SparklogError
from sparklog.log.epochs import NO_EPOCH

HISTORY, NEWEST, OFFSETS, MEMBERS = "consumer_offsets_history", "offsets_topic", "consumer_offsets", "group_members"
CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
"""Error classes of Delta if another writer has changed, or created, the table meanwhile."""
_APP = "sparklog.offset_replay"
_RECENT = 20
"""Number of newest commits that are searched first for a table's progress."""


class ConcurrentRun(SparklogError):
    """Another run has written to a table meanwhile: read its progress again."""


class PartitionProgress(NamedTuple):
    """The offset up to which a table has a partition, and the id of the topic."""

    topic_id: str
    offset: int
    leader_epoch: int = NO_EPOCH
    """Leader epoch of the record before that offset. If it differs now, the log has lost records that the table has."""


Progress = Mapping[int, PartitionProgress]
"""By partition of the offsets topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTable:
    """A table as of its opening."""

    spark: SparkSession
    path: str
    version: int
    """-1: the table does not exist."""
    progress: Progress

    @classmethod
    def open(cls, spark: SparkSession, path: str) -> ReplayTable:
        """Return the table with version and progress, read from its commits, the recent ones first.

        A table that does not exist has version -1 and no progress.
        """
        for limit in (_RECENT, None):
            commits = _commits(spark, path, limit)
            if not commits:
                return cls(spark=spark, path=path, version=-1, progress={})
            version = max(commits)
            told = [_progress_in(commits[number]) for number in sorted(commits, reverse=True)]
            if found := next((each for each in told if each is not None), None):
                return cls(spark=spark, path=path, version=version, progress=found)
        return cls(spark=spark, path=path, version=version, progress=_progress_from_rows(spark, path))

    def reached(self, partition: int, topic_id: str) -> PartitionProgress | None:
        """Return the table's progress in that partition of that topic; None if it has nothing of it."""
        reached = self.progress.get(partition)
        return reached if reached is not None and reached.topic_id in (topic_id, "") else None

    def read(self) -> DataFrame:
        """Return the rows as of the table's opening."""
        return self.spark.read.format("delta").option("versionAsOf", self.version).load(self.path)

    def write(self, rows: DataFrame, mode: str, progress: Progress, run_id: str) -> ReplayTable:
        """Append the rows, or replace all rows (`overwrite`), with the new progress; return the table after that.

        Raises ConcurrentRun if another run was faster; nothing is written then.
        """
        metadata = json.dumps(
            {_APP: {str(number): list(reached) for number, reached in progress.items()}, "run_id": run_id}
        )
        writer = rows.write.format("delta").mode(mode).option("userMetadata", metadata)
        try:
            writer.option("txnAppId", _APP).option("txnVersion", self.version + 1).save(self.path)
        except PySparkException as error:
            if "Concurrent" in type(error).__name__ or any(code in str(error) for code in CONFLICTS):
                raise ConcurrentRun(f"{self.path}: another run is at work") from error
            raise
        after = ReplayTable.open(self.spark, self.path)
        if dict(after.progress) != dict(progress):  # Delta silently drops a write whose number was taken
            raise ConcurrentRun(f"{self.path}: another run was quicker")
        return after


def _progress_in(metadata: str | None) -> Progress | None:
    try:
        told = json.loads(metadata or "")[_APP]
        return {int(number): PartitionProgress(*reached) for number, reached in told.items()}
    except (ValueError, KeyError, TypeError):
        return None


def _progress_from_rows(spark: SparkSession, path: str) -> Progress:
    """Return the progress by the rows of a table whose metadata is gone; the topic's id is then unknown."""
    rows = spark.read.format("delta").load(path)
    if "log_offset" not in rows.columns:
        return {}
    reached = rows.groupBy("log_partition").agg(F.max("log_offset").alias("offset")).collect()
    return {row.log_partition: PartitionProgress("", row.offset + 1) for row in reached}


def _commits(spark: SparkSession, path: str, limit: int | None) -> dict[int, str | None]:
    """Return the user metadata of the newest commits, by version; nothing if there is no table.

    A table on a local disk is read without Spark, which takes a hundredth of the time.
    """
    if "://" not in path:
        with contextlib.suppress(TableNotFoundError):
            return {each["version"]: each.get("userMetadata") for each in DeltaLog(path).history(limit)}
        return {}
    if not DeltaTable.isDeltaTable(spark, path):
        return {}
    table = DeltaTable.forPath(spark, path)
    history = table.history(limit) if limit else table.history()
    return {row.version: row.userMetadata for row in history.select("version", "userMetadata").collect()}
