"""The gRPC listener in a simulation: a broker's services, and channels to them, for the real `sparklog.client`.

Requests and answers are bytes on the simulated network. On one side the stubs of `sparklog.v1` and the client above
them, on the other the servicers of `sparklog.server`: only gRPC's transport is replaced. Calls are unary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import grpc
import grpc.aio

from sparklog.base.errors import ClosedError, KafkaError, NetworkException, RequestTimedOut
from sparklog.broker.node import Broker
from sparklog.client.config import ClientConfig
from sparklog.client.connection import OpenChannel
from sparklog.server.grpc import ADMIN, GROUPS, LOG
from sparklog.server.grpc_admin import AdminServicer
from sparklog.server.grpc_groups import GroupsServicer
from sparklog.server.grpc_log import LogServicer
from sparklog.server.grpc_service import service_handler
from sparklog.testing.sim_network import SimNetwork, served_by_listener

Metadata = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A unary call on its way."""

    method: str
    """/package.Service/Method."""
    data: bytes
    metadata: Metadata
    source: str


class Refused(NamedTuple):
    """How a call ends with a status that is not OK."""

    code: int
    """Of grpc.StatusCode: its number."""
    details: str
    metadata: Metadata


class _Ended(Exception):
    def __init__(self, refused: Refused) -> None:
        super().__init__(refused)
        self.refused = refused


class _Context:
    """As much of grpc.aio.ServicerContext as the servicers use."""

    def __init__(self, call: Called) -> None:
        self._call = call

    def invocation_metadata(self) -> Metadata:
        return self._call.metadata

    def peer(self) -> str:
        return f"sim:{self._call.source}"

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        raise _Ended(Refused(code.value[0], details, tuple(trailing_metadata)))


class SimGrpcListener:
    """The services of one broker's process."""

    def __init__(self, broker: Broker) -> None:
        servicers = ((LOG, LogServicer(broker)), (GROUPS, GroupsServicer(broker)), (ADMIN, AdminServicer(broker)))
        self._handlers = [service_handler(service, servicer, broker.slices) for service, servicer in servicers]

    async def serve(self, call: Called) -> bytes | Refused:
        for handler in self._handlers:
            if method := handler.service(_Details(call.method, call.metadata)):
                try:
                    return bytes(await method.unary_unary(call.data, _Context(call)))
                except _Ended as ended:
                    return ended.refused
        return Refused(grpc.StatusCode.UNIMPLEMENTED.value[0], f"there is no {call.method}", ())


class _Details(NamedTuple):
    """grpc.HandlerCallDetails."""

    method: str
    invocation_metadata: Metadata


class SimChannel:
    """As much of grpc.aio.Channel as the stubs use."""

    def __init__(self, network: SimNetwork, source: str, target: str) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._is_closed = False

    def unary_unary(
        self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        api = served_by_listener(method.rpartition("/")[2])

        async def call(request: Any, *, timeout: float, metadata: Metadata = ()) -> Any:  # noqa: ASYNC109 - gRPC's name
            if self._is_closed:
                raise grpc.aio.UsageError("Channel is closed.")
            called = Called(
                method=method, data=request_serializer(request), metadata=tuple(metadata), source=self._source
            )
            try:
                answer = await self._network.call(
                    self._source, self._target, api, called, timeout_ms=int(timeout * 1000)
                )
            except KafkaError as error:  # of the network, or of a broker that does not listen yet
                raise _failure(_status(error), str(error)) from None
            if isinstance(answer, Refused):
                raise _failure(_STATUSES[answer.code], answer.details, answer.metadata)
            return response_deserializer(answer)

        return call

    def _other(self, method: str, *_: Any, **__: Any) -> Callable[..., NoReturn]:
        def call(*_: Any, **__: Any) -> NoReturn:
            raise ClosedError(f"{method} streams, which a simulation does not")

        return call

    unary_stream = stream_unary = stream_stream = _other

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.sleep(0)


_STATUSES = {status.value[0]: status for status in grpc.StatusCode}


def _status(error: KafkaError) -> grpc.StatusCode:
    match error:
        case NetworkException():
            return grpc.StatusCode.UNAVAILABLE
        case RequestTimedOut():
            return grpc.StatusCode.DEADLINE_EXCEEDED
    return grpc.StatusCode.INTERNAL


def _failure(code: grpc.StatusCode, details: str, metadata: Metadata = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details)


def channels(network: SimNetwork, source: str) -> OpenChannel:
    """How the client `source` opens its channels."""

    def open_channel(address: str, config: ClientConfig, credentials: Any) -> SimChannel:
        assert credentials is None, config
        return SimChannel(network, source, address)

    return open_channel
