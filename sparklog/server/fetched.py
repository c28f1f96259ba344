"""What was fetched from a partition, as a message in the form that the client wants.

Batches as stored are one message, their bytes unopened. Where the broker decodes them, a message holds as much as the
client asked for (or one record that is larger), so that a megabyte of well-compressed records cannot become a gigabyte
of message: a subscription sends several messages then, and a fetch the first, whose `next_offset` says where to read
on. What a fetch asks for is for all its partitions together: those for which no room is left are not even decoded.

Bytes that were fetched are put into the FetchResponse by hand, as protobuf would have them: building the message would
copy them three times more than once, which is most of what a fetch costs.

    FetchResponse      0x0a, length, partition; for each
    PartitionFetched   its other fields, then tag of `batches` or `arrow`, length, bytes
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from sparklog.base.errors import InvalidRequest, KafkaError, KafkaStorageError
from sparklog.broker.apis.fetch import PartitionFetched
from sparklog.log.log import LogSlice
from sparklog.runtime.slices import Slices
from sparklog.server.grpc_errors import error_message
from sparklog.server.load_payloads import load_payloads
from sparklog.server.protobuf import bytes_tag, varint
from sparklog.v1 import log_pb2

READ_AT_ONCE = 1 << 20


class Message(NamedTuple):
    """A PartitionFetched in two parts: all but the bytes that were fetched, and those."""

    head: log_pb2.PartitionFetched
    tag: bytes = b""
    payload: bytes = b""


async def first_messages(parts: Sequence[PartitionFetched], form: int, max_bytes: int, slices: Slices) -> list[Message]:
    """One message for each partition, with as much as fits in `max_bytes` together; the first has one record at least.

    Batches are bounded already.
    """
    left = max_bytes

    async def first_message(part: PartitionFetched) -> Message:
        nonlocal left
        if part.slice is None or form == log_pb2.BATCHES:
            message = await _stored(part)
        elif left <= 0:
            message = Message(_head(part, part.fetch_offset))
        else:
            async with aclosing(_decoded(part, part.slice, form, left)) as messages:
                message = await anext(messages)
        left -= len(message.payload)
        return message

    return await slices.each_if_many(parts, first_message)


async def all_messages(part: PartitionFetched, form: int, max_bytes: int) -> AsyncIterator[Message]:
    """One message or more with everything that was fetched; the last has an error if not all could be decoded."""
    if part.slice is None or form == log_pb2.BATCHES:
        yield await _stored(part)
    else:
        async for message in _decoded(part, part.slice, form, max_bytes):
            yield message


def serialize(messages: Iterable[Message]) -> bytes:
    """The FetchResponse with these partitions, as it goes over the wire."""
    pieces: list[bytes] = []
    for head, tag, payload in messages:
        fields = head.SerializeToString()
        if tag:
            fields += tag + varint(len(payload))
        pieces += (PARTITION_TAG, varint(len(fields) + len(payload)), fields, payload)
    return b"".join(pieces)


async def _stored(part: PartitionFetched) -> Message:
    if part.slice is None:
        return Message(_head(part, part.next_offset))
    try:
        return Message(_head(part, part.next_offset), BATCHES_TAG, await _read(part.slice))
    except KafkaError as error:
        return _failed(part, part.fetch_offset, error)


async def _decoded(part: PartitionFetched, found: LogSlice, form: int, max_bytes: int) -> AsyncGenerator[Message, None]:
    next_offset = part.fetch_offset
    try:
        tag, groups = await _decode(await _read(found), part.fetch_offset, form, max_bytes)
        group = await asyncio.to_thread(next, groups, None)
        if group is None:  # nothing but control records, or records below the offset
            yield Message(_head(part, part.next_offset))
        while group is not None:
            next_offset = group.next_offset
            yield Message(_head(part, next_offset), tag, group.payload)
            group = await asyncio.to_thread(next, groups, None)
    except KafkaError as error:
        yield _failed(part, next_offset, error)


async def _decode(data: bytes, offset_from: int, form: int, max_bytes: int) -> tuple[bytes, Iterator[Any]]:
    payloads = await load_payloads()
    if form == log_pb2.ARROW:
        return ARROW_TAG, payloads.decode_to_arrow(data, offset_from, max_bytes)
    if form == log_pb2.RECORDS:
        return RECORDS_TAG, payloads.decode_to_records(data, offset_from, max_bytes)
    raise InvalidRequest(f"there is no format {form}")


async def _read(found: LogSlice) -> bytes:
    """The bytes; many of them are read in a thread, so that a slow disk does not hold everybody else up."""
    try:
        return found.read() if found.size <= READ_AT_ONCE else await asyncio.to_thread(found.read)
    except OSError as error:
        raise KafkaStorageError(f"the log could not be read: {error}") from None


def _failed(part: PartitionFetched, next_offset: int, error: KafkaError) -> Message:
    head = _head(part, next_offset)
    head.error.CopyFrom(error_message(error))
    return Message(head)


def _head(part: PartitionFetched, next_offset: int) -> log_pb2.PartitionFetched:
    return log_pb2.PartitionFetched(
        topic=part.topic,
        partition=part.partition,
        error=error_message(part.error),
        high_watermark=part.high_watermark,
        last_stable_offset=part.last_stable_offset,
        log_start_offset=part.log_start_offset,
        next_offset=next_offset,
        preferred_read_replica=part.preferred_read_replica if part.preferred_read_replica >= 0 else None,
        diverging=log_pb2.DivergingEpoch(leader_epoch=part.diverging.epoch, end_offset=part.diverging.end_offset)
        if part.diverging
        else None,
    )


def _tag(message: Any, field: str) -> bytes:
    return bytes_tag(message.DESCRIPTOR.fields_by_name[field].number)


PARTITION_TAG = _tag(log_pb2.FetchResponse, "partitions")
BATCHES_TAG = _tag(log_pb2.PartitionFetched, "batches")
RECORDS_TAG = _tag(log_pb2.PartitionFetched, "records")
ARROW_TAG = _tag(log_pb2.PartitionFetched, "arrow")
