"""Data between the driver and the tasks of a compaction: the work on one partition, and its outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparklog.base.errors import (
    BrokerNotAvailable,
    ClientError,
    DuplicateResource,
    FencedLeaderEpoch,
    InvalidUpdateVersion,
    KafkaStorageError,
    NetworkException,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    RequestTimedOut,
    ResourceNotFound,
    SparklogError,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.log.compaction import CompactionPlan
from sparklog.log.description import LogDescription

TOO_LARGE = "too large"
"""The partition has more keys than a task may hold: it is unchanged."""
COMPACTED, UNCHANGED = "compacted", "unchanged"
STALE, QUARANTINED, FAILED = "stale", "quarantined", "failed"
BY_TASK, BY_SHUFFLE = "task", "shuffle"
MB = 1_000_000
_STALE = (
    InvalidUpdateVersion, FencedLeaderEpoch, UnknownLeaderEpoch, NotLeaderOrFollower, BrokerNotAvailable,
    ResourceNotFound, DuplicateResource, UnknownTopicOrPartition, OffsetOutOfRange, FileNotFoundError,
    FileExistsError,
)  # fmt: skip
"""Errors after which a new plan may succeed: the log has changed since the plan, another broker leads, or another
run has the lease or writes the same segment.
"""
_FAILED = (ClientError, KafkaStorageError, NetworkException, RequestTimedOut, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """Settings that all tasks of a run share."""

    client: Mapping[str, Any]
    """Keyword arguments of the clients."""
    holder: str
    """Holder of the leases."""
    now_ms: int
    memory_bytes: int
    """Memory that the keys of one partition may take in a task."""
    seed: bytes
    """Seed of the key hashes: 16 bytes that no producer can know, as it could otherwise make keys that collide."""
    chunk_bytes: int = 4 << 20
    """Bytes read and rewritten at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWork:
    """A partition to compact."""

    log: LogDescription
    plan: CompactionPlan
    reason: str
    """Why the partition is due."""

    @property
    def size_bytes(self) -> int:
        """Size of all segments to read."""
        return sum(segment.size_bytes for segment in self.plan.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOutcome:
    """Outcome for a partition: a row of the report. The figures are of the segments in the plan."""

    topic: str
    partition: int
    outcome: str
    reason: str
    how: str | None = None
    """`task` or `shuffle`."""
    cleaned_offset: int | None = None
    """All offsets below are clean now."""
    next_delete_horizon_ms: int | None = None
    """Time in ms when the first tombstone may be removed."""
    keys: int | None = None
    """Distinct keys: by task, of records not compacted before; by shuffle, of all records."""
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    read_mb: float = 0.0
    written_mb: float = 0.0
    seconds: float = 0.0
    mb_per_s: float = 0.0
    """Throughput by the size of the segments before."""

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def is_too_large(self) -> bool:
        """Whether the keys do not fit into a task's memory: the partition must be compacted by a shuffle."""
        return self.outcome == TOO_LARGE

    def row(self) -> tuple[Any, ...]:
        """Return the values in the order of REPORT_SCHEMA."""
        return dataclasses.astuple(self)


_TYPES = {"str": ("string", pa.string()), "int": ("bigint", pa.int64()), "float": ("double", pa.float64())}
_COLUMNS = {item.name: _TYPES[str(item.type).removesuffix(" | None")] for item in dataclasses.fields(CompactionOutcome)}
_COLUMNS["partition"] = ("int", pa.int32())
REPORT_SCHEMA = ", ".join(f"{name} {spark_type}" for name, (spark_type, _) in _COLUMNS.items())
REPORT_ARROW = pa.schema([(name, arrow_type) for name, (_, arrow_type) in _COLUMNS.items()])


def outcome_of(work: PartitionWork, outcome: str, reason: str = "", how: str | None = None) -> CompactionOutcome:
    """Return an outcome with the bytes and segments before as its only figures."""
    return CompactionOutcome(
        topic=work.log.partition.topic,
        partition=work.log.partition.partition,
        outcome=outcome,
        reason=reason,
        how=how,
        bytes_before=work.size_bytes,
        segments_before=len(work.plan.segments),
    )


def outcome_of_error(work: PartitionWork, error: Exception, how: str) -> CompactionOutcome:
    """Return the outcome of a partition whose work ended with an error."""
    kind = STALE if isinstance(error, _STALE) else FAILED if isinstance(error, _FAILED) else QUARANTINED
    text = str(error) if isinstance(error, SparklogError | OSError) else f"{type(error).__name__}: {error}"
    return outcome_of(work, kind, text, how)
