"""InstallSnapshot: install a snapshot of a partition of `__consumer_offsets`, for its coordinator to load.

- Only the leader accepts it, in its leader epoch: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
- OFFSET_OUT_OF_RANGE if the log does not have all records below the end offset as committed, at the start or once the
  last byte has come, and if a transaction that begins below it has not ended. CORRUPT_MESSAGE or INVALID_RECORD if the
  bytes are not a snapshot (log/offset_snapshots). INVALID_REQUEST for any other topic.
- Bytes are written as they come, in a thread: a snapshot takes the memory of one piece. A call that breaks off, or
  sends nothing for a minute, leaves nothing behind. A snapshot that was acknowledged is on disk.
- RECORD_LIST_TOO_LARGE above twice the size of the log plus 1 MiB.
- Concurrent calls do not disturb one another: the last to end stays, but an older snapshot never replaces a newer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.errors import InvalidRequest, OffsetOutOfRange, RecordListTooLarge, RequestTimedOut
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import on_cluster
from sparklog.group.coordinator import OFFSETS_TOPIC
from sparklog.log.log import Log
from sparklog.log.offset_snapshots.snapshot import SnapshotWriter
from sparklog.replica.manager import ReplicaManager
from sparklog.runtime.serial_executor import SerialExecutor

SILENCE_S = 60
MARGIN_BYTES = 1 << 20


class InstallSnapshotRequest(Struct, frozen=True, kw_only=True):
    partition: TopicPartition
    leader_epoch: int
    end_offset: int
    chunks: AsyncIterator[bytes]
    """Record batches, split at any byte."""


class InstallSnapshotResponse(Struct, frozen=True, kw_only=True):
    size_bytes: int


async def handle(request: InstallSnapshotRequest, *, replicas: ReplicaManager) -> InstallSnapshotResponse:
    """Return the snapshot's size once it is in place.

    Raises InvalidRequest for another topic, OffsetOutOfRange above the last stable offset, and as
    `ReplicaManager.get_leader`, `Partition.check_leader_epoch` and `SnapshotStore.begin` do.
    """
    if request.partition.topic != OFFSETS_TOPIC:
        raise InvalidRequest(f"{request.partition}: only {OFFSETS_TOPIC} has snapshots")
    replica = replicas.get_leader(request.partition)
    replica.partition.check_leader_epoch(request.leader_epoch)
    if request.end_offset > replica.last_stable_offset:
        raise OffsetOutOfRange(
            f"{request.partition}: offset {request.end_offset} is above the last stable offset "
            f"{replica.last_stable_offset}"
        )
    writer = await asyncio.to_thread(replica.log.offset_snapshots.begin, request.end_offset)
    return InstallSnapshotResponse(size_bytes=await _write(replica.log, writer, request.chunks))


async def _write(log: Log, writer: SnapshotWriter, chunks: AsyncIterator[bytes]) -> int:
    executor = SerialExecutor()  # a write under way ends first if the call is cancelled
    try:
        await _receive(log, writer, chunks, executor)
    except BaseException:
        await executor.run_in_thread(writer, partial(log.offset_snapshots.abort, writer))
        raise
    return await executor.run_in_thread(writer, partial(log.offset_snapshots.install, writer))


async def _receive(log: Log, writer: SnapshotWriter, chunks: AsyncIterator[bytes], executor: SerialExecutor) -> None:
    limit, size = 2 * log.size_bytes + MARGIN_BYTES, 0
    try:
        while (chunk := await asyncio.wait_for(anext(chunks, None), SILENCE_S)) is not None:
            size += len(chunk)
            if size > limit:
                raise RecordListTooLarge(f"{log.partition}: a snapshot of more than {limit} bytes")
            await executor.run_in_thread(writer, partial(log.offset_snapshots.write, writer, chunk))
    except TimeoutError:
        raise RequestTimedOut(f"{log.partition}: nothing of the snapshot came for {SILENCE_S} s") from None


API = Api(name="InstallSnapshot", handle=handle, rights=(on_cluster(AclOperation.CLUSTER_ACTION),))
