"""DescribeFiles: a follower asks what closed segments its leader has (service Replication).

- Only the leader answers, only a follower that asks in its leader epoch, only for the topic with that id, as for
  ReplicaFetch.
- Told are those that end at or below the high watermark, from an offset on. Files are read for their checksums, in a
  thread, each once: `READ_BYTES` and a segment for each answer, so that it comes in time; what is left is asked for
  next.
- Without checksums where the topic is not compacted and nothing was replaced since the start: segments that begin and
  end at the same offsets and have the same size are the same then. A follower that finds others asks for them.
"""

from __future__ import annotations

import asyncio

from sparklog.base.errors import OffsetOutOfRange
from sparklog.broker.api import Api
from sparklog.broker.follower_fetches import find_led
from sparklog.log.log import Log
from sparklog.replica.manager import ReplicaManager
from sparklog.replica.messages import DescribeFiles, FilesDescribed, SnapshotFile

READ_BYTES = 1 << 28


async def handle(request: DescribeFiles, *, replicas: ReplicaManager) -> FilesDescribed:
    replica = find_led(
        replicas,
        request.name,
        topic_id=request.topic_id,
        leader_epoch=request.leader_epoch,
        follower=request.replica_id,
    )
    is_summed = (
        request.wants_sums
        or "compact" in replica.config.cleanup_policy
        or replica.log.generation > 0
        or replica.log.compacted_to > 0
    )
    return await asyncio.to_thread(
        _describe, replica.log, request.since, replica.partition.high_watermark, is_summed=is_summed
    )


def _describe(log: Log, since: int, high_watermark: int, *, is_summed: bool) -> FilesDescribed:
    """Blocks. What is said of the whole is read first: where it is older than the segments, the follower asks again."""
    generation, cleaned_offset, closed_to = log.generation, log.compacted_to, log.segments[-1].base_offset
    return FilesDescribed(
        generation=generation,
        segments=log.sums(since, high_watermark, read_bytes=READ_BYTES if is_summed else 0),
        closed_to=closed_to,
        cleaned_offset=cleaned_offset,
        is_summed=is_summed,
        snapshot=_newest_snapshot(log),
    )


def _newest_snapshot(log: Log) -> SnapshotFile | None:
    newest = log.newest_snapshot_id()
    try:
        size = log.open_snapshot(newest).size if newest else 0
    except OffsetOutOfRange:  # a newer one has come
        return _newest_snapshot(log)
    return SnapshotFile(end_offset=newest[0], leader_epoch=newest[1], size_bytes=size) if newest and size else None


API = Api(name="DescribeFiles", handle=handle)
