"""Handlers for gRPC's server: parsing, serialization and errors, the same for every method of a service.

A servicer's method takes a request message and the call. It returns a response message, or the bytes of one. A method
that streams its answers is an asynchronous generator of bytes. A method that also streams its requests takes only the
call, and reads bytes from its context. A KafkaError of a method ends the call with a status.

Requests are parsed here instead of by gRPC for three reasons: bytes that are not protobuf get a proper error, without a
traceback in the broker's log; a request that would take many times its size in memory is refused before it is parsed;
and answers may be bytes.

A message of two bytes takes about 90 bytes in memory, so a request of 100 MB could take 4.5 GB. Only produced batches
and Arrow, which are single fields, may be large. The rest of a request is limited to `MAX_FIELDS_BYTES`. A request that
is not small is parsed in a thread, after a count of its fields, including those of nested messages (`MAX_FIELDS`).
Requests of other brokers have higher limits (`_LIMITS`). The memory of answers is limited by `response_memory.py`.

A request with many topics, partitions, groups or members is served in parts, like many small requests, and the answers
are merged. Other requests are served between two parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cache, partial
from typing import Any, NamedTuple

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from sparklog.base import message_mapping
from sparklog.base.errors import KafkaError, RecordListTooLarge, ThrottlingQuotaExceeded
from sparklog.base.message_mapping import to_message, to_value
from sparklog.base.protobuf import fields_of
from sparklog.broker.api import Api
from sparklog.runtime.remote_waits import OBSERVER, WorkTimer
from sparklog.runtime.slices import Slices
from sparklog.server.grpc.call import Begin, GrpcCall, unauthenticated
from sparklog.server.grpc.errors import refuse
from sparklog.server.grpc.response_memory import ResponseMemory
from sparklog.server.kafka.quotas import RequestQueue
from sparklog.v1 import log_pb2, replication_pb2

MAX_FIELDS_BYTES = 8 << 20
MAX_FIELDS = 200_000
MAX_FIELDS_PRODUCED = 400_000
"""Limit for requests with plain records, which are encoded in a thread."""
SMALL_BYTES = 64 << 10
"""Requests up to this size are parsed on the event loop, without a count of their fields."""
MANY_FIELDS = 1_000
"""A ProduceRequest with more fields is not examined on the event loop, so its payloads count in its size."""
LARGE_ELEMENTS = 500
"""Number of elements of a response that the event loop translates: a few milliseconds of work."""
PART = 100
"""Number of elements that are served together: a few milliseconds of work."""
WIDE = {
    "CreateTopics": "topics", "DeleteTopics": "names", "DescribeTopics": "names", "CreatePartitions": "topics",
    "DescribeConfigs": "resources", "AlterConfigs": "changes", "DeleteRecords": "partitions",
    "ListPartitionReassignments": "partitions", "ListOffsets": "partitions", "FindCoordinator": "group_ids",
    "LeaveGroup": "members", "OffsetCommit": "offsets", "OffsetFetch": "partitions", "OffsetDelete": "partitions",
    "DescribeGroups": "group_ids", "DeleteGroups": "group_ids", "FindTransactionCoordinator": "transactional_ids",
    "DescribeTransactions": "transactional_ids", "DescribeSinks": "sink_ids",
    "DescribeProducers": "partitions", "TxnOffsetCommit": "offsets", "CreateAcls": "acls", "DeleteAcls": "filters",
    "AlterClientQuotas": "changes",
}  # fmt: skip
"""Name of a request, without that word → the field of its independent elements."""
ONCE = {
    "DescribeTopics", "DescribeConfigs", "ListPartitionReassignments", "FindCoordinator", "OffsetFetch",
    "DescribeGroups", "FindTransactionCoordinator", "DescribeTransactions", "DescribeProducers",
    "DescribeSinks",
}  # fmt: skip
"""Requests that only read. Their duplicate elements are answered once, also in small requests."""
MAX_TOGETHER = 10_000
"""Maximum number of elements of a field of any other request: less than 100 ms of work."""
_PARTS = {"AlterConfigs": 10, "DescribeConfigs": 5, "CreateTopics": 10, "DeleteTopics": 10, "CreatePartitions": 10}
"""`PART` for requests that take longer per element."""


class _RequestLimits(NamedTuple):
    """Limits of a request's bytes and fields."""

    bytes: int
    fields: int


