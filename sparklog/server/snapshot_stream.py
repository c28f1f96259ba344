"""The stream of an InstallSnapshot call: what is asked in its first message, bytes in all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from sparklog.base.errors import BrokerNotAvailable, InvalidRequest
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import install_snapshot
from sparklog.broker.apis.install_snapshot import InstallSnapshotRequest
from sparklog.broker.node import Broker
from sparklog.server.grpc_errors import STOPPING
from sparklog.server.grpc_service import parse
from sparklog.v1 import maintenance_pb2


async def serve_snapshot(broker: Broker, context: Any) -> None:
    """Serve one call. Raises KafkaError where it is refused, before its end too."""
    first = await _read(context)
    if first is None:
        raise InvalidRequest("a snapshot without a first message")
    wanted = InstallSnapshotRequest(
        partition=TopicPartition(first.topic, first.partition),
        leader_epoch=first.leader_epoch,
        end_offset=first.end_offset,
        chunks=_chunks(broker, context, first),
    )
    response = await broker.serve(install_snapshot.API, wanted)
    await context.write(maintenance_pb2.InstallSnapshotResponse(size_bytes=response.size_bytes).SerializeToString())


async def _chunks(broker: Broker, context: Any, first: Any) -> AsyncIterator[bytes]:
    """The bytes of each message, answered once they have been taken."""
    message, size = first, 0
    while message is not None:
        if broker.is_stopping:
            raise BrokerNotAvailable(STOPPING)
        size += len(message.data)
        if message.data:
            yield message.data
        await context.write(maintenance_pb2.InstallSnapshotResponse(size_bytes=size).SerializeToString())
        message = await _read(context)


async def _read(context: Any) -> Any:
    """The next message; None: there are no more."""
    data = await context.read()
    return None if data is grpc.aio.EOF else parse(maintenance_pb2.InstallSnapshotRequest, data)
