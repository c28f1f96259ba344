"""A service's calls as gRPC's server wants them: parsing, serializing and refusing, the same for every method.

A servicer's method takes a request message, and the call's context where it has a second parameter; it returns a
response message or bytes that are one. One that streams its answers is an asynchronous generator of bytes; one that
also streams its requests takes the call's context and reads bytes from it. A KafkaError that comes out of a method ends
the call with a status.

Requests are parsed here and not by gRPC, for three reasons: what is no protobuf is refused as such, without a
traceback in the broker's log; what would take many times its size in memory once it is parsed is refused before
that; and answers may be bytes.

A message of two bytes takes about 90 in memory, so a request of 100 MB could take 4.5 GB. Only produced batches and
Arrow, which are single fields, may be large: everything else in a request is held to `MAX_FIELDS_BYTES`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from sparklog.base.errors import InvalidRequest, KafkaError, RecordListTooLarge
from sparklog.server.grpc_errors import refuse
from sparklog.server.protobuf import fields_of
from sparklog.v1 import log_pb2

MAX_FIELDS_BYTES = 8 << 20
MAX_FIELDS = 100_000  # of a large request, and of its partitions
_PARTITIONS = log_pb2.ProduceRequest.DESCRIPTOR.fields_by_name["partitions"].number
_LARGE = {log_pb2.PartitionProduce.DESCRIPTOR.fields_by_name[name].number for name in ("batches", "arrow")}


def service_handler(service: Any, servicer: Any) -> grpc.GenericRpcHandler:
    """The handler of a service, given its descriptor and an object with a method for each of its own."""
    return grpc.method_handlers_generic_handler(
        service.full_name, {method.name: _handler(method, getattr(servicer, method.name)) for method in service.methods}
    )


def parse(message_class: Any, data: bytes) -> Any:
    """The message; raises InvalidRequest where it is none, RecordListTooLarge where it would be once it is parsed."""
    if len(data) > MAX_FIELDS_BYTES:
        size = _fields_bytes(data) if message_class is log_pb2.ProduceRequest else len(data)
        if size > MAX_FIELDS_BYTES:
            raise RecordListTooLarge(
                f"{size} bytes besides batches and Arrow: at most {MAX_FIELDS_BYTES} are taken at once; send less, "
                "or send records as batches or Arrow"
            )
    try:
        return message_class.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(str(error)) from None


def _handler(method: Any, serve: Callable[..., Any]) -> grpc.RpcMethodHandler:
    request_class = GetMessageClass(method.input_type)
    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(_refusing(serve))
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(_streaming(serve, request_class))
    return grpc.unary_unary_rpc_method_handler(_unary(serve, request_class))


def _unary(serve: Callable[..., Any], request_class: Any) -> Callable[[bytes, Any], Any]:
    wants_context = len(inspect.signature(serve).parameters) > 1

    async def call(data: bytes, context: Any) -> bytes:
        try:
            request = parse(request_class, data)
            answer = await (serve(request, context) if wants_context else serve(request))
        except KafkaError as error:
            await refuse(context, error)
        return answer if isinstance(answer, bytes) else answer.SerializeToString()

    return call


def _streaming(serve: Callable[[Any], AsyncIterator[bytes]], request_class: Any) -> Callable[[bytes, Any], Any]:
    async def call(data: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            async for answer in serve(parse(request_class, data)):
                yield answer
        except KafkaError as error:
            await refuse(context, error)

    return call


def _refusing(serve: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    async def call(_: Any, context: Any) -> None:
        try:
            await serve(context)
        except KafkaError as error:
            await refuse(context, error)

    return call


def _fields_bytes(data: bytes) -> int:
    """Bytes of a ProduceRequest, less those of batches and Arrow. Stops counting once there are too many."""
    view = memoryview(data)
    size = len(data)
    fields = 0
    for number, _, part in fields_of(view):
        fields += 1
        if number == _PARTITIONS:
            for inner, _, payload in fields_of(part):
                fields += 1
                size -= len(payload) if inner in _LARGE else 0
        if fields > MAX_FIELDS:
            return len(data)
    return size
