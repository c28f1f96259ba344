"""ReadFile: read a piece of one of the leader's files for a follower (service Replication).

- The file is a closed segment or a snapshot; fenced as DescribeFiles. INVALID_UPDATE_VERSION if the segment has another
  identity by now; OFFSET_OUT_OF_RANGE if no segment begins there, or the snapshot is gone. The follower then requests
  DescribeFiles again.
- A piece has `PIECE_BYTES`, the last one the rest; a position at or past the end gets INVALID_UPDATE_VERSION.
- leader.replication.throttled.rate applies to replicas that leader.replication.throttled.replicas lists, in sync or
  not: while it is used up, an answer is delayed by up to `LONGEST_WAIT_S`, and may be empty.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import InvalidUpdateVersion
from sparklog.broker.api import Api
from sparklog.broker.follower_fetches import FollowerFetches, find_led
from sparklog.log.files import LOG
from sparklog.log.log import Log
from sparklog.log.offset_snapshot import SnapshotId
from sparklog.replica.manager import ReplicaManager
from sparklog.replica.messages import FileRead, ReadReplicaFile
from sparklog.replica.throttle import is_listed

PIECE_BYTES = 1 << 20
LONGEST_WAIT_S = 1.0


async def handle(
    request: ReadReplicaFile, *, config: BrokerConfig, follower_fetches: FollowerFetches, replicas: ReplicaManager
) -> FileRead:
    replica = find_led(
        replicas,
        request.name,
        topic_id=request.topic_id,
        leader_epoch=request.leader_epoch,
        follower=request.replica_id,
    )
    listed = replica.config.leader_replication_throttled_replicas
    is_throttled = is_listed(listed, request.name.partition, config.broker_id)
    throttle, loop = follower_fetches.throttle, asyncio.get_running_loop()
    if is_throttled and (pause := throttle.pause(loop.time())):
        await asyncio.sleep(min(pause, LONGEST_WAIT_S))
        if throttle.pause(loop.time()):
            return FileRead(data=b"")
    data = await asyncio.to_thread(_read, replica.log, request)
    if is_throttled:
        throttle.sent(len(data), loop.time())
    return FileRead(data=data)


def _read(log: Log, request: ReadReplicaFile) -> bytes:
    """Read one piece. Blocks."""
    if request.snapshot_epoch is None:
        whole = log.open_file(request.offset, LOG, request.identity)
    else:
        whole = log.open_snapshot(SnapshotId(request.offset, request.snapshot_epoch))
    size = min(PIECE_BYTES, whole.size - request.position)
    data = replace(whole, position=request.position, size=size).read() if size > 0 else b""
    if not data:
        raise InvalidUpdateVersion(f"{log}: the file of {request.offset} has nothing at {request.position}")
    return data


API = Api(name="ReadFile", handle=handle)
