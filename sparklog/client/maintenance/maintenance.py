"""The maintenance client for jobs: descriptions of brokers' logs, bytes of segments, and replacement of segments.

    describe ─▶ read ─▶ begin_replace ─▶ upload, or write the file at the lease's path ─▶ commit_replace | abort_replace

`AsyncMaintenance` is the implementation, `Maintenance` (sync.py) the same for use without an event loop.
Requests about a log go to the broker that described it, leader or not. Calls are retried while that broker cannot be
reached, for `default_api_timeout_ms` or until the cluster no longer lists it (BrokerNotAvailable). An interrupted read
of a segment resumes at its position. An upload is not retried: start a new one, under the same lease or a new one. A
change of the leader makes the description of a log invalid: describe it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar, Unpack

import grpc

from sparklog.base.clock import Clock, SystemClock
from sparklog.base.errors import (
    BrokerNotAvailable,
    CorruptRecord,
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    NetworkException,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import read_error, to_message, to_value
from sparklog.base.topic_config import TOPIC_KEYS, TopicConfig
from sparklog.client.base import AsyncClient
from sparklog.client.cluster import Cluster
from sparklog.client.config import AdminConfig
from sparklog.client.maintenance.uploads import SnapshotUpload, Upload
from sparklog.client.options import AdminOptions
from sparklog.client.retry import retrying
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.v1 import maintenance_pb2

T = TypeVar("T")
FINAL = (
    CorruptRecord,
    FencedLeaderEpoch,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
"""Errors that are retriable for other clients, but end a plan of maintenance."""
ELECTION_MS = 10_000
"""Time to wait for the election of a leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to replace segments of one partition on one broker; expires unless it is used."""

    lease_id: str
    path: str
    """Path on the broker's own disk for the new segment. The writer must create the file (O_EXCL)."""
    partition: TopicPartition
    broker_id: int


