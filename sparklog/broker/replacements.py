"""Replacements of segments in this broker's logs: the leases of `leases.py`, and the work on files under them.

    begin     check the sources, remove what an earlier lease staged
    upload    append the pieces to the staged file; or the caller writes that file itself, if it shares the disk
    commit    `SegmentReplacer.replace`: verify, swap. A repeated commit returns the same answer
    end       by abort, expiry, a refused commit or the broker's stop: the staged file is removed

Only the leader's log is replaced; its followers copy the new segments from it (replica/segment_sync.py).

The work on one log's files runs one task at a time, in threads. If the partition's log is no longer the lease's log
(the topic was deleted, and perhaps created again), the commit is refused. Opening a log removes staged files that a
crash left behind.

Memory: one piece for each upload. A client that sends nothing for the lease's duration loses the lease. Verifying takes
long: at most `COMMITS_AT_ONCE` commits run at once, to leave threads for other disk work; further commits queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from msgspec import Struct

from sparklog.base.clock import Clock
from sparklog.base.errors import InvalidRequest, InvalidUpdateVersion, KafkaError, RecordListTooLarge, ResourceNotFound
from sparklog.base.ids import TopicPartition
from sparklog.broker.leases import Lease, Leases
from sparklog.broker.metrics import Metrics
from sparklog.log.description import SegmentDescription
from sparklog.log.log import Log
from sparklog.log.replacement.swap import StagedFile
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.runtime.serial_executor import SerialExecutor

MAX_LEASE_MS = 3_600_000
MAX_HOLDER = 1_000  # characters
MARGIN_BYTES = 1 << 20
COMMITS_AT_ONCE = 2
logger = logging.getLogger(__name__)


class StagedChecksum(Struct, frozen=True, kw_only=True):
    """The staged file's size and checksum, as its writer states them."""

    size_bytes: int
    crc32c: int


