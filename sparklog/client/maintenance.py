"""The client of jobs: logs as brokers have them, their segments' bytes, and segments put in place of others.

    describe ─▶ read ─▶ begin_replace ─▶ upload, or write the file at the lease's path ─▶ commit_replace | abort_replace

`AsyncMaintenance` is the implementation, `Maintenance` (sync_maintenance.py) the same for use without an event loop.
What concerns a log goes to the broker that described it, leader or not. Calls are tried again while that broker cannot
be reached, for `default_api_timeout_ms`; a segment is read on from where it broke off. An upload is not tried again: a
new one, under the same lease or a new one, takes its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from sparklog.base.clock import Clock, SystemClock
from sparklog.base.errors import (
    CorruptRecord,
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    NetworkException,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.client.cluster import Cluster
from sparklog.client.config import AdminConfig
from sparklog.client.connection import Connection, error_of
from sparklog.client.retry import retrying
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.description_messages import segment_message, to_log, to_segment
from sparklog.v1 import maintenance_pb2

T = TypeVar("T")
PIECE_BYTES = 1 << 20
"""Of an upload, sent at once."""
FINAL = (CorruptRecord, FencedLeaderEpoch, KafkaStorageError, UnknownLeaderEpoch, UnknownTopicOrPartition)
"""Errors that others may try again, but that make a plan of upkeep void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to replace segments of one partition on one broker, for as long as there are signs of life."""

    lease_id: str
    path: str
    """Where the new segment may be written on the broker's own disk: the file must be made new (O_EXCL)."""
    partition: TopicPartition
    broker_id: int