class AsyncMaintenance(AsyncClient):
    """Client for the maintenance of logs, for use on an event loop.

        async with AsyncMaintenance(bootstrap_servers="127.0.0.1:9094") as maintenance:
            logs = await maintenance.describe_logs()

    Options are those of AdminConfig; raises ConfigError for an invalid one.
    """

    def __init__(
        self, *, clock: Clock | None = None, random: Random | None = None, **options: Unpack[AdminOptions]
    ) -> None:
        self.config = AdminConfig.parse(options)
        self._cluster = Cluster(self.config, clock or SystemClock(), random or Random())

    # Descriptions

    async def describe_logs(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, LogDescription | KafkaError]:
        """Return the leader's log of each partition (None: of all), or the error of a log that cannot be described.

        Waits for an election. Raises NetworkException or RequestTimedOut if a broker that the cluster still lists does
        not answer.
        """
        wanted = () if partitions is None else tuple(dict.fromkeys(partitions))
        if partitions is not None and not wanted:
            return {}
        found: dict[TopicPartition, LogDescription | KafkaError] = {}

        async def attempt() -> None:
            nonlocal found
            found = leaders(wanted, await self._describe(wanted))
            for told in found.values():
                if isinstance(told, LeaderNotAvailable):
                    raise told

        with suppress(LeaderNotAvailable):
            await self._retrying(attempt, ELECTION_MS)
        return found

    async def describe_replicas(self) -> list[LogDescription]:
        """Return every readable log of every available broker."""
        return [told for _, told in await self._describe(()) if isinstance(told, LogDescription)]

    async def _describe(
        self, partitions: Sequence[TopicPartition]
    ) -> list[tuple[TopicPartition, LogDescription | KafkaError]]:
        request = maintenance_pb2.DescribeLogRequest(
            partitions=[
                maintenance_pb2.PartitionOfTopic(topic=name.topic, partition=name.partition) for name in partitions
            ]
        )
        brokers = sorted(await self._cluster.brokers())
        answers = await asyncio.gather(*(self._described_by(broker_id, request) for broker_id in brokers))
        return [told for answer in answers for told in answer]

    async def _described_by(
        self, broker_id: int, request: maintenance_pb2.DescribeLogRequest
    ) -> list[tuple[TopicPartition, LogDescription | KafkaError]]:
        try:
            answer = await self._ask(broker_id, "DescribeLog", request)
        except BrokerNotAvailable:  # gone since the listing of brokers: others lead its partitions
            return []
        return [
            (
                TopicPartition(part.topic, part.partition),
                read_error(part) or _to_description(part, answer),
            )
            for part in answer.partitions
        ]

    async def read_segment(
        self,
        log: LogDescription,
        segment: SegmentDescription,
        position: int = 0,
        size: int | None = None,
        file: str = "log",
    ) -> AsyncGenerator[bytes, None]:
        """Yield a file of a segment from `position` on, `size` bytes (None: all), in pieces of at most a megabyte.

        file: log, index, timeindex, txnindex, or leader-epoch-checkpoint, which is that of the whole log. Raises
        InvalidUpdateVersion if the segment has changed since the description; a read that has begun continues.
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
                stream = connection.maintenance.ReadSegment(request, metadata=await connection.metadata())
            try:
                message = await connection.step(stream.read(), self.config.request_timeout_ms)
            except KafkaError as error:
                stream = None  # the next attempt opens another one
                self._note_loss(error)
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
        """Take the lease for replacing `sources` by one segment, and return it.

        The sources must be adjacent, closed and committed.

        holder: name of the caller; a repeated call of the same holder renews its lease. lease_ms: time until the lease
        expires if it is not used. Raises DuplicateResource if another holder has the lease; InvalidUpdateVersion,
        FencedLeaderEpoch, UnknownLeaderEpoch or UnknownTopicOrPartition if `log` is out of date.
        """
        request = maintenance_pb2.BeginReplaceRequest(
            topic=log.partition.topic,
            partition=log.partition.partition,
            leader_epoch=log.leader_epoch,
            sources=map(_segment_message, sources),
            lease_ms=lease_ms,
            holder=holder,
        )
        answer = await self._ask(log.broker_id, "BeginReplace", request)
        return Lease(lease_id=answer.lease_id, path=answer.path, partition=log.partition, broker_id=log.broker_id)

    async def upload(self, lease: Lease, chunks: AsyncIterable[bytes]) -> int:
        """Send the new segment, and return its size in bytes. Raises ResourceNotFound if the lease has ended."""
        upload = await self.open_upload(lease)
        try:
            async for chunk in chunks:
                await upload.write(chunk)
            return await upload.finish()
        finally:
            upload.close()

    async def open_upload(self, lease: Lease) -> Upload:
        """Return an upload of the new segment; replaces an earlier upload under the lease."""
        connection = await self._cluster.broker(lease.broker_id)
        call = connection.maintenance.UploadSegment(metadata=await connection.metadata())
        first = maintenance_pb2.UploadSegmentRequest(lease_id=lease.lease_id)
        return Upload(connection, call, first, self.config.request_timeout_ms)

    async def commit_replace(self, lease: Lease, leader_epoch: int, size_bytes: int, crc32c: int) -> SegmentDescription:
        """Replace the sources by the new segment, after the broker's check, and return its description.

        May be repeated after success. size_bytes, crc32c: of the whole file. Raises CorruptRecord or InvalidRecord if
        the segment fails the check, ResourceNotFound if the lease has ended, and as `begin_replace` does. Ends the
        lease.
        """
        request = maintenance_pb2.CommitReplaceRequest(
            lease_id=lease.lease_id, leader_epoch=leader_epoch, size_bytes=size_bytes, crc32c=crc32c
        )
        committed = await self._ask(lease.broker_id, "CommitReplace", request)
        return to_value(committed.segment, SegmentDescription)

    async def abort_replace(self, lease: Lease) -> None:
        """End a lease and delete its new segment; no effect if the lease has ended."""
        request = maintenance_pb2.AbortReplaceRequest(lease_id=lease.lease_id)
        await self._ask(lease.broker_id, "AbortReplace", request)

    async def set_cleaned_offset(
        self, log: LogDescription, offset: int, segments: Sequence[SegmentDescription]
    ) -> None:
        """Report that all records below `offset` are compacted; `segments` contain them.

        Raises InvalidUpdateVersion if one of the segments no longer exists, and as `begin_replace` does.
        """
        request = maintenance_pb2.SetCleanedOffsetRequest(
            topic=log.partition.topic,
            partition=log.partition.partition,
            leader_epoch=log.leader_epoch,
            offset=offset,
            segments=map(_segment_message, segments),
        )
        await self._ask(log.broker_id, "SetCleanedOffset", request)

    # Snapshots

    async def install_snapshot(
        self, partition: TopicPartition, leader_epoch: int, end_offset: int, chunks: AsyncIterable[bytes]
    ) -> int:
        """Store a snapshot of a partition of __consumer_offsets at its leader, and return its size in bytes.

        chunks: whole record batches, in order, with the newest record of each key below `end_offset`.
        """
        upload = await self.open_snapshot(partition, leader_epoch, end_offset)
        try:
            async for chunk in chunks:
                await upload.write(chunk)
            return await upload.finish()
        finally:
            upload.close()

    async def open_snapshot(self, partition: TopicPartition, leader_epoch: int, end_offset: int) -> Upload:
        """Return an upload of a snapshot."""
        connection = await self._cluster.leader(partition, self.config.default_api_timeout_ms)
        call = connection.maintenance.InstallSnapshot(metadata=await connection.metadata())
        first = maintenance_pb2.InstallSnapshotRequest(
            topic=partition.topic, partition=partition.partition, leader_epoch=leader_epoch, end_offset=end_offset
        )
        return SnapshotUpload(connection, call, first, self.config.request_timeout_ms)

    # Runs of jobs

    async def note_job_run(
        self,
        job: str,
        run_id: str,
        *,
        started_ms: int,
        status: int,
        rows: int = 0,
        findings: int = 0,
        error: str | None = None,
        schedule: str | None = None,
    ) -> None:
        """Record a job's run in the cluster's history, if there is one; one attempt, at any broker."""
        request = maintenance_pb2.NoteJobRunRequest(
            job=job, run_id=run_id, started_ms=started_ms, status=status, rows=rows, findings=findings, error=error,
            schedule=schedule,
        )  # fmt: skip
        timeout_ms = self.config.request_timeout_ms
        await self._cluster.any_broker(lambda broker: broker.call(broker.maintenance.NoteJobRun, request, timeout_ms))

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    async def _ask(self, broker_id: int, method: str, request: Any) -> Any:
        async def attempt() -> Any:
            broker = await self._cluster.broker(broker_id)
            try:
                return await broker.call(getattr(broker.maintenance, method), request, self.config.request_timeout_ms)
            except KafkaError as error:
                self._note_loss(error)
                raise

        return await self._retrying(attempt)

    def _note_loss(self, error: KafkaError) -> None:
        """Make the next attempt check that the cluster still lists a broker that could not be reached."""
        if isinstance(error, NetworkException | RequestTimedOut):
            self._cluster.lost_broker()

    async def _retrying(self, attempt: Callable[[], Awaitable[T]], limit_ms: int | None = None) -> T:
        timeout_ms = self.config.default_api_timeout_ms
        return await retrying(
            attempt,
            final=FINAL,
            timeout_ms=timeout_ms if limit_ms is None else min(limit_ms, timeout_ms),
            backoff=self._cluster.backoff,
            clock=self._cluster.clock,
        )


def leaders(
    wanted: Iterable[TopicPartition], told: Iterable[tuple[TopicPartition, LogDescription | KafkaError]]
) -> dict[TopicPartition, LogDescription | KafkaError]:
    """Return the leader's log of each partition from the answers of several brokers, or the error without one."""
    found: dict[TopicPartition, LogDescription | KafkaError] = {
        name: UnknownTopicOrPartition(f"no broker has partition {name}") for name in wanted
    }
    for name, log in told:
        leads_not = not log.is_leader if isinstance(log, LogDescription) else isinstance(log, NotLeaderOrFollower)
        better = LeaderNotAvailable(f"partition {name} has no leader at the moment") if leads_not else log
        if name not in found or _rank(better) > _rank(found[name]):
            found[name] = better
    return found


def _rank(told: LogDescription | KafkaError) -> tuple[int, int]:
    """Return the rank of an answer. A later epoch ranks higher: a replaced leader may not know of its successor."""
    match told:
        case UnknownTopicOrPartition():
            return 0, 0
        case LeaderNotAvailable():
            return 1, 0
        case KafkaError():
            return 2, 0
    return 3, told.leader_epoch


def _segment_message(segment: SegmentDescription) -> maintenance_pb2.SegmentOfLog:
    return to_message(segment, maintenance_pb2.SegmentOfLog)


def _to_description(
    message: maintenance_pb2.PartitionLog, answer: maintenance_pb2.DescribeLogResponse
) -> LogDescription:
    """Return a log's description. Unknown configuration keys, of a newer broker, are omitted."""
    known = {name: value for name, value in message.configs.items() if name in TOPIC_KEYS}
    config = TopicConfig.parse(known, TopicConfig())
    return to_value(message, LogDescription, broker_id=answer.broker_id, cluster_id=answer.cluster_id, config=config)