class Replacements:
    """All replacements of one broker. Used on its event loop."""

    def __init__(self, replicas: ReplicaManager, clock: Clock, metrics: Metrics, new_id: Callable[[], str]) -> None:
        self._replicas = replicas
        self._clock = clock
        self._metrics = metrics
        self._new_id = new_id
        self._leases: Leases[Log] = Leases()
        self._executor = SerialExecutor()
        self._committing = asyncio.Semaphore(COMMITS_AT_ONCE)

    def __len__(self) -> int:
        """Return the number of leases."""
        return len(self._leases)

    async def begin(
        self,
        partition: TopicPartition,
        leader_epoch: int,
        sources: Sequence[SegmentDescription],
        *,
        holder: str,
        lease_ms: int,
    ) -> Lease[Log]:
        """Check the sources, take the log's lease and return it.

        Raises as `Leases.begin`, `ReplicaManager.get_leader`, `Partition.check_leader_epoch` and
        `SegmentReplacer.check_sources` do, InvalidRequest, and InvalidUpdateVersion if the sources end above the high
        watermark.
        """
        if not sources or not 0 < lease_ms <= MAX_LEASE_MS or not 0 < len(holder) <= MAX_HOLDER:
            raise InvalidRequest(
                f"{len(sources)} sources, a lease of {lease_ms} ms, a holder of {len(holder)} characters: at least 1, "
                f"1 to {MAX_LEASE_MS} and 1 to {MAX_HOLDER} are allowed"
            )
        replica = self._replicas.get_leader(partition)
        replica.partition.check_leader_epoch(leader_epoch)
        if sources[-1].next_offset > (committed := replica.partition.high_watermark):
            raise InvalidUpdateVersion(f"{partition}: the sources end above the high watermark {committed}")
        self._leases.check_free(replica.log, holder, self._now_ms)
        lease = Lease(id=self._new_id(), log=replica.log, holder=holder, sources=tuple(sources), lease_ms=lease_ms)
        return await self._executor.run(replica.log, partial(self._begin, lease))

    async def _begin(self, requested: Lease[Log]) -> Lease[Log]:
        before = self._leases.held(requested.log)
        lease = self._leases.begin(requested, self._now_ms)
        try:
            if before:
                await self._discard(before)
            await asyncio.to_thread(_prepare, lease)
        except BaseException:
            self._leases.end(lease.id)
            raise
        return lease

    async def upload(self, lease_id: str, pieces: AsyncIterator[bytes]) -> int:
        """Stage the pieces and return their size. Raises ResourceNotFound, RecordListTooLarge or KafkaStorageError."""
        log = self._leases.get(lease_id, self._now_ms).log
        lease, file = await self._executor.run(log, partial(self._begin_upload, lease_id))
        limit, size = _max_bytes(lease), 0
        try:
            while (piece := await asyncio.wait_for(anext(pieces, None), lease.lease_ms / 1000)) is not None:
                size += len(piece)
                if size > limit:
                    raise RecordListTooLarge(f"more than {limit} bytes for segments of {_size(lease)}")
                await self._append(lease, file, piece)
        except TimeoutError:
            await self._give_up(lease)
            raise ResourceNotFound(f"lease {lease_id!r} has expired: nothing came for {lease.lease_ms} ms") from None
        except RecordListTooLarge:
            await self._give_up(lease)
            raise
        await self._executor.run_in_thread(log, file.close)
        return size

    async def _begin_upload(self, lease_id: str) -> tuple[Lease[Log], StagedFile]:
        lease = self._leases.begin_upload(lease_id, self._now_ms)
        return lease, await asyncio.to_thread(lease.log.replacer.stage, lease.base_offset)

    async def _append(self, lease: Lease[Log], file: StagedFile, piece: bytes) -> None:
        async def append() -> None:
            self._leases.renew(lease.id, lease.upload, self._now_ms)
            await asyncio.to_thread(file.append, piece)

        await self._executor.run(lease.log, append)

    async def _give_up(self, upload: Lease[Log]) -> None:
        """End the lease of a failed upload, unless another upload has begun since."""
        lease = self._leases.find(upload.id)
        if lease and lease.upload == upload.upload:
            await self.abort(lease.id)

    async def commit(self, lease_id: str, leader_epoch: int, staged: StagedChecksum) -> SegmentDescription:
        """Put the staged segment in place of its sources and return it.

        Raises as `ReplicaManager.get_leader`, `Partition.check_leader_epoch` and `SegmentReplacer.replace` do, which
        ends the lease; and ResourceNotFound if the lease has ended.
        """
        if answer := self._leases.answer(lease_id):
            return answer
        log = self._leases.get(lease_id, self._now_ms).log
        return await self._executor.run(log, partial(self._commit, lease_id, leader_epoch, staged))

    async def _commit(self, lease_id: str, leader_epoch: int, staged: StagedChecksum) -> SegmentDescription:
        if answer := self._leases.answer(lease_id):  # another commit ran while this one queued
            return answer
        lease = self._leases.begin_commit(lease_id, self._now_ms)
        try:
            async with self._committing:
                segment = await self._replace(lease, leader_epoch, staged)
        except BaseException:
            self._leases.end(lease_id)
            await self._discard(lease)
            raise
        self._leases.finish(lease_id, segment, self._now_ms)
        self._metrics.replaced(lease.log.partition.topic, len(lease.sources), _size(lease), segment.size_bytes)
        return segment

    async def _replace(self, lease: Lease[Log], leader_epoch: int, staged: StagedChecksum) -> SegmentDescription:
        partition = self._replica_of(lease).partition
        partition.check_leader_epoch(leader_epoch)
        return await asyncio.to_thread(
            lease.log.replacer.replace,
            lease.sources,
            size_bytes=staged.size_bytes,
            crc32c=staged.crc32c,
            high_watermark=partition.high_watermark,
        )

    async def abort(self, lease_id: str) -> None:
        """End a lease; do nothing if it does not exist."""
        if lease := self._leases.find(lease_id):
            await self._executor.run(lease.log, partial(self._end, lease_id))

    async def expire(self) -> None:
        """End the expired leases."""
        for lease in self._leases.expired(self._now_ms):
            await self._executor.run(lease.log, partial(self._expire, lease))

    async def stop(self) -> None:
        """End all leases, and wait until no work on logs is left."""
        for lease in self._leases.all:
            await self.abort(lease.id)
        await self._executor.settled()

    async def _expire(self, lease: Lease[Log]) -> None:
        if lease in self._leases.expired(self._now_ms):  # it may have been renewed while this queued
            logger.info("%s: the lease of %r has expired", lease.log.partition, lease.holder)
            await self._end(lease.id)

    async def _end(self, lease_id: str) -> None:
        if lease := self._leases.end(lease_id):
            await self._discard(lease)

    async def _discard(self, lease: Lease[Log]) -> None:
        try:
            await asyncio.to_thread(lease.log.replacer.discard_staged, lease.base_offset)
        except KafkaError as error:  # the log is deleted or its disk has failed: the file is never used
            logger.info("%s: what was staged at %d stays: %s", lease.log.partition, lease.base_offset, error)

    def _replica_of(self, lease: Lease[Log]) -> Replica:
        replica = self._replicas.get_leader(lease.log.partition)
        if replica.log is not lease.log:
            raise InvalidUpdateVersion(f"{lease.log.partition} is of another topic by now")
        return replica

    @property
    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()


def _prepare(lease: Lease[Log]) -> None:
    """Check the sources and remove what was staged. Blocks."""
    lease.log.replacer.check_sources(lease.sources)
    lease.log.replacer.discard_staged(lease.base_offset)


def _size(lease: Lease[Log]) -> int:
    return sum(source.size_bytes for source in lease.sources)


def _max_bytes(lease: Lease[Log]) -> int:
    """Return the upload limit. A rewritten segment may be larger: another batch format or codec, more headers."""
    return 2 * _size(lease) + MARGIN_BYTES
