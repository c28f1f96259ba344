"""gRPC over the simulated network: a broker's listener, and channels for the real `sparklog.client`.

Requests and answers travel as bytes. The client, the stubs of `sparklog.v1` and the servicers of `sparklog.server` are
the real ones; only gRPC's transport is replaced. Only unary calls work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import grpc
import grpc.aio

from sparklog.base.errors import ClosedError, KafkaError, NetworkException, RequestTimedOut
from sparklog.broker.node import Broker
from sparklog.client.config import ClientConfig
from sparklog.client.connection import OpenChannel
from sparklog.server.grpc.admin import AdminServicer
from sparklog.server.grpc.groups import GroupsServicer
from sparklog.server.grpc.log import LogServicer
from sparklog.server.grpc.server import ADMIN, GROUPS, LOG, SINKS, TRANSACTIONS
from sparklog.server.grpc.service import service_handler
from sparklog.server.grpc.sinks import SinksServicer
from sparklog.server.grpc.transactions import TransactionsServicer
from sparklog.testing.sim.network import SimNetwork, served_by_listener

Metadata = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryCall:
    """A unary call as it travels over the network. `source` names the client."""

    method: str
    """The full name, as /package.Service/Method."""
    data: bytes
    metadata: Metadata
    source: str


class Refused(NamedTuple):
    """The answer to a call that ends with a status other than OK."""

    code: int
    """The number of the grpc.StatusCode."""
    details: str
    metadata: Metadata


class _CallAborted(Exception):
    """Raised by `_ServicerContext.abort`; carries the status out of the servicer."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused)
        self.refused = refused


class _ServicerContext:
    """The part of grpc.aio.ServicerContext that the servicers use."""

    def __init__(self, call: UnaryCall) -> None:
        self._call = call

    def invocation_metadata(self) -> Metadata:
        return self._call.metadata

    def peer(self) -> str:
        return f"sim:{self._call.source}"

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        return {}

    def time_remaining(self) -> float | None:
        return None

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        raise _CallAborted(Refused(code.value[0], details, tuple(trailing_metadata)))


class SimGrpcListener:
    """The gRPC services of one broker process."""

    def __init__(self, broker: Broker) -> None:
        servicers = (
            (LOG, LogServicer(broker)),
            (GROUPS, GroupsServicer(broker)),
            (ADMIN, AdminServicer(broker)),
            (TRANSACTIONS, TransactionsServicer(broker)),
            (SINKS, SinksServicer(broker)),
        )
        self._handlers = [service_handler(service, servicer, broker.slices) for service, servicer in servicers]

    async def serve(self, call: UnaryCall) -> bytes | Refused:
        """Return the serialized answer of the method, or the status that refuses the call."""
        for handler in self._handlers:
            if method := handler.service(_CallDetails(call.method, call.metadata)):
                try:
                    return bytes(await method.unary_unary(call.data, _ServicerContext(call)))
                except _CallAborted as ended:
                    return ended.refused
        return Refused(grpc.StatusCode.UNIMPLEMENTED.value[0], f"there is no {call.method}", ())


class _CallDetails(NamedTuple):
    """Stands for grpc.HandlerCallDetails."""

    method: str
    invocation_metadata: Metadata


class SimChannel:
    """The part of grpc.aio.Channel that the stubs use, from the client `source` to the broker `target`."""

    def __init__(self, network: SimNetwork, source: str, target: str) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._is_closed = False

    def unary_unary(
        self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return a coroutine function that calls the method, with a timeout in seconds, and raises AioRpcError."""
        api = served_by_listener(method.rpartition("/")[2])

        async def call(request: Any, *, timeout: float, metadata: Metadata = ()) -> Any:  # noqa: ASYNC109 - gRPC's name
            if self._is_closed:
                raise grpc.aio.UsageError("Channel is closed.")
            called = UnaryCall(
                method=method, data=request_serializer(request), metadata=tuple(metadata), source=self._source
            )
            try:
                answer = await self._network.call(
                    self._source, self._target, api, called, timeout_ms=int(timeout * 1000), may_double=True
                )
            except KafkaError as error:  # raised by the network, or by a broker that does not listen yet
                raise _failure(_status(error), str(error)) from None
            if isinstance(answer, Refused):
                raise _failure(_STATUSES[answer.code], answer.details, answer.metadata)
            return response_deserializer(answer)

        return call

    def _other(self, method: str, *_: Any, **__: Any) -> Callable[..., NoReturn]:
        def call(*_: Any, **__: Any) -> NoReturn:
            raise ClosedError(f"{method} streams, which the simulation does not support")

        return call

    unary_stream = stream_unary = stream_stream = _other

    async def close(self) -> None:
        """Refuse later calls; calls in flight continue."""
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
    """Return the function with which the client `source` opens its channels."""

    def open_channel(address: str, config: ClientConfig, credentials: Any) -> SimChannel:
        assert credentials is None, config
        return SimChannel(network, source, address)

    return open_channel
