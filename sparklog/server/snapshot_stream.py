"""The stream of an InstallSnapshot call. The first message holds the parameters, and every message holds bytes.

Each message is answered once its bytes have been written. The last answer confirms that the snapshot is in place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from sparklog.base.errors import BrokerNotAvailable, InvalidRequest
from sparklog.base.message_mapping import to_value
from sparklog.broker.apis import install_snapshot
from sparklog.broker.apis.install_snapshot import InstallSnapshotRequest
from sparklog.broker.node import Broker
from sparklog.server.grpc_errors import STOPPING
from sparklog.server.grpc_service import parse
from sparklog.v1 import maintenance_pb2


async def serve_snapshot(broker: Broker, context: Any) -> None:
    """Serve one call. Raises KafkaError if it is refused, possibly before its end."""
    first = await _read(context)
    if first is None:
        raise InvalidRequest("a snapshot without a first message")
    wanted = to_value(first, InstallSnapshotRequest, chunks=_chunks(broker, context, first))
    response = await broker.serve(install_snapshot.API, wanted)
    await _answer(context, response.size_bytes)


async def _chunks(broker: Broker, context: Any, first: Any) -> AsyncIterator[bytes]:
    """Yield the bytes of each message.

    Raises InvalidRequest if the stream ends before the message with the total size: an aborted call looks like a
    completed one otherwise. Raises BrokerNotAvailable if the broker stops.
    """
    message, received_bytes, is_last = first, 0, False
    while message is not None:
        if broker.is_stopping:
            raise BrokerNotAvailable(STOPPING)
        if message.data:
            received_bytes += len(message.data)
            yield message.data
        is_last = message.HasField("size_bytes") and message.size_bytes == received_bytes
        await _answer(context, received_bytes)
        message = await _read(context)
    if not is_last:
        raise InvalidRequest(f"the snapshot broke off after {received_bytes} bytes")


async def _answer(context: Any, size_bytes: int) -> None:
    await context.write(maintenance_pb2.InstallSnapshotResponse(size_bytes=size_bytes).SerializeToString())


async def _read(context: Any) -> Any:
    """Return the next message, or None at the end of the stream."""
    data = await context.read()
    return None if data is grpc.aio.EOF else parse(maintenance_pb2.InstallSnapshotRequest, data)
