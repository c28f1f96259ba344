"""DescribeFiles: describe the leader's closed segments to a follower (service Replication).

- Only the leader answers, only to a follower that requests in its leader epoch, for the topic with that id, as for
  ReplicaFetch.
- The answer has the segments from an offset on that end at or below the high watermark. Files are read for their
  checksums in a thread, each file once. An answer covers `READ_BYTES` of them and one segment more, so that it comes in
  time; the follower requests the rest next.
- Checksums are left out if the topic is not compacted and no segment was replaced since the start: then segments with
  the same first and last offset and size are equal. A follower that finds a difference requests checksums.
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
    """Describe the log. Blocks. Read the log's values before its segments: if they are older, the follower retries."""
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
    except OffsetOutOfRange:  # a newer snapshot has replaced it
        return _newest_snapshot(log)
    return SnapshotFile(end_offset=newest[0], leader_epoch=newest[1], size_bytes=size) if newest and size else None


API = Api(name="DescribeFiles", handle=handle)