_OF_ONE_PARTITION = _RequestLimits(SMALL_BYTES, MAX_FIELDS)
_OF_A_CLUSTER = _RequestLimits(16 << 20, 1_000_000)
"""Enough for 5,000 topics with the longest names and a few configuration keys: 3 MiB and 180,000 fields."""
_LIMITS = {
    replication_pb2.LeaderAndIsrRequest: _OF_A_CLUSTER,
    replication_pb2.StopReplicaRequest: _OF_A_CLUSTER,
    replication_pb2.UpdateMetadataRequest: _OF_A_CLUSTER,
    replication_pb2.ReplicaFetchRequest: _OF_A_CLUSTER,
    replication_pb2.DescribeFilesRequest: _OF_ONE_PARTITION,
    replication_pb2.ReadFileRequest: _OF_ONE_PARTITION,
    replication_pb2.ControlledShutdownRequest: _OF_ONE_PARTITION,
}
PARTITIONS = log_pb2.ProduceRequest.DESCRIPTOR.fields_by_name["partitions"].number
PAYLOADS = {log_pb2.PartitionProduce.DESCRIPTOR.fields_by_name[name].number for name in ("batches", "arrow")}
"""The large fields of a PartitionProduce: batches and Arrow."""
PARSED_BY_SERVICER = {"Produce"}
"""Methods that take the bytes of their requests, and parse them themselves."""


def service_handler(
    service: Any,
    servicer: Any,
    slices: Slices,
    queue: RequestQueue | None = None,
    memory: ResponseMemory | None = None,
    begin: Begin | None = None,
) -> grpc.GenericRpcHandler:
    """Return the handler of a service.

    service: the service's descriptor
    servicer: an object with a method for each method of the service
    queue: counts the requests in progress of all services; None: they are not counted
    memory: the memory for the responses of all services; None: this service has its own
    begin: begins each call; None: as on a listener without passwords
    """
    queue, memory = queue or RequestQueue(), memory or ResponseMemory()
    begin = begin or unauthenticated(servicer.broker)
    return grpc.method_handlers_generic_handler(
        service.full_name,
        {
            method.name: _handler(method, getattr(servicer, method.name), begin, slices, queue, memory)
            for method in service.methods
        },
    )


def servicer_method(
    api: Api[Any, Any],
    request_type: type[Any],
    response_class: Any,
    *,
    request_fields: Callable[[Any], dict[str, Any]] = lambda request: {},
    response_fields: Callable[[Any], dict[str, Any]] = lambda response: {},
    mutates: bool = False,
) -> Callable[[Any, Any, GrpcCall], Awaitable[Any]]:
    """Return a servicer's method that calls its broker and translates as `message_mapping` does.

    request_fields: returns the fields of the request's value that are not derived from the message
    response_fields: returns the fields of the response's message that are not derived from the value
    mutates: whether the request creates or deletes partitions, which controller_mutation_rate limits
    """

    async def serve(servicer: Any, request: Any, call: GrpcCall) -> Any:
        counted = {"mutate": call.mutation_quota} if mutates else {}
        wanted = to_value(request, request_type, **request_fields(request), **counted)
        response = await call.serve(api, wanted)

        def translate() -> Any:
            return to_message(response, response_class, **response_fields(response))

        return await call.broker.slices.in_thread(translate) if is_large(response) else translate()

    return serve


def is_large(response: Any) -> bool:
    """Return whether a thread should translate the response, because it has many elements."""
    values = (getattr(response, name) for name in response.__struct_fields__)
    return any(len(value) > LARGE_ELEMENTS for value in values if isinstance(value, list | tuple | dict))


async def read_message(message_class: Any, data: bytes) -> Any:
    """Return the result of `parse`, which runs in a thread for a message with large fields."""
    if has_large_fields(message_class, data):
        return await asyncio.to_thread(parse, message_class, data)
    return parse(message_class, data)


def has_large_fields(message_class: Any, data: bytes) -> bool:
    """Return whether a message may take long to parse: larger than SMALL_BYTES, even without its batches and Arrow."""
    return len(data) > SMALL_BYTES and _checked_bytes(message_class, data) > SMALL_BYTES


