"""The tables of an audit: its input and its output. All are of one cluster; tests can make them up.

    STORE        the cluster's agreed state of each partition. Empty for log directories without a cluster
    REPLICAS     the state of each log, from its broker or its folder. high_watermark -1: not known
    FOLDERS      folders of partitions in brokers' log directories
    BROKERS      brokers of the cluster
    FACTS        facts from the bytes of each segment (segment_scan.py)
    BATCHES      batches of slices whose digests differ
    PROBLEMS     problems; offset null if a problem concerns no offset
    FINDINGS     problems with their severity and the next step

Offsets below `gaps_to` may be missing, as a cleaner may have removed them (`ClusterView.replicas`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.base.ids import TopicPartition

PARTITION = ["topic", "partition"]
REPLICA = ["broker", *PARTITION]
STORE = "topic string, partition int, leader int, leader_epoch int, replicas array<int>, isr array<int>"
REPLICAS = (
    "broker int, topic string, partition int, is_leader boolean, leader_epoch int, log_start_offset bigint, "
    "high_watermark bigint, log_end_offset bigint, gaps_to bigint, "
    "compare_from bigint, topic_id string"
)
FOLDERS = "broker int, topic string, partition int, folder string"
BROKERS = "broker int"
SLICES = "array<struct<number bigint, cut int, batches bigint, digest bigint, first_offset bigint, last_offset bigint>>"
FACTS = (
    "broker int, topic string, partition int, base_offset bigint, next_offset bigint, identity string, "
    "is_gone boolean, size_bytes bigint, batches bigint, end_offset bigint, "
    f"problems array<struct<kind string, offset bigint, found string>>, slices {SLICES}"
)
BATCHES = (
    "broker int, topic string, partition int, base_offset bigint, last_offset bigint, leader_epoch int, crc bigint, "
    "attributes int, producer_id bigint, record_count int, is_right boolean"
)
DIFFERENCES = (
    "topic string, partition int, reference int, broker int, first_offset bigint, last_offset bigint, "
    "differing bigint, compared bigint"
)
PROBLEMS = "broker int, topic string, partition int, kind string, offset bigint, found string"
FINDINGS = (
    "severity string, kind string, broker int, topic string, partition int, offset bigint, found string, "
    "next_step string"
)
WORK = (
    "broker int, topic string, partition int, folder string, base_offset bigint, next_offset bigint, identity string, "
    "size_bytes bigint, log_start_offset bigint, gaps_to bigint, epochs array<struct<epoch int, start_offset bigint>>, "
    "known_to bigint, compare_from bigint, compare_to bigint, cuts array<bigint>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedSegment:
    """One segment of a replica."""

    base_offset: int
    next_offset: int
    """Base offset of the next segment; -1: this is the last."""
    size_bytes: int
    identity: str
    """Changes when the segment's files are replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedReplica:
    """One replica's log."""

    broker: int
    partition: TopicPartition
    is_leader: bool = False
    leader_epoch: int = -1
    log_start_offset: int = 0
    high_watermark: int = -1
    """-1: not known."""
    log_end_offset: int = -1
    gaps_to: int = 0
    """Offsets below may be missing: a cleaner may have removed them."""
    compared_from: int = 0
    """Below this offset replicas may differ, because each is cleaned at its own time."""
    topic_id: str = ""
    epochs: tuple[tuple[int, int], ...] = ()
    known_to: int = 0
    """All epochs that begin below this offset are in `epochs`."""
    folder: str = ""
    """The folder, if this machine sees it; empty: the log is read through its broker."""
    segments: tuple[AuditedSegment, ...] = ()

    @property
    def compare_from(self) -> int:
        """The offset from which on all replicas must have the same batches."""
        return max(self.log_start_offset, self.compared_from)

    @property
    def compare_to(self) -> int:
        """The high watermark: below it, all replicas have the same records."""
        return max(self.high_watermark, 0)

    @property
    def row(self) -> tuple[Any, ...]:
        """The row of REPLICAS."""
        return (
            self.broker, *self.partition, self.is_leader, self.leader_epoch, self.log_start_offset,
            self.high_watermark, self.log_end_offset, self.gaps_to, self.compare_from, self.topic_id,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """State of a cluster at one moment, without bytes."""

    store: Sequence[tuple[Any, ...]] = ()
    """Rows of STORE."""
    brokers: Sequence[int] = ()
    replicas: Sequence[AuditedReplica] = ()
    folders: Sequence[tuple[Any, ...]] = ()
    """Rows of FOLDERS."""
    problems: Sequence[tuple[Any, ...]] = field(default=())
    """Rows of PROBLEMS: files that could not be read."""

    def tables(self, spark: SparkSession) -> AuditTables:
        """Return the view as Spark's tables."""
        return AuditTables(
            store=to_table(spark, list(self.store), STORE),
            brokers=to_table(spark, [(broker,) for broker in self.brokers], BROKERS),
            replicas=to_table(spark, [replica.row for replica in self.replicas], REPLICAS),
            folders=to_table(spark, list(self.folders), FOLDERS),
            problems=to_table(spark, list(self.problems), PROBLEMS),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTables:
    """A view as DataFrames."""

    store: DataFrame
    brokers: DataFrame
    replicas: DataFrame
    folders: DataFrame
    problems: DataFrame


def to_table(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """Return rows as a DataFrame. Spark knows its size from the start, so joins of small ones need no shuffle."""
    return spark.createDataFrame(to_arrow(rows, to_arrow_schema(StructType.fromDDL(schema))), schema)


def to_arrow(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """Return rows, each with a value for each column of the schema, as a table of Arrow."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def work_rows(view: ClusterView, suspicious: Iterable[tuple[str, int, int]] | None = None) -> list[tuple[Any, ...]]:
    """Return rows of WORK: every segment of a view, or those with suspicious offsets (topic, partition, offset)."""
    wanted: dict[TopicPartition, list[int]] = {}
    for topic, partition, offset in suspicious or ():
        wanted.setdefault(TopicPartition(topic, partition), []).append(offset)
    by_partition: dict[TopicPartition, list[AuditedReplica]] = {}
    for replica in view.replicas:
        by_partition.setdefault(replica.partition, []).append(replica)
    rows = []
    for name, replicas in by_partition.items():
        bounds = {bound for each in replicas for bound in (each.compare_from, each.compare_to)}
        cuts = sorted(bounds) if len(replicas) > 1 else None
        for replica in replicas:
            for segment in replica.segments:
                if suspicious is None or any(_holds(segment, offset) for offset in wanted.get(name, ())):
                    rows.append(_work_row(replica, segment, cuts))
    return rows


def _holds(segment: AuditedSegment, offset: int) -> bool:
    return segment.base_offset <= offset and (segment.next_offset < 0 or offset <= segment.next_offset)


def _work_row(replica: AuditedReplica, segment: AuditedSegment, cuts: list[int] | None) -> tuple[Any, ...]:
    """Return a row of WORK. cuts: None if there is no other replica to compare with."""
    compare_to = 0 if cuts is None else replica.compare_to
    return (
        replica.broker, *replica.partition, replica.folder, segment.base_offset, segment.next_offset,
        segment.identity, segment.size_bytes, replica.log_start_offset, replica.gaps_to, list(replica.epochs),
        replica.known_to, replica.compare_from, compare_to, cuts or [],
    )  # fmt: skip
