"""The service `Maintenance`: logs described, read and replaced, a segment at a time, for jobs of upkeep.

Streams end with UNAVAILABLE when the broker stops: those of segments after the piece on its way, uploads at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from sparklog.base.errors import BrokerNotAvailable, InvalidRequest, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import (
    abort_replace,
    begin_replace,
    commit_replace,
    describe_log,
    note_job_run,
    read_segment,
    set_cleaned_offset,
    upload_segment,
)
from sparklog.broker.apis.describe_log import DescribeLogResponse
from sparklog.broker.node import Broker
from sparklog.log.description_messages import log_message, segment_message, to_segment
from sparklog.server.grpc_errors import STOPPING, error_message
from sparklog.server.grpc_service import parse
from sparklog.server.snapshot_stream import serve_snapshot
from sparklog.v1 import maintenance_pb2


class MaintenanceServicer:
    """Translates the service's messages for one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._uploads: set[asyncio.Task[Any]] = set()
        self._is_stopped = False

    def stop(self) -> None:
        """End the calls that read from their clients."""
        self._is_stopped = True
        for upload in self._uploads:
            upload.cancel()

    async def DescribeLog(self, request: maintenance_pb2.DescribeLogRequest) -> bytes:
        wanted = describe_log.DescribeLogRequest(
            partitions=[TopicPartition(part.topic, part.partition) for part in request.partitions]
        )
        response = await self._broker.serve(describe_log.API, wanted)
        return await asyncio.to_thread(_described, response)

    async def ReadSegment(self, request: maintenance_pb2.ReadSegmentRequest) -> AsyncIterator[bytes]:
        wanted = read_segment.ReadSegmentRequest(
            partition=TopicPartition(request.topic, request.partition),
            base_offset=request.base_offset,
            position=request.position,
            size=request.size if request.HasField("size") else None,
            identity=request.identity if request.HasField("identity") else None,
            file=request.file,
        )
        response = await self._broker.serve(read_segment.API, wanted)
        async for piece in response.pieces:
            if self._broker.is_stopping:
                raise BrokerNotAvailable(STOPPING)
            yield maintenance_pb2.ReadSegmentResponse(data=piece).SerializeToString()

    async def BeginReplace(self, request: maintenance_pb2.BeginReplaceRequest) -> maintenance_pb2.BeginReplaceResponse:
        wanted = begin_replace.BeginReplaceRequest(
            partition=TopicPartition(request.topic, request.partition),
            leader_epoch=request.leader_epoch,
            sources=[to_segment(source) for source in request.sources],
            holder=request.holder,
            lease_ms=request.lease_ms if request.HasField("lease_ms") else begin_replace.DEFAULT_LEASE_MS,
        )
        response = await self._broker.serve(begin_replace.API, wanted)
        return maintenance_pb2.BeginReplaceResponse(lease_id=response.lease_id, path=response.path)

    async def UploadSegment(self, context: Any) -> None:
        with self._receiving():
            data = await context.read()
            if data is grpc.aio.EOF:
                raise InvalidRequest("an upload without a first message")
            first = parse(maintenance_pb2.UploadSegmentRequest, data)
            wanted = upload_segment.UploadSegmentRequest(lease_id=first.lease_id, pieces=_pieces(context, first.data))
            response = await self._broker.serve(upload_segment.API, wanted)
        answer = maintenance_pb2.UploadSegmentResponse(size_bytes=response.size_bytes)
        await context.write(answer.SerializeToString())

    async def CommitReplace(
        self, request: maintenance_pb2.CommitReplaceRequest
    ) -> maintenance_pb2.CommitReplaceResponse:
        wanted = commit_replace.CommitReplaceRequest(
            lease_id=request.lease_id,
            leader_epoch=request.leader_epoch,
            size_bytes=request.size_bytes,
            crc32c=request.crc32c,
        )
        response = await self._broker.serve(commit_replace.API, wanted)
        return maintenance_pb2.CommitReplaceResponse(segment=segment_message(response.segment))

    async def AbortReplace(self, request: maintenance_pb2.AbortReplaceRequest) -> maintenance_pb2.AbortReplaceResponse:
        await self._broker.serve(abort_replace.API, abort_replace.AbortReplaceRequest(lease_id=request.lease_id))
        return maintenance_pb2.AbortReplaceResponse()

    async def SetCleanedOffset(
        self, request: maintenance_pb2.SetCleanedOffsetRequest
    ) -> maintenance_pb2.SetCleanedOffsetResponse:
        wanted = set_cleaned_offset.SetCleanedOffsetRequest(
            partition=TopicPartition(request.topic, request.partition),
            leader_epoch=request.leader_epoch,
            offset=request.offset,
            segments=[to_segment(segment) for segment in request.segments],
        )
        await self._broker.serve(set_cleaned_offset.API, wanted)
        return maintenance_pb2.SetCleanedOffsetResponse()

    async def NoteJobRun(self, request: maintenance_pb2.NoteJobRunRequest) -> maintenance_pb2.NoteJobRunResponse:
        wanted = note_job_run.NoteJobRunRequest(
            job=request.job,
            run_id=request.run_id,
            started_ms=request.started_ms,
            status=request.status,
            rows=request.rows,
            findings=request.findings,
            error=request.error if request.HasField("error") else None,
            schedule=request.schedule if request.HasField("schedule") else None,
        )
        await self._broker.serve(note_job_run.API, wanted)
        return maintenance_pb2.NoteJobRunResponse()

    async def InstallSnapshot(self, context: Any) -> None:
        with self._receiving():
            await serve_snapshot(self._broker, context)

    @contextmanager
    def _receiving(self) -> Iterator[None]:
        """Around a call that reads from its client: `stop` breaks it off with BrokerNotAvailable."""
        task = asyncio.current_task()
        assert task
        if self._is_stopped:
            raise BrokerNotAvailable(STOPPING)
        self._uploads.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            task.uncancel()
            raise BrokerNotAvailable(STOPPING) from None
        finally:
            self._uploads.discard(task)


async def _pieces(context: Any, first: bytes) -> AsyncIterator[bytes]:
    """The bytes of each message, answered once they have been taken."""
    yield first
    size = len(first)
    while True:
        await context.write(maintenance_pb2.UploadSegmentResponse(size_bytes=size).SerializeToString())
        data = await context.read()
        if data is grpc.aio.EOF:
            return
        piece = parse(maintenance_pb2.UploadSegmentRequest, data).data
        size += len(piece)
        yield piece


def _described(response: DescribeLogResponse) -> bytes:
    """The message, which may be large: its partitions' configurations alone are a kilobyte each.

    Made partition by partition, as messages take many times the room: behind one another, they are one.
    """
    head = maintenance_pb2.DescribeLogResponse(broker_id=response.broker_id, cluster_id=response.cluster_id)
    parts = (
        maintenance_pb2.PartitionLog(topic=name.topic, partition=name.partition, error=error_message(log))
        if isinstance(log, KafkaError)
        else log_message(log)
        for name, log in response.logs.items()
    )
    return b"".join(
        [
            head.SerializeToString(),
            *(maintenance_pb2.DescribeLogResponse(partitions=[part]).SerializeToString() for part in parts),
        ]
    )
