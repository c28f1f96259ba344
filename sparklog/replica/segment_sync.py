"""Makes a follower's closed segments the same files as its leader's.

A cleaner replaces segments in the leader's log, and followers copy the result. Followers compare files instead of
receiving changes. So a comparison also repairs missed changes, remains of a crash, and changes of an earlier leader.

    when     the leader epoch or the leader's generation (`Log.generation`, sent with fetch responses) has changed since
             the last comparison, or that comparison was incomplete: this log did not reach the end of the leader's
             closed segments, or had records from an earlier leader in a segment that this leader has closed since
    compare  the leader's closed segments below its high watermark, by checksum, with this log's below its own
             (differences.py)
    take     for each difference, the leader's files are copied in pieces, staged, verified, and swapped in for this
             log's (log/replacement/swap.py): the log holds the old files or the new ones at every moment
    then     the log's cleaned offset is set to the leader's, and the leader's newest snapshot (log/offset_snapshots)
             is copied unless this log has one as new

The leader's files always count, even if they have records that this log has compacted away: a leader that had not
synced before its election is compacted again later.

Syncing runs beside fetching: one partition per leader fetcher at a time, one piece in memory. Retention, truncation and
deletion may interfere, so the compared segments are checked again when the names change (log/replacement). A replica
ends its sync before it follows another leader or leads. That takes no longer than verifying the next batch, or
finishing a change of names that has begun.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import InvalidUpdateVersion, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.log.description import SegmentSum
from sparklog.log.log import Log
from sparklog.log.offset_snapshots.snapshot import SnapshotId
from sparklog.log.replacement.replace import StagedSegment
from sparklog.replica.differences import Difference, compare
from sparklog.replica.manager import Replica
from sparklog.replica.messages import (
    NO_GENERATION,
    DescribeFiles,
    DescribeFilesResponse,
    ReadReplicaFile,
    ReadReplicaFileResponse,
    SnapshotFile,
)
from sparklog.replica.state_changes import InitialFetchState
from sparklog.replica.throttle import ReplicationThrottle, is_listed

FIRST_PAUSE_MS = 100
EMPTY_PAUSE_S = 0.1
MAX_PAUSE_MS = 60_000
READ_BYTES = 1 << 26
Result = TypeVar("Result")
Ask = Callable[[int, Any], Awaitable[Any]]
"""Sends a request of an inter-broker API to the broker with this id and returns its response. Raises KafkaError."""
logger = logging.getLogger(__name__)


class LastComparison(Struct):
    """Result of the last comparison with the leader of this epoch."""

    generation: int = NO_GENERATION
    closed_to: int = -1
    """End offset of the leader's closed segments."""
    committed_to: int = -1
    """End offset of the leader's newest snapshot; -1: none."""
    is_complete: bool = True
    """Whether this log reached both offsets."""
    covers_own: bool = True
    """Whether the comparison covered all records that this log had before it followed this leader."""


