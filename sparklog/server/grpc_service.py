"""A service's calls as gRPC's server wants them: parsing, serializing and refusing, the same for every method.

A servicer's method takes a request message, and the call's context where it has a second parameter; it returns a
response message or bytes that are one. One that streams its answers is an asynchronous generator of bytes; one that
also streams its requests takes the call's context and reads bytes from it. A KafkaError that comes out of a method ends
the call with a status.

Requests are parsed here and not by gRPC, for three reasons: what is no protobuf is refused as such, without a
traceback in the broker's log; what would take many times its size in memory once it is parsed is refused before
that; and answers may be bytes.

A message of two bytes takes about 90 in memory, so a request of 100 MB could take 4.5 GB. Only produced batches and
Arrow, which are single fields, may be large: everything else in a request is held to `MAX_FIELDS_BYTES`. What is not
small is counted before it is parsed, in a thread: `MAX_FIELDS`, those of nested messages included.

What names many topics, partitions, groups or members is served a part at a time, as so many small requests, whose
answers are merged: others have their turn between two parts.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cache
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from sparklog.base.errors import KafkaError, RecordListTooLarge, ThrottlingQuotaExceeded
from sparklog.broker.api import Api
from sparklog.runtime.slices import Slices
from sparklog.server import grpc_values
from sparklog.server.grpc_errors import refuse
from sparklog.server.grpc_values import to_message, to_value
from sparklog.server.kafka.quotas import RequestQueue
from sparklog.server.protobuf import fields_of
from sparklog.v1 import log_pb2

MAX_FIELDS_BYTES = 8 << 20
MAX_FIELDS = 200_000
MAX_FIELDS_PRODUCED = 1_000_000
"""Those of plain records, which are encoded in a thread."""
SMALL_BYTES = 64 << 10
"""What is parsed where it arrives, whatever is in it."""
MANY_FIELDS = 1_000
"""A ProduceRequest of fewer is counted where it arrives."""
PART = 100
"""How many things are served together: work of a few milliseconds."""
WIDE = {
    "CreateTopics": "topics", "DeleteTopics": "names", "DescribeTopics": "names", "CreatePartitions": "topics",
    "DescribeConfigs": "resources", "AlterConfigs": "changes", "DeleteRecords": "partitions",
    "ListPartitionReassignments": "partitions", "ListOffsets": "partitions", "FindCoordinator": "group_ids",
    "LeaveGroup": "members", "OffsetCommit": "offsets", "OffsetFetch": "partitions", "OffsetDelete": "partitions",
    "DescribeGroups": "group_ids", "DeleteGroups": "group_ids",
}  # fmt: skip
"""By method, the field that names what is asked for, each independent of the others."""
MAX_TOGETHER = 10_000
"""How many elements a field of any other may have: work of less than 100 ms."""
_PARTS = {"AlterConfigs": 10, "DescribeConfigs": 5, "CreateTopics": 10, "DeleteTopics": 10, "CreatePartitions": 10}
"""Of those that take longer."""
_PARTITIONS = log_pb2.ProduceRequest.DESCRIPTOR.fields_by_name["partitions"].number
_LARGE = {log_pb2.PartitionProduce.DESCRIPTOR.fields_by_name[name].number for name in ("batches", "arrow")}


def service_handler(
    service: Any, servicer: Any, slices: Slices, queue: RequestQueue | None = None
) -> grpc.GenericRpcHandler:
    """The handler of a service, given its descriptor and an object with a method for each of its own.

    queue: counts the requests in work; that of all services. None: they are not counted.
    """
    queue = queue or RequestQueue()
    return grpc.method_handlers_generic_handler(
        service.full_name,
        {method.name: _handler(method, getattr(servicer, method.name), slices, queue) for method in service.methods},
    )


def by_names(
    api: Api[Any, Any],
    request_type: type,
    response_class: Any,
    *,
    given: Callable[[Any], dict[str, Any]] = lambda request: {},
    answered: Callable[[Any], dict[str, Any]] = lambda response: {},
) -> Callable[[Any, Any], Awaitable[Any]]:
    """A servicer's method that asks its broker, and translates as `grpc_values` does.

    given: the fields of the request's value that do not have the names of its message's
    answered: the fields of the response's message that do not have the names of its value's
    """

    async def serve(servicer: Any, request: Any) -> Any:
        wanted = to_value(request, request_type, **given(request))
        response = await servicer.broker.serve(api, wanted)
        return to_message(response, response_class, **answered(response))

    return serve


async def read_message(message_class: Any, data: bytes) -> Any:
    """What `parse` returns or raises; in a thread where that may take long."""
    if len(data) <= SMALL_BYTES or _checked_bytes(message_class, data) <= SMALL_BYTES:
        return parse(message_class, data)
    return await asyncio.to_thread(parse, message_class, data)


def parse(message_class: Any, data: bytes) -> Any:
    """The message; raises InvalidRequest where it is none, RecordListTooLarge where it would be once it is parsed."""
    if len(data) > SMALL_BYTES:
        _check_fields(message_class, data)
    message = grpc_values.parse(message_class, data)
    for name in _limited_fields(message_class):
        if len(getattr(message, name)) > MAX_TOGETHER:
            raise RecordListTooLarge(f"more than {MAX_TOGETHER} {name} at once: send several requests")
    return message


@cache
def _limited_fields(message_class: Any) -> list[str]:
    """The repeated fields of a request that is served as one."""
    descriptor = message_class.DESCRIPTOR
    is_wide = descriptor.name.removesuffix("Request") in WIDE
    return [] if is_wide else [field.name for field in descriptor.fields if field.is_repeated]


def _check_fields(message_class: Any, data: bytes) -> None:
    size = _checked_bytes(message_class, data)
    if size > MAX_FIELDS_BYTES:
        raise RecordListTooLarge(
            f"{size} bytes besides batches and Arrow: at most {MAX_FIELDS_BYTES} are taken at once; send less, "
            "or send records as batches or Arrow"
        )
    most = MAX_FIELDS_PRODUCED if message_class is log_pb2.ProduceRequest else MAX_FIELDS
    if size > SMALL_BYTES and _room_left(message_class.DESCRIPTOR, memoryview(data), most) < 0:
        raise RecordListTooLarge(f"a request of more than {most} fields: send several")


def _checked_bytes(message_class: Any, data: bytes) -> int:
    return _fields_bytes(data) if message_class is log_pb2.ProduceRequest else len(data)


def _handler(method: Any, serve: Callable[..., Any], slices: Slices, queue: RequestQueue) -> grpc.RpcMethodHandler:
    request_class = GetMessageClass(method.input_type)
    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(_refusing(serve))
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(_streaming(serve, request_class))
    if name := WIDE.get(method.name):
        serve = _in_parts(serve, name, _PARTS.get(method.name, PART), slices)
    few = slices.few if name else nullcontext()
    return grpc.unary_unary_rpc_method_handler(_unary(serve, request_class, few, queue))


def _unary(
    serve: Callable[..., Any], request_class: Any, few: AbstractAsyncContextManager[None], queue: RequestQueue
) -> Callable[[bytes, Any], Any]:
    """few: held while a request is served that is not small."""
    wants_context = len(inspect.signature(serve).parameters) > 1

    async def answer(data: bytes, context: Any) -> Any:
        request = await read_message(request_class, data)
        return await (serve(request, context) if wants_context else serve(request))

    async def call(data: bytes, context: Any) -> bytes:
        size, was_full = len(data), queue.is_full
        queue.reserve(size)
        try:
            if size <= SMALL_BYTES:
                found = await answer(data, context)
            elif was_full:
                raise ThrottlingQuotaExceeded("as much is in work as queued.max.request.bytes allows: try again later")
            else:
                async with few:
                    found = await answer(data, context)
        except KafkaError as error:
            await refuse(context, error)
        finally:
            queue.leave(size, 0)
        return found if isinstance(found, bytes) else found.SerializeToString()

    return call


def _in_parts(serve: Callable[[Any], Any], name: str, most: int, slices: Slices) -> Callable[[Any], Any]:
    """The same method, for requests whose field of this name may have any number of elements."""

    async def call(request: Any) -> Any:
        if len(getattr(request, name)) <= most:
            return await serve(request)
        return await in_parts(_parts(request, name, most), serve, slices)

    return call


async def in_parts(parts: Iterable[Any], serve: Callable[[Any], Any], slices: Slices) -> Any:
    """What `serve` returns for each part, merged into the first; there is one at least."""
    merged: Any = None

    async def serve_part(part: Any) -> None:
        nonlocal merged
        answer = await serve(part)
        if merged is None:
            merged = answer
        else:
            merged.MergeFrom(answer)  # at once: all answers beside what they make would take twice the memory

    await slices.each(parts, serve_part)
    return merged


def _parts(request: Any, name: str, most: int) -> Iterator[Any]:
    """The request again and again, with at most so many elements of the field; what is there twice comes once."""
    rest = type(request)()
    elements = getattr(request, name)
    rest.CopyFrom(request)
    rest.ClearField(name)
    seen: set[str | bytes] = set()
    part = type(request)()
    for element in elements:
        key = element if isinstance(element, str) else element.SerializeToString()
        if key in seen:
            continue
        seen.add(key)
        getattr(part, name).append(element)
        if len(getattr(part, name)) == most:
            part.MergeFrom(rest)
            yield part
            part = type(request)()
    if getattr(part, name):
        part.MergeFrom(rest)
        yield part


def _streaming(serve: Callable[[Any], AsyncIterator[bytes]], request_class: Any) -> Callable[[bytes, Any], Any]:
    async def call(data: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            async for answer in serve(await read_message(request_class, data)):
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
    """Bytes of a ProduceRequest, less those of batches and Arrow; of one with many fields, all of them."""
    size = len(data)
    fields = 0
    for number, _, part in fields_of(memoryview(data)):
        fields += 1
        if number == _PARTITIONS:
            for inner, _, payload in fields_of(part):
                fields += 1
                size -= len(payload) if inner in _LARGE else 0
                if fields > MANY_FIELDS:
                    return len(data)
        if fields > MANY_FIELDS:
            return len(data)
    return size


def _room_left(descriptor: Any, view: memoryview, room: int) -> int:
    """For how many fields more there is room than a message has, nested ones included; less than 0: it has too many."""
    for number, _, content in fields_of(view):
        room -= 1
        field = descriptor.fields_by_number.get(number)
        if field is None:
            pass
        elif field.message_type:
            room = _room_left(field.message_type, content, room)
        elif field.cpp_type != FieldDescriptor.CPPTYPE_STRING:  # numbers, as many of them as may be in these bytes
            room -= len(content)
        if room < 0:
            break
    return room
