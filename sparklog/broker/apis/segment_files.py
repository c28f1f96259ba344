"""The APIs with which a follower copies segments of the leader: DescribeFiles, then ReadFile (service Replication).

Only the leader answers, only to a follower that requests in its leader epoch, for the topic with that id, as for
ReplicaFetch.

DescribeFiles:

- The answer has the closed segments from an offset on that end at or below the high watermark. Files are read for their
  checksums in a thread, each file once. An answer covers `READ_BYTES` of them and one segment more, so that it comes in
  time; the follower requests the rest next.
- Checksums are left out if the topic is not compacted and no segment was replaced since the start: then segments with
  the same first and last offset and size are equal. A follower that finds a difference requests checksums.

ReadFile:

- The file is a closed segment or a snapshot. INVALID_UPDATE_VERSION if the segment has another identity by now;
  OFFSET_OUT_OF_RANGE if no segment begins there, or the snapshot is gone. The follower then requests DescribeFiles
  again.
- A piece has `PIECE_BYTES`, the last one the rest; a position at or past the end gets INVALID_UPDATE_VERSION.
- leader.replication.throttled.rate applies to replicas that leader.replication.throttled.replicas lists, in sync or
  not: while it is used up, an answer is delayed by up to `LONGEST_WAIT_S`, and may be empty.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from sparklog.base.acls import AclOperation
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import InvalidUpdateVersion, OffsetOutOfRange
from sparklog.broker.api import Api
from sparklog.broker.follower_fetches import FollowerFetches, find_led
from sparklog.broker.rights import on_cluster
from sparklog.log.files import LOG
from sparklog.log.log import Log
from sparklog.log.offset_snapshots.snapshot import SnapshotId
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.replica.messages import (
    DescribeFiles,
    DescribeFilesResponse,
    ReadReplicaFile,
    ReadReplicaFileResponse,
    SnapshotFile,
)
from sparklog.replica.throttle import is_listed

READ_BYTES = 1 << 28
PIECE_BYTES = 1 << 20
LONGEST_WAIT_S = 1.0


async def describe(request: DescribeFiles, *, replicas: ReplicaManager) -> DescribeFilesResponse:
    """Return the closed segments from `since` on, and the newest snapshot. Raises as `find_led` does."""
    replica = _find_led(replicas, request)
    is_summed = (
        request.wants_sums
        or "compact" in replica.config.cleanup_policy
        or replica.log.generation > 0
        or replica.log.compacted_to > 0
    )
    return await asyncio.to_thread(
        _describe, replica.log, request.since, replica.partition.high_watermark, is_summed=is_summed
    )


def _describe(log: Log, since: int, high_watermark: int, *, is_summed: bool) -> DescribeFilesResponse:
    """Describe the log. Blocks. Read the log's values before its segments: if they are older, the follower retries."""
    generation, cleaned_offset, closed_to = log.generation, log.compacted_to, log.segments[-1].base_offset
    return DescribeFilesResponse(
        generation=generation,
        segments=log.replacer.sums(since, high_watermark, read_bytes=READ_BYTES if is_summed else 0),
        closed_to=closed_to,
        cleaned_offset=cleaned_offset,
        is_summed=is_summed,
        snapshot=_newest_snapshot(log),
    )


def _newest_snapshot(log: Log) -> SnapshotFile | None:
    newest = log.offset_snapshots.newest_id()
    try:
        size = log.offset_snapshots.open(newest).size if newest else 0
    except OffsetOutOfRange:  # a newer snapshot has replaced it
        return _newest_snapshot(log)
    return SnapshotFile(end_offset=newest[0], leader_epoch=newest[1], size_bytes=size) if newest and size else None


async def read(
    request: ReadReplicaFile, *, config: BrokerConfig, follower_fetches: FollowerFetches, replicas: ReplicaManager
) -> ReadReplicaFileResponse:
    """Return one piece; empty if the throttle lets none pass yet. Raises as `find_led` does, and the errors above."""
    replica = _find_led(replicas, request)
    listed = replica.config.leader_replication_throttled_replicas
    is_throttled = is_listed(listed, request.name.partition, config.broker_id)
    throttle, loop = follower_fetches.throttle, asyncio.get_running_loop()
    if is_throttled and (pause := throttle.pause(loop.time())):
        await asyncio.sleep(min(pause, LONGEST_WAIT_S))
        if throttle.pause(loop.time()):
            return ReadReplicaFileResponse(data=b"")
    data = await asyncio.to_thread(_read, replica.log, request)
    if is_throttled:
        throttle.sent(len(data), loop.time())
    return ReadReplicaFileResponse(data=data)


def _read(log: Log, request: ReadReplicaFile) -> bytes:
    """Read one piece. Blocks."""
    if request.snapshot_epoch is None:
        whole = log.open_file(request.offset, LOG, request.identity)
    else:
        whole = log.offset_snapshots.open(SnapshotId(request.offset, request.snapshot_epoch))
    size = min(PIECE_BYTES, whole.size - request.position)
    data = replace(whole, position=request.position, size=size).read() if size > 0 else b""
    if not data:
        raise InvalidUpdateVersion(f"{log}: the file of {request.offset} has nothing at {request.position}")
    return data


def _find_led(replicas: ReplicaManager, request: DescribeFiles | ReadReplicaFile) -> Replica:
    """Return the replica. Raises as `find_led` does."""
    return find_led(
        replicas,
        request.name,
        topic_id=request.topic_id,
        leader_epoch=request.leader_epoch,
        follower=request.replica_id,
    )


DESCRIBE_FILES = Api(
    name="DescribeFiles",
    summary="describe the leader's closed segments to a follower",
    handle=describe,
    rights=(on_cluster(AclOperation.CLUSTER_ACTION),),
)
READ_FILE = Api(
    name="ReadFile",
    summary="read a piece of one of the leader's files for a follower",
    handle=read,
    rights=(on_cluster(AclOperation.CLUSTER_ACTION),),
)