def parse(message_class: Any, data: bytes) -> Any:
    """Return the message of these bytes.

    Raises InvalidRequest if it is invalid, RecordListTooLarge if it exceeds a limit.
    """
    if len(data) > SMALL_BYTES:
        size = check_bytes(message_class, data)
        most = _limits(message_class).fields
        if size > SMALL_BYTES and _room_left(message_class.DESCRIPTOR, memoryview(data), most) < 0:
            raise RecordListTooLarge(f"a request of more than {most} fields: send several")
    message = message_mapping.parse(message_class, data)
    for name in _limited_fields(message_class):
        if len(getattr(message, name)) > MAX_TOGETHER:
            raise RecordListTooLarge(f"more than {MAX_TOGETHER} {name} at once: send several requests")
    return message


@cache
def _limited_fields(message_class: Any) -> list[str]:
    """Return the repeated fields of a client's request that is not served in parts."""
    descriptor = message_class.DESCRIPTOR
    is_wide = descriptor.name.removesuffix("Request") in WIDE
    return (
        [] if is_wide or message_class in _LIMITS else [field.name for field in descriptor.fields if field.is_repeated]
    )


def check_bytes(message_class: Any, data: bytes) -> int:
    """Return the size without payloads. Raises RecordListTooLarge over the limit. Fast for any message."""
    size, most = _checked_bytes(message_class, data), _limits(message_class).bytes
    if size > most:
        besides, instead = ("", "")
        if message_class is log_pb2.ProduceRequest:
            besides, instead = " besides batches and Arrow", ", or send records as batches or Arrow"
        raise RecordListTooLarge(f"{size} bytes{besides}: at most {most} are taken at once; send less{instead}")
    return size


def _limits(message_class: Any) -> _RequestLimits:
    fields = MAX_FIELDS_PRODUCED if message_class is log_pb2.ProduceRequest else MAX_FIELDS
    return _LIMITS.get(message_class) or _RequestLimits(MAX_FIELDS_BYTES, fields)


def _checked_bytes(message_class: Any, data: bytes) -> int:
    return _fields_bytes(data) if message_class is log_pb2.ProduceRequest else len(data)


def _handler(
    method: Any, serve: Callable[..., Any], begin: Begin, slices: Slices, queue: RequestQueue, memory: ResponseMemory
) -> grpc.RpcMethodHandler:
    request_class = GetMessageClass(method.input_type)
    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(_client_streaming(serve, begin))
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(_server_streaming(serve, begin, request_class))
    wide = method.input_type.name.removesuffix("Request")
    if name := WIDE.get(wide):
        serve = _in_parts(serve, name, _PARTS.get(wide, PART), wide in ONCE, slices)
    few = slices.few if name else nullcontext()
    read = None if method.name in PARSED_BY_SERVICER else partial(read_message, request_class)
    return grpc.unary_unary_rpc_method_handler(_unary(method.name, serve, begin, read, few, queue, memory))


def _unary(
    name: str,
    serve: Callable[[Any, GrpcCall], Any],
    begin: Begin,
    read: Callable[[bytes], Awaitable[Any]] | None,
    few: AbstractAsyncContextManager[None],
    queue: RequestQueue,
    memory: ResponseMemory,
) -> Callable[[bytes, Any], Any]:
    """Return the handler of a unary method.

    read: parses the request; None: the method parses it
    few: held while a request larger than `SMALL_BYTES` is served
    """

    async def answer(data: bytes, context: Any) -> Any:
        begun = await begin(context)
        throttle = begun.throttle
        if throttle:
            await throttle.admit()
        timer = WorkTimer()
        OBSERVER.set(timer)  # in the context of gRPC's task, which serves only this call
        try:
            request = await read(data) if read else data
            return await serve(request, begun)
        finally:
            begun.ended(name, timer)
            if throttle:
                throttle.worked(timer.local_s)

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
            told: bytes = found if isinstance(found, bytes) else found.SerializeToString()
            task = asyncio.current_task()  # gRPC's own; a callback of the context would be a reference cycle
            assert task
            memory.reserve_until_sent(len(told), task)
        except KafkaError as error:
            await refuse(context, error)
        finally:
            queue.leave(size, 0)
        return told

    return call


