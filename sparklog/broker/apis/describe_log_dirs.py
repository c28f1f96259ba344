"""DescribeLogDirs: describe this broker's log directories, and the size and offsets of their partitions (key 35).

- Missing topics and partitions are left out, as in Kafka.
- A failed directory is listed with KAFKA_STORAGE_ERROR and no partitions.
- A replica that moves to another directory is listed in both. In the target directory it has `is_future`, the bytes
  that are copied, and the number of offsets that the copy is behind.
- Unlike Kafka's, the response has offsets: a reader of the files needs the high watermark, up to which it may read. It
  also marks full directories; Kafka's clients see that from the usable bytes.
- Versions 1 to 5, as in Kafka 4.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import shutil
from collections.abc import Iterable, Mapping, Sequence, Set

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.acls import AclOperation
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaError, KafkaStorageError
from sparklog.broker.api import Api
from sparklog.broker.rights import on_cluster
from sparklog.log.directory.manager import LogManager
from sparklog.log.directory.moves import FutureReplica
from sparklog.replica.manager import Replica, ReplicaManager


class DescribeLogDirsRequest(Struct, frozen=True, kw_only=True):
    topics: Mapping[str, Set[int] | None] | None = None
    """The partitions to describe, by topic; None: all of them."""


class LogDirPartition(Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    size_bytes: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    is_future: bool = False
    """A copy that is being made: the replica moves here from another directory of the broker."""
    offset_lag: int = 0
    """Number of offsets that the copy is behind the replica's log end."""


class LogDir(Struct, frozen=True, kw_only=True):
    """One log directory. `path` is absolute; the byte counts are those of its volume, -1 if unknown."""

    path: str
    error: KafkaError | None = None
    partitions: Sequence[LogDirPartition] = ()
    is_full: bool = False
    """Whether appends are refused until space is freed."""
    total_bytes: int = -1
    usable_bytes: int = -1


class DescribeLogDirsResponse(Struct, frozen=True, kw_only=True):
    broker_id: int
    cluster_id: str
    log_dirs: Sequence[LogDir]


async def handle(
    request: DescribeLogDirsRequest,
    *,
    cluster_id: str,
    config: BrokerConfig,
    logs: LogManager,
    replicas: ReplicaManager,
) -> DescribeLogDirsResponse:
    """Return all log directories of this broker, each with those of the requested partitions that it has."""
    return DescribeLogDirsResponse(
        broker_id=config.broker_id,
        cluster_id=cluster_id,
        log_dirs=await asyncio.to_thread(_log_dirs, logs, tuple(replicas), request.topics),
    )


def _log_dirs(
    logs: LogManager, replicas: Iterable[Replica], topics: Mapping[str, Set[int] | None] | None
) -> list[LogDir]:
    """Describe the directories. Blocks: there may be many partitions, and the disks are queried for their size."""
    found: dict[str, list[LogDirPartition]] = {path: [] for path in logs.dirs}
    futures = {each.partition: each for each in logs.moves.futures()}
    for replica in replicas:
        if _is_wanted(replica, topics):
            found.setdefault(posixpath.dirname(replica.log.folder), []).append(_describe(replica))
            if future := futures.get(replica.partition.name):
                found.setdefault(future.path, []).append(_describe_future(replica, future))
    failed, full = logs.failed_dirs, logs.full_dirs
    live = [
        _log_dir(path, partitions, is_full=path in full) for path, partitions in found.items() if path not in failed
    ]
    return live + [_failed_dir(path, why) for path, why in failed.items()]


def _is_wanted(replica: Replica, topics: Mapping[str, Set[int] | None] | None) -> bool:
    if topics is None:
        return True
    topic, number = replica.partition.name
    if topic not in topics:
        return False
    numbers = topics[topic]
    return numbers is None or number in numbers


def _log_dir(path: str, partitions: list[LogDirPartition], *, is_full: bool) -> LogDir:
    try:
        volume = shutil.disk_usage(path)
        total, free = volume.total, volume.free
    except OSError:  # an in-memory folder of a test, or a disk that has just failed
        total, free = -1, -1
    return LogDir(
        path=os.path.abspath(path),
        partitions=sorted(partitions, key=lambda part: (part.topic, part.partition)),
        is_full=is_full,
        total_bytes=total,
        usable_bytes=free,
    )


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


def _describe_future(replica: Replica, future: FutureReplica) -> LogDirPartition:
    return replace(
        _describe(replica),
        size_bytes=future.size_bytes,
        log_end_offset=future.end_offset,
        is_future=True,
        offset_lag=max(0, replica.log.log_end_offset - future.end_offset),
    )


API = Api(name="DescribeLogDirs", handle=handle, rights=(on_cluster(AclOperation.DESCRIBE),), key=35, versions=(1, 5))