class AsyncMaintenance:
    """Looks after logs, for use on an event loop.

        async with AsyncMaintenance(bootstrap_servers="127.0.0.1:9094") as maintenance:
            logs = await maintenance.describe_logs()

    Options are those of AdminConfig. Raises ConfigError for any that is wrong.
    """

    def __init__(self, *, clock: Clock | None = None, random: Random | None = None, **options: Any) -> None:
        self.config = AdminConfig.parse(options)
        self._cluster = Cluster(self.config, clock or SystemClock(), random or Random())

    # What there is

    async def describe_logs(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, LogDescription | KafkaError]:
        """The leader's log of each partition, or of all there are; an error for a partition that has none to show."""
        wanted = None if partitions is None else list(dict.fromkeys(partitions))
        if wanted == []:
            return {}
        return leaders(wanted or (), await self._describe(wanted or ()))

    async def describe_replicas(self) -> list[LogDescription]:
        """Every log of every broker that can be read."""
        return [told for _, told in await self._describe(()) if isinstance(told, LogDescription)]

    async def _describe(
        self, partitions: Sequence[TopicPartition]
    ) -> list[tuple[TopicPartition, LogDescription | KafkaError]]:
        request = maintenance_pb2.DescribeLogRequest(
            partitions=[
                maintenance_pb2.PartitionOfTopic(topic=name.topic, partition=name.partition) for name in partitions
            ]
        )
        found = []
        for broker_id in await self._cluster.brokers():
            answer = await self._ask(broker_id, "DescribeLog", request)
            found += [
                (
                    TopicPartition(part.topic, part.partition),
                    error_of(part) or to_log(part, broker_id=answer.broker_id, cluster_id=answer.cluster_id),
                )
                for part in answer.partitions
            ]
        return found

    async def read_segment(
        self,
        log: LogDescription,
        segment: SegmentDescription,
        position: int = 0,
        size: int | None = None,
        file: str = "log",
    ) -> AsyncGenerator[bytes, None]:
        """A file of a segment from `position` on, `size` bytes or all of them, in pieces of at most a megabyte.

        file: log, index, timeindex, or leader-epoch-checkpoint, which is of the whole log. Raises InvalidUpdateVersion
        where the segment is no more what was described; what had begun before is read to its end.
        """
        request = maintenance_pb2.ReadSegmentRequest(
            topic=log.partition.topic,
            partition=log.partition.partition,
            base_offset=segment.base_offset,
            position=position,
            size=size,
            identity=segment.identity or None,
            file=file,
        )
        stream: Any = None

        async def read() -> bytes | None:
            nonlocal stream
            connection = await self._cluster.broker(log.broker_id)
            if stream is None:
                stream = connection.maintenance.ReadSegment(request, metadata=connection.metadata)
            try:
                message = await connection.step(stream.read(), self.config.request_timeout_ms)
            except KafkaError:
                stream = None  # to go on with another one
                raise
            return None if message is grpc.aio.EOF else message.data

        try:
            while (piece := await self._retrying(read)) is not None:
                request.position += len(piece)
                if size is not None:
                    request.size -= len(piece)
                yield piece
        finally:
            if stream is not None:
                stream.cancel()

    # Replacing segments

    async def begin_replace(
        self, log: LogDescription, sources: Sequence[SegmentDescription], holder: str, lease_ms: int = 60_000
    ) -> Lease:
        """Take the lease for putting one segment in place of `sources`: neighbours, closed and committed.

        holder: who asks; asking again takes over the lease that the same holder has. lease_ms: how long it lives
        without a sign of life. Raises DuplicateResource where somebody else has it; InvalidUpdateVersion,
        FencedLeaderEpoch, UnknownLeaderEpoch or UnknownTopicOrPartition where `log` is out of date.
        """
        request = maintenance_pb2.BeginReplaceRequest(
            topic=log.partition.topic,
            partition=log.partition.partition,
            leader_epoch=log.leader_epoch,
            sources=map(segment_message, sources),
            lease_ms=lease_ms,
            holder=holder,
        )
        answer = await self._ask(log.broker_id, "BeginReplace", request)
        return Lease(lease_id=answer.lease_id, path=answer.path, partition=log.partition, broker_id=log.broker_id)

    async def upload(self, lease: Lease, chunks: AsyncIterable[bytes]) -> int:
        """Send the new segment, and return its size. Raises ResourceNotFound where the lease has ended."""
        upload = await self.open_upload(lease)
        try:
            async for chunk in chunks:
                await upload.write(chunk)
            return await upload.finish()
        finally:
            upload.close()

    async def open_upload(self, lease: Lease) -> Upload:
        """Begin to send the new segment; what was sent before under the lease is dropped."""
        connection = await self._cluster.broker(lease.broker_id)
        call = connection.maintenance.UploadSegment(metadata=connection.metadata)
        first = maintenance_pb2.UploadSegmentRequest(lease_id=lease.lease_id)
        return Upload(connection, call, first, self.config.request_timeout_ms)

    async def commit_replace(self, lease: Lease, leader_epoch: int, size_bytes: int, crc32c: int) -> SegmentDescription:
        """Have the new segment checked and put in place, and return it as it is then. Once done, it stays done.

        size_bytes, crc32c: of all its bytes. Raises CorruptRecord or InvalidRecord where it may not take the sources'
        place, ResourceNotFound where the lease has ended, and as `begin_replace` does. The lease has ended then.
        """
        request = maintenance_pb2.CommitReplaceRequest(
            lease_id=lease.lease_id, leader_epoch=leader_epoch, size_bytes=size_bytes, crc32c=crc32c
        )
        return to_segment((await self._ask(lease.broker_id, "CommitReplace", request)).segment)

    async def abort_replace(self, lease: Lease) -> None:
        """Give up a lease, and what was uploaded or written; nothing where it has ended."""
        request = maintenance_pb2.AbortReplaceRequest(lease_id=lease.lease_id)
        await self._ask(lease.broker_id, "AbortReplace", request)

    async def set_cleaned_offset(
        self, log: LogDescription, offset: int, segments: Sequence[SegmentDescription]
    ) -> None:
        """Say that everything below `offset` has been compacted, which lies in `segments`.

        Raises InvalidUpdateVersion where one of them is no more, and as `begin_replace` does.
        """
        request = maintenance_pb2.SetCleanedOffsetRequest(
            topic=log.partition.topic,
            partition=log.partition.partition,
            leader_epoch=log.leader_epoch,
            offset=offset,
            segments=map(segment_message, segments),
        )
        await self._ask(log.broker_id, "SetCleanedOffset", request)

    # Snapshots

    async def install_snapshot(
        self, partition: TopicPartition, leader_epoch: int, end_offset: int, chunks: AsyncIterable[bytes]
    ) -> int:
        """Keep a snapshot of a partition of __consumer_offsets with its leader, and return its size.

        chunks: whole record batches, in order, of the newest record of each key below `end_offset`.
        """
        upload = await self.open_snapshot(partition, leader_epoch, end_offset)
        try:
            async for chunk in chunks:
                await upload.write(chunk)
            return await upload.finish()
        finally:
            upload.close()

    async def open_snapshot(self, partition: TopicPartition, leader_epoch: int, end_offset: int) -> Upload:
        """Begin to send a snapshot."""
        connection = await self._cluster.leader(partition, self.config.default_api_timeout_ms)
        call = connection.maintenance.InstallSnapshot(metadata=connection.metadata)
        first = maintenance_pb2.InstallSnapshotRequest(
            topic=partition.topic, partition=partition.partition, leader_epoch=leader_epoch, end_offset=end_offset
        )
        return SnapshotUpload(connection, call, first, self.config.request_timeout_ms)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask(self, broker_id: int, method: str, request: Any) -> Any:
        async def attempt() -> Any:
            broker = await self._cluster.broker(broker_id)
            return await broker.call(getattr(broker.maintenance, method), request, self.config.request_timeout_ms)

        return await self._retrying(attempt)

    async def _retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retrying(
            attempt,
            final=FINAL,
            timeout_ms=self.config.default_api_timeout_ms,
            backoff=self._cluster.backoff,
            clock=self._cluster.clock,
        )