def _in_parts(
    serve: Callable[[Any, GrpcCall], Any], name: str, most: int, once: bool, slices: Slices
) -> Callable[[Any, GrpcCall], Any]:
    """Return the method that serves requests in parts of at most `most` elements of the field `name`.

    once: whether duplicate elements are dropped from small requests too
    """

    async def serve_all(request: Any, call: GrpcCall) -> Any:
        elements = getattr(request, name)
        if len(elements) <= most and not (once and len(set(map(_identity, elements))) < len(elements)):
            return await serve(request, call)
        parts = await asyncio.to_thread(lambda: list(_parts(request, name, most)))
        return await in_parts(parts, lambda part: serve(part, call), slices)

    return serve_all


async def in_parts(parts: Iterable[Any], serve: Callable[[Any], Any], slices: Slices) -> Any:
    """Serve each part, and return the answers merged into the first. There must be at least one part."""
    merged: Any = None

    async def serve_part(part: Any) -> None:
        nonlocal merged
        answer = await serve(part)
        if merged is None:
            merged = answer
        else:
            merged.MergeFrom(answer)  # at once: all answers together would take twice the memory

    await slices.each(parts, serve_part)
    return merged


def _parts(request: Any, name: str, most: int) -> Iterator[Any]:
    """Yield copies of the request with at most `most` elements of the field each; duplicate elements are dropped.

    Unknown fields are dropped, because each part would have a copy.
    """
    rest = type(request)()
    elements = getattr(request, name)
    rest.CopyFrom(request)
    rest.ClearField(name)
    rest.DiscardUnknownFields()
    seen: set[str | bytes] = set()
    part = type(request)()
    for element in elements:
        key = _identity(element)
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


def _identity(element: Any) -> str | bytes:
    """Return the identity of an element."""
    key: str | bytes = element if isinstance(element, str) else element.SerializeToString()
    return key


def _server_streaming(
    serve: Callable[[Any, GrpcCall], AsyncIterator[bytes]], begin: Begin, request_class: Any
) -> Callable[[bytes, Any], Any]:
    async def call(data: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            begun = await begin(context)
            answers = serve(await read_message(request_class, data), begun)
            while (answer := await _next_answer(answers, begun)) is not None:
                yield answer
        except KafkaError as error:
            await refuse(context, error)

    return call


def _client_streaming(serve: Callable[[GrpcCall], Any], begin: Begin) -> Callable[[Any, Any], Any]:
    async def call(_: Any, context: Any) -> None:
        try:
            begun = await begin(context)
            async with begun.while_valid():
                await serve(begun)
        except KafkaError as error:
            await refuse(context, error)

    return call


async def _next_answer(answers: AsyncIterator[bytes], call: GrpcCall) -> bytes | None:
    """Return the next answer of a stream; None at its end. Raises SaslAuthenticationFailed if its token expires."""
    if not call.has_token:
        return await anext(answers, None)
    async with call.while_valid():
        return await anext(answers, None)


def _fields_bytes(data: bytes) -> int:
    """Return the size of a ProduceRequest without batches and Arrow; its full size above `MANY_FIELDS` fields."""
    size = len(data)
    fields = 0
    for number, _, part in fields_of(memoryview(data)):
        fields += 1
        if number == PARTITIONS:
            for inner, _, payload in fields_of(part):
                fields += 1
                size -= len(payload) if inner in PAYLOADS else 0
                if fields > MANY_FIELDS:
                    return len(data)
        if fields > MANY_FIELDS:
            return len(data)
    return size


def _room_left(descriptor: Any, view: memoryview, room: int) -> int:
    """Return `room` less the number of fields of a message, including nested ones; negative if it has too many."""
    for number, _, content in fields_of(view):
        room -= 1
        field = descriptor.fields_by_number.get(number)
        if field is None:
            pass
        elif field.message_type:
            room = _room_left(field.message_type, content, room)
        elif field.cpp_type != FieldDescriptor.CPPTYPE_STRING:  # packed numbers: at most one in each byte
            room -= len(content)
        if room < 0:
            break
    return room
