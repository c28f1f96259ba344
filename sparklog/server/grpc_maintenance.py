"""The service `Maintenance`: logs described, read and replaced, a segment at a time, for jobs of upkeep.

Streams end with UNAVAILABLE when the broker stops: those of segments after the piece on its way, uploads at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from sparklog.base.errors import BrokerNotAvailable, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import describe_log, read_segment
from sparklog.broker.apis.describe_log import DescribeLogResponse
from sparklog.broker.node import Broker
from sparklog.log.description_messages import log_message
from sparklog.server.grpc_errors import STOPPING, error_message
from sparklog.server.snapshot_stream import serve_snapshot
from sparklog.v1 import maintenance_pb2


class MaintenanceServicer:
    """Translates the service's messages for one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

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

    async def InstallSnapshot(self, context: Any) -> None:
        await serve_snapshot(self._broker, context)


def _described(response: DescribeLogResponse) -> bytes:
    """The message, which may be large: its partitions' configurations alone are a kilobyte each."""
    message = maintenance_pb2.DescribeLogResponse(
        broker_id=response.broker_id,
        cluster_id=response.cluster_id,
        partitions=[
            maintenance_pb2.PartitionLog(topic=name.topic, partition=name.partition, error=error_message(log))
            if isinstance(log, KafkaError)
            else log_message(log)
            for name, log in response.logs.items()
        ],
    )
    return message.SerializeToString()
