"""The service `Maintenance`: describes, reads and replaces logs, segment by segment, for maintenance jobs.

When the broker stops, streams end with UNAVAILABLE: a segment read after the current piece, an upload at once.

An InstallSnapshot call is a stream. The first message has the parameters, and every message has bytes. Each message is
answered once its bytes have been written. The last answer confirms that the snapshot is installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from sparklog.base.config_keys import render
from sparklog.base.errors import BrokerNotAvailable, InvalidRequest, KafkaError
from sparklog.base.message_mapping import to_message, to_value
from sparklog.base.topic_config import TOPIC_KEYS
from sparklog.broker.apis import (
    describe_log,
    install_snapshot,
    note_job_run,
    read_segment,
    replace_segments,
    set_cleaned_offset,
)
from sparklog.broker.apis.describe_log import DescribeLogResponse
from sparklog.broker.apis.install_snapshot import InstallSnapshotRequest
from sparklog.broker.node import Broker
from sparklog.log.description import LogDescription
from sparklog.server.grpc.call import GrpcCall
from sparklog.server.grpc.errors import STOPPING, error_message
from sparklog.server.grpc.service import parse, servicer_method
from sparklog.v1 import maintenance_pb2


class MaintenanceServicer:
    """Translation of the service's messages for one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._uploads: set[asyncio.Task[Any]] = set()
        self._is_stopped = False

    def stop(self) -> None:
        """End the calls that receive a stream from their client."""
        self._is_stopped = True
        for upload in self._uploads:
            upload.cancel()

    BeginReplace = servicer_method(
        replace_segments.BEGIN_REPLACE, replace_segments.BeginReplaceRequest, maintenance_pb2.BeginReplaceResponse
    )
    CommitReplace = servicer_method(
        replace_segments.COMMIT_REPLACE, replace_segments.CommitReplaceRequest, maintenance_pb2.CommitReplaceResponse
    )
    AbortReplace = servicer_method(
        replace_segments.ABORT_REPLACE, replace_segments.AbortReplaceRequest, maintenance_pb2.AbortReplaceResponse
    )
    SetCleanedOffset = servicer_method(
        set_cleaned_offset.API, set_cleaned_offset.SetCleanedOffsetRequest, maintenance_pb2.SetCleanedOffsetResponse
    )
    NoteJobRun = servicer_method(note_job_run.API, note_job_run.NoteJobRunRequest, maintenance_pb2.NoteJobRunResponse)

    async def DescribeLog(self, request: maintenance_pb2.DescribeLogRequest, call: GrpcCall) -> bytes:
        response = await call.serve(describe_log.API, to_value(request, describe_log.DescribeLogRequest))
        return await asyncio.to_thread(_serialize_logs, response)

    async def ReadSegment(self, request: maintenance_pb2.ReadSegmentRequest, call: GrpcCall) -> AsyncIterator[bytes]:
        response = await call.serve(read_segment.API, to_value(request, read_segment.ReadSegmentRequest))
        async for piece in response.pieces:
            if self.broker.is_stopping:
                raise BrokerNotAvailable(STOPPING)
            yield maintenance_pb2.ReadSegmentResponse(data=piece).SerializeToString()

    async def UploadSegment(self, call: GrpcCall) -> None:
        context = call.context
        with self._ended_by_stop():
            data = await context.read()
            if data is grpc.aio.EOF:
                raise InvalidRequest("an upload without a first message")
            first = parse(maintenance_pb2.UploadSegmentRequest, data)
            wanted = replace_segments.UploadSegmentRequest(lease_id=first.lease_id, pieces=_pieces(context, first.data))
            response = await call.serve(replace_segments.UPLOAD_SEGMENT, wanted)
        answer = maintenance_pb2.UploadSegmentResponse(size_bytes=response.size_bytes)
        await context.write(answer.SerializeToString())

    async def InstallSnapshot(self, call: GrpcCall) -> None:
        with self._ended_by_stop():
            await serve_snapshot(call)

    @contextmanager
    def _ended_by_stop(self) -> Iterator[None]:
        """Mark the block as one that reads from its client: `stop` ends it with BrokerNotAvailable."""
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
    """Yield the bytes of each message, and answer it once they have been consumed."""
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


def _log_message(log: LogDescription) -> maintenance_pb2.PartitionLog:
    configs = {name: render(getattr(log.config, key.field)) for name, key in TOPIC_KEYS.items()}
    return to_message(log, maintenance_pb2.PartitionLog, error=None, configs=configs)


def _serialize_logs(response: DescribeLogResponse) -> bytes:
    """Return the serialized DescribeLogResponse.

    It may be large: the configuration of each partition takes a kilobyte. It is built partition by partition, because
    message objects take many times the memory of their bytes; protobuf merges concatenated messages.
    """
    head = maintenance_pb2.DescribeLogResponse(broker_id=response.broker_id, cluster_id=response.cluster_id)
    parts = (
        maintenance_pb2.PartitionLog(topic=name.topic, partition=name.partition, error=error_message(log))
        if isinstance(log, KafkaError)
        else _log_message(log)
        for name, log in response.logs.items()
    )
    return b"".join(
        [
            head.SerializeToString(),
            *(maintenance_pb2.DescribeLogResponse(partitions=[part]).SerializeToString() for part in parts),
        ]
    )


async def serve_snapshot(call: GrpcCall) -> None:
    """Serve one InstallSnapshot call. Raises KafkaError if it is refused, possibly before its end."""
    context = call.context
    first = await _read_message(context)
    if first is None:
        raise InvalidRequest("a snapshot without a first message")
    wanted = to_value(first, InstallSnapshotRequest, chunks=_chunks(call.broker, context, first))
    response = await call.serve(install_snapshot.API, wanted)
    await _write_answer(context, response.size_bytes)


async def _chunks(broker: Broker, context: Any, first: Any) -> AsyncIterator[bytes]:
    """Yield the bytes of each message.

    Raises InvalidRequest if the stream ends before the message with the total size, because an aborted call also ends
    the stream. Raises BrokerNotAvailable if the broker stops.
    """
    message, received_bytes, is_last = first, 0, False
    while message is not None:
        if broker.is_stopping:
            raise BrokerNotAvailable(STOPPING)
        if message.data:
            received_bytes += len(message.data)
            yield message.data
        is_last = message.HasField("size_bytes") and message.size_bytes == received_bytes
        await _write_answer(context, received_bytes)
        message = await _read_message(context)
    if not is_last:
        raise InvalidRequest(f"the snapshot broke off after {received_bytes} bytes")


async def _write_answer(context: Any, size_bytes: int) -> None:
    await context.write(maintenance_pb2.InstallSnapshotResponse(size_bytes=size_bytes).SerializeToString())


async def _read_message(context: Any) -> Any:
    """Return the next message, or None at the end of the stream."""
    data = await context.read()
    return None if data is grpc.aio.EOF else parse(maintenance_pb2.InstallSnapshotRequest, data)