def leaders(
    wanted: Iterable[TopicPartition], told: Iterable[tuple[TopicPartition, LogDescription | KafkaError]]
) -> dict[TopicPartition, LogDescription | KafkaError]:
    """Of what several brokers told, the leader's log of each partition, or the best reason why there is none."""
    found: dict[TopicPartition, LogDescription | KafkaError] = {
        name: UnknownTopicOrPartition(f"no broker has partition {name}") for name in wanted
    }
    for name, log in told:
        is_follower = isinstance(log, LogDescription) and not log.is_leader
        better = LeaderNotAvailable(f"partition {name} has no leader at the moment") if is_follower else log
        if name not in found or _weight(better) > _weight(found[name]):
            found[name] = better
    return found


def _weight(told: LogDescription | KafkaError) -> int:
    match told:
        case UnknownTopicOrPartition():
            return 0
        case LeaderNotAvailable():
            return 1
        case KafkaError():
            return 2
    return 3


class Upload:
    """A call that takes bytes in order, in pieces, and answers each. Close it, whatever happens."""

    def __init__(self, connection: Connection, call: Any, first: Any, timeout_ms: int) -> None:
        """`first` is the first message, without its bytes. timeout_ms: for each step."""
        self._connection = connection
        self._call = call
        self._message = first
        self._timeout_ms = timeout_ms
        self._size: int | None = None

    async def write(self, chunk: bytes) -> None:
        """Send bytes of any number, and return once they are written there. Raises the KafkaError that ended the call.

        One piece is on its way at a time: gRPC may lose the reason of a call that is broken off while it is written to.
        """
        view = memoryview(chunk)
        for start in range(0, len(view), PIECE_BYTES):
            await self._send(bytes(view[start : start + PIECE_BYTES]))

    async def finish(self) -> int:
        """What the broker has then: so many bytes."""
        if self._size is None:
            await self._send(b"")
        await self._step(self._call.done_writing())
        while await self._read():
            pass
        assert self._size is not None
        return self._size

    def close(self) -> None:
        """Break it off, unless it has finished."""
        self._call.cancel()

    async def _send(self, data: bytes) -> None:
        self._message.data = data
        await self._step(self._call.write(self._message))
        self._message = type(self._message)()
        if not await self._read():
            raise NetworkException(f"{self._connection.address} has ended the call before its time")

    async def _read(self) -> bool:
        answer = await self._step(self._call.read())
        if answer is grpc.aio.EOF:
            return False
        self._size = answer.size_bytes
        return True

    async def _step(self, step: Awaitable[T]) -> T:
        try:
            return await self._connection.step(step, self._timeout_ms)
        except asyncio.InvalidStateError:  # the broker has ended the call before its time, and says why
            await self._connection.step(self._call.read(), self._timeout_ms)
            raise


class SnapshotUpload(Upload):
    """An upload that says at its end how many bytes there were: a call that is broken off ends just like one that is
    done, so far as the broker can see.
    """

    _sent_bytes = 0

    async def write(self, chunk: bytes) -> None:
        """As Upload.write."""
        await super().write(chunk)
        self._sent_bytes += len(chunk)

    async def finish(self) -> int:
        """As Upload.finish."""
        self._message.size_bytes = self._sent_bytes
        await self._send(b"")
        return await super().finish()