class SegmentSync:
    """Segment sync of one partition while it follows one leader. Used on the event loop."""

    def __init__(
        self,
        name: TopicPartition,
        state: InitialFetchState,
        *,
        ask: Ask,
        config: BrokerConfig,
        throttle: ReplicationThrottle,
        semaphore: asyncio.Semaphore,
    ) -> None:
        """semaphore: limits how many partitions are synced from this leader at a time."""
        self._name = name
        self._state = state
        self._ask = ask
        self._config = config
        self._throttle = throttle
        self._semaphore = semaphore
        self._leader_generation = NO_GENERATION
        self._leader_closed_to = -1
        self._own_to = -1  # the log end offset at this leader's first response
        self._last = LastComparison()
        self._is_over = False
        self._task: asyncio.Task[None] | None = None

    def update(self, replica: Replica, generation: int, segment_base_offset: int) -> None:
        """Start syncing if due. Call it with the values of each fetch response, after its records are written."""
        self._leader_generation = generation
        self._leader_closed_to = max(self._leader_closed_to, segment_base_offset)
        if self._own_to < 0:
            self._own_to = replica.log.log_end_offset
        if (self._task is None or self._task.done()) and self._is_due(replica):
            self._task = asyncio.create_task(self._run(replica), name=f"comparing {self._name}")

    def end(self) -> asyncio.Task[None] | None:
        """Stop syncing; return the task to wait for, or None if there is none."""
        self._is_over = True
        if self._task is None or self._task.done():
            return None
        self._task.cancel()
        return self._task

    def _is_due(self, replica: Replica) -> bool:
        if self._is_over or self._leader_generation == NO_GENERATION:
            return False
        if self._leader_generation == 0 and len(replica.log.segments) == 1:  # nothing closed, nothing replaced
            return False
        last = self._last
        if last.generation != self._leader_generation or (not last.is_complete and _reaches(replica, last)):
            return True
        can_cover_more = last.closed_to < self._leader_closed_to <= _closed_to(replica)
        return not last.covers_own and can_cover_more

    async def _run(self, replica: Replica) -> None:
        failures = 0
        while self._is_due(replica):
            try:
                async with self._semaphore:
                    await self._sync_once(replica)
                failures = 0
            except Exception as error:  # noqa: BLE001 - the old files stay, and are compared again
                failures += 1
                self._log(error, failures)
                await asyncio.sleep(self._pause_ms(failures) / 1000)

    def _log(self, error: Exception, failures: int) -> None:
        if not isinstance(error, KafkaError):
            logger.error("the segments of %s could not be compared", self._name, exc_info=error)
        elif failures == 1 and not isinstance(error, InvalidUpdateVersion):
            logger.info("the segments of %s: from broker %d: %s %s", self._name, self._state.leader, error.name, error)

    def _pause_ms(self, failures: int) -> int:
        return min(MAX_PAUSE_MS, FIRST_PAUSE_MS << min(failures - 1, 16))

    async def _sync_once(self, replica: Replica) -> None:
        """Compare once and copy the differences. Raises KafkaError."""
        here = LastComparison(closed_to=_closed_to(replica), committed_to=replica.partition.high_watermark)
        there, leaders = await self._describe_leader(wants_sums=False)
        found = compare(await self._own_segments(replica, is_summed=there.is_summed), leaders)
        if found.differences and not there.is_summed:
            there, leaders = await self._describe_leader(wants_sums=True)
            found = compare(await self._own_segments(replica, is_summed=True), leaders)
        for difference in found.differences:
            await self._replace_segments(replica, difference)
        if found.differences:
            logger.info("%r: %d ranges of segments have become the leader's", replica.log, len(found.differences))
        await self._take_cleaned_offset(replica.log, min(there.cleaned_offset, found.end))
        if there.snapshot:
            await self._take_snapshot(replica, there.snapshot)
        end_offset = there.snapshot.end_offset if there.snapshot else -1
        is_complete = there.closed_to <= here.closed_to and end_offset <= here.committed_to
        covers_own = self._own_to <= found.end
        self._last = LastComparison(there.generation, there.closed_to, end_offset, is_complete, covers_own)

    async def _describe_leader(self, *, wants_sums: bool) -> tuple[DescribeFilesResponse, list[SegmentSum]]:
        """Return the leader's first response, and the segments of all its responses."""
        first = there = await self._describe_files(0, wants_sums=wants_sums)
        segments = list(there.segments)
        while there.segments and segments[-1].next_offset < first.closed_to:
            there = await self._describe_files(segments[-1].next_offset, wants_sums=wants_sums)
            segments += there.segments
        return first, segments

    async def _describe_files(self, since: int, *, wants_sums: bool) -> DescribeFilesResponse:
        request = DescribeFiles(
            name=self._name, topic_id=self._state.topic_id, replica_id=self._config.broker_id,
            leader_epoch=self._state.leader_epoch, since=since, wants_sums=wants_sums,
        )  # fmt: skip
        answer: DescribeFilesResponse = await self._ask(self._state.leader, request)
        return answer

    async def _own_segments(self, replica: Replica, *, is_summed: bool) -> list[SegmentSum]:
        """Return this log's closed segments below the high watermark. Can be cancelled between the reads."""
        log, committed, segments = replica.log, replica.partition.high_watermark, list[SegmentSum]()
        limit = READ_BYTES if is_summed else 0
        while True:
            since = segments[-1].next_offset if segments else 0
            found = await self._in_thread(partial(log.replacer.sums, since, committed, read_bytes=limit))
            segments += found
            if not found or not is_summed:
                return segments

    # Copying

    async def _replace_segments(self, replica: Replica, difference: Difference) -> None:
        log, own, leaders = replica.log, difference.own, difference.leaders
        try:
            for each in leaders:
                await self._copy(replica, each)
        except BaseException:
            await self._in_thread(lambda: _discard(log, leaders))
            raise
        staged = [
            StagedSegment(base_offset=each.base_offset, size_bytes=each.size_bytes, crc32c=each.crc32c)
            for each in leaders
        ]
        committed = replica.partition.high_watermark
        await self._in_thread(
            lambda: log.replacer.replace_all(own, staged, high_watermark=committed, is_wanted=lambda: not self._is_over)
        )

    async def _copy(self, replica: Replica, segment: SegmentSum) -> None:
        file = await self._in_thread(lambda: replica.log.replacer.stage(segment.base_offset))
        try:
            request = self._file_request(segment.base_offset, identity=segment.identity)
            async for data in self._read(replica, request, segment.size_bytes):
                await self._in_thread(partial(file.append, data))
        finally:
            file.close()

    def _file_request(self, offset: int, *, identity: str = "", snapshot_epoch: int | None = None) -> ReadReplicaFile:
        return ReadReplicaFile(
            name=self._name, topic_id=self._state.topic_id, replica_id=self._config.broker_id,
            leader_epoch=self._state.leader_epoch, offset=offset, identity=identity, snapshot_epoch=snapshot_epoch,
            position=0,
        )  # fmt: skip

    async def _read(self, replica: Replica, request: ReadReplicaFile, size_bytes: int) -> AsyncIterator[bytes]:
        position, loop = 0, asyncio.get_running_loop()
        listed = replica.config.follower_replication_throttled_replicas
        is_throttled = is_listed(listed, self._name.partition, self._config.broker_id)
        while position < size_bytes:
            if is_throttled and (pause := self._throttle.pause(loop.time())):
                await asyncio.sleep(pause)
                continue
            read: ReadReplicaFileResponse = await self._ask(self._state.leader, replace(request, position=position))
            if read.data:
                yield read.data
                position += len(read.data)
                if is_throttled:
                    self._throttle.sent(len(read.data), loop.time())
            else:
                await asyncio.sleep(EMPTY_PAUSE_S)

    async def _take_cleaned_offset(self, log: Log, offset: int) -> None:
        if offset >= 0 and offset != log.compacted_to:
            await self._in_thread(lambda: _set_cleaned_offset(log, offset))

    async def _take_snapshot(self, replica: Replica, snapshot: SnapshotFile) -> None:
        """Copy the snapshot, unless this log has an equally new one, or does not cover its end offset and epoch yet."""
        log, there = replica.log, SnapshotId(snapshot.end_offset, snapshot.leader_epoch)
        newest = await self._in_thread(log.offset_snapshots.newest_id)
        is_held = log.log_start_offset < there.end_offset <= replica.partition.high_watermark
        if (
            not is_held
            or (newest and newest >= there)
            or log.epochs.epoch_at(there.end_offset - 1) != there.leader_epoch
        ):
            return
        writer = await self._in_thread(partial(log.offset_snapshots.begin, there.end_offset))
        try:
            request = self._file_request(there.end_offset, snapshot_epoch=there.leader_epoch)
            async for data in self._read(replica, request, snapshot.size_bytes):
                await self._in_thread(partial(log.offset_snapshots.write, writer, data))
        except BaseException:
            await self._in_thread(partial(log.offset_snapshots.abort, writer))
            raise
        await self._in_thread(partial(log.offset_snapshots.install, writer))

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        """Run `work` in a thread; a cancelled caller still waits until the thread is done with the log."""
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # mark it as retrieved
            raise


def _closed_to(replica: Replica) -> int:
    """Return the end offset of the segments that can be compared."""
    return min(replica.log.segments[-1].base_offset, replica.partition.high_watermark)


def _reaches(replica: Replica, last: LastComparison) -> bool:
    return last.closed_to <= _closed_to(replica) and last.committed_to <= replica.partition.high_watermark


def _discard(log: Log, segments: Sequence[SegmentSum]) -> None:
    for each in segments:
        log.replacer.discard_staged(each.base_offset)


def _set_cleaned_offset(log: Log, offset: int) -> None:
    log.replacer.set_cleaned_offset(offset, log.replacer.sums(0, offset, read_bytes=0))
