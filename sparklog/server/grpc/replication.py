"""The service `Replication`: requests of other brokers.

If the caller gives up or its connection fails, read-only requests (`QUESTIONS`) are cancelled, such as a fetch that
waits for records. Every other request runs to its end, because a partly applied request of the controller would leave
an unintended state.

A thread decodes requests that are not small, and encodes large answers: with thousands of partitions they would block
the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import grpc

from sparklog.base.acls import CLUSTER_NAME, AclOperation, AclResourceType
from sparklog.base.errors import KafkaError
from sparklog.broker.api import Api
from sparklog.broker.apis import PEER_APIS
from sparklog.broker.node import Broker
from sparklog.replica.messages import DescribeFiles, DescribePositions, ReadReplicaFile, ReplicaFetch
from sparklog.runtime.slices import Slices
from sparklog.server.grpc.call import Begin, GrpcCall, unauthenticated
from sparklog.server.grpc.errors import refuse
from sparklog.server.grpc.replication_calls import CALLS, ReplicationCall
from sparklog.server.grpc.service import SMALL_BYTES, check_bytes, is_large
from sparklog.v1 import replication_pb2

QUESTIONS = (ReplicaFetch, DescribeFiles, ReadReplicaFile, DescribePositions)
SERVICE = replication_pb2.DESCRIPTOR.services_by_name["Replication"].full_name


class ReplicationServicer:
    """Translation of the service's messages for one broker."""

    def __init__(
        self, broker: Broker, apis: Mapping[type, Api[Any, Any]] = PEER_APIS, *, begin: Begin | None = None
    ) -> None:
        """begin: as in `service_handler`"""
        self._broker = broker
        self._begin = begin or unauthenticated(broker)
        self._apis = apis
        self._orders: set[asyncio.Task[Any]] = set()
        self._slices = Slices()
        """Not the broker's own: requests of brokers do not wait for large requests of clients."""

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler to register with the gRPC server."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                call.method: grpc.unary_unary_rpc_method_handler(self._method_of(call, self._apis[call.request]))
                for call in CALLS
                if call.request in self._apis
            },
        )

    async def settled(self) -> None:
        """Wait for the requests that run to their end."""
        while self._orders:
            await asyncio.wait(self._orders)

    def _method_of(self, call: ReplicationCall, api: Api[Any, Any]) -> Callable[[bytes, Any], Awaitable[bytes]]:
        carry_out = self._broker.serve if call.request in QUESTIONS else self._run_to_end

        async def serve(data: bytes, context: Any) -> bytes:
            try:
                await self._check_caller(api, await self._begin(context))
                response = await carry_out(api, await self._decode(call, data))
                if is_large(response) or len(data) > SMALL_BYTES:  # each marker of WriteTxnMarkers may have thousands
                    return await self._slices.in_thread(partial(call.encode_response, response))
                return call.encode_response(response)
            except KafkaError as error:
                await refuse(context, error)

        return serve

    async def _check_caller(self, api: Api[Any, Any], call: GrpcCall) -> None:
        """Raise ClusterAuthorizationFailed if the caller may not act as a broker."""
        access = await call.access()
        if access and not access.may(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME):
            self._broker.clients.count_refused(api, 0.0)
            raise access.refusal(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)

    async def _decode(self, call: ReplicationCall, data: bytes) -> Any:
        if len(data) <= SMALL_BYTES:
            return call.decode_request(data)
        check_bytes(call.request_class, data)  # before the wait for other requests, which keeps the bytes in memory
        return await self._slices.in_thread(partial(call.decode_request, data))

    async def _run_to_end(self, api: Api[Any, Any], request: Any) -> Any:
        order = asyncio.create_task(self._broker.serve(api, request))
        self._orders.add(order)
        order.add_done_callback(self._orders.discard)
        return await asyncio.shield(order)
