"""DescribeLogDirs: where partitions lie on this broker's disks, how large they are and how far they go.

- No topics named: every topic. A topic that does not exist is left out, as in Kafka.
- A failed directory is listed with KAFKA_STORAGE_ERROR and no partitions.
- Unlike Kafka's, the answer has offsets: a reader of the files learns the high watermark here, up to which it may read.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.base.errors import KafkaError, KafkaStorageError
from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.replica.manager import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsRequest:
    topics: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirPartition:
    topic: str
    partition: int
    size_bytes: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """`path` is absolute."""

    path: str
    error: KafkaError | None = None
    partitions: Sequence[LogDirPartition] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsResponse:
    broker_id: int
    cluster_id: str
    log_dirs: Sequence[LogDir]


async def handle(services: Services, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted = set(request.topics)
    found: dict[str, list[LogDirPartition]] = {path: [] for path in services.logs.dirs}
    for replica in services.replicas:
        if not wanted or replica.partition.name.topic in wanted:
            found.setdefault(posixpath.dirname(replica.log.folder), []).append(_describe(replica))
    failed = services.logs.failed_dirs
    return DescribeLogDirsResponse(
        broker_id=services.config.broker_id,
        cluster_id=services.cluster_id,
        log_dirs=[_log_dir(path, partitions) for path, partitions in found.items()]
        + [_failed_dir(path, why) for path, why in failed.items()],
    )


def _log_dir(path: str, partitions: list[LogDirPartition]) -> LogDir:
    ordered = sorted(partitions, key=lambda part: (part.topic, part.partition))
    return LogDir(path=os.path.abspath(path), partitions=ordered)


def _failed_dir(path: str, why: str) -> LogDir:
    return LogDir(path=os.path.abspath(path), error=KafkaStorageError(f"log directory {path} has failed: {why}"))


def _describe(replica: Replica) -> LogDirPartition:
    return LogDirPartition(
        topic=replica.partition.name.topic,
        partition=replica.partition.name.partition,
        size_bytes=replica.log.size_bytes,
        log_start_offset=replica.log.log_start_offset,
        high_watermark=replica.partition.high_watermark,
        log_end_offset=replica.partition.log_end_offset,
    )


API = Api(name="DescribeLogDirs", handle=handle)
