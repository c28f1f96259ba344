"""Messages for data fetched from a partition, in the format that the client requested.

Stored batches become one message without decoding. If the broker decodes the records, a message has at most the
requested bytes (or one larger record), so a megabyte of well-compressed records cannot become a gigabyte of message. A
subscription then sends several messages. A fetch sends the first one, and continues at its `next_offset`. The limit of
a fetch applies to all its partitions together, and is at most `MAX_DECODED_ANSWER`; beyond it, partitions are not
decoded. A batch over the limit of decoded bytes gets RECORD_LIST_TOO_LARGE (`server/grpc/payloads.py`), and few are
decoded at once (`ConversionPool`).

For performance, the fetched bytes are inserted into the serialized FetchResponse without protobuf, which would copy
them three more times: most of the cost of a fetch.

    FetchResponse      0x0a, length, partition; for each
    PartitionFetched   its other fields, then tag of `batches` or `arrow`, length, bytes
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sparklog.base.errors import InvalidRequest, KafkaError, KafkaStorageError
from sparklog.base.protobuf import bytes_tag, varint
from sparklog.broker.apis.fetch import FetchResponse, PartitionFetchResult
from sparklog.log.log import LogSlice
from sparklog.runtime.slices import Slices
from sparklog.server.grpc.errors import error_message
from sparklog.server.grpc.load_payloads import load_payloads
from sparklog.v1 import log_pb2

READ_AT_ONCE = 1 << 20
Outcome = TypeVar("Outcome")
MAX_DECODED_ANSWER = 8 << 20
"""Maximum bytes of the decoded records of one answer."""
CONVERTED_AT_ONCE = 2


class ConversionPool:
    """A pool of few threads for conversions of payloads, each of which needs many times the payload's memory.

    A cancelled call ends when its thread ends.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(CONVERTED_AT_ONCE, "sparklog payloads")

    async def run(self, do: Callable[..., Outcome], *of: Any, **how: Any) -> Outcome:
        """Return the result of `do` in a thread of the pool. Calls beyond the pool's size wait for a free thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(do, *of, **how))


class FetchedMessage(NamedTuple):
    """A PartitionFetched in two parts: its other fields, and the fetched bytes with their tag."""

    head: log_pb2.PartitionFetched
    tag: bytes = b""
    payload: bytes = b""


def answer_bytes(response: FetchResponse, form: int, max_bytes: int) -> int:
    """Return the maximum memory of the answer: the bytes that are read, and their decoded form."""
    read = response.size_bytes
    return read + min(max_bytes, MAX_DECODED_ANSWER) if read and form != log_pb2.BATCHES else read


async def first_messages(
    parts: Sequence[PartitionFetchResult], form: int, max_bytes: int, slices: Slices, pool: ConversionPool
) -> list[FetchedMessage]:
    """Return one message for each partition, within `max_bytes` in all. The first with records has at least one record.

    Stored batches are not limited here, because the fetch has already limited them.
    """
    most = left = max_bytes if form == log_pb2.BATCHES else min(max_bytes, MAX_DECODED_ANSWER)

    async def first_message(part: PartitionFetchResult) -> FetchedMessage:
        nonlocal left
        if part.slice is None or form == log_pb2.BATCHES:
            message = await _stored_message(part)
        elif left <= 0:
            message = FetchedMessage(_message_head(part, part.fetch_offset))
        else:
            async with aclosing(_decoded_messages(part, part.slice, form, left, pool, together=1)) as messages:
                message = await anext(messages)
            if len(message.payload) > left < most:  # one record, too large for this answer
                message, left = FetchedMessage(_message_head(part, part.fetch_offset)), 0
        left -= len(message.payload)
        return message

    return await slices.each_if_many(parts, first_message)


async def all_messages(
    part: PartitionFetchResult, form: int, max_bytes: int, pool: ConversionPool
) -> AsyncIterator[FetchedMessage]:
    """Yield one or more messages with all fetched data. The last one has an error if decoding failed."""
    if part.slice is None or form == log_pb2.BATCHES:
        yield await _stored_message(part)
    else:
        async for message in _decoded_messages(
            part, part.slice, form, min(max_bytes, MAX_DECODED_ANSWER), pool, together=MAX_DECODED_ANSWER
        ):
            yield message


def serialize(messages: Iterable[FetchedMessage]) -> bytes:
    """Return the serialized FetchResponse with these partitions."""
    pieces: list[bytes] = []
    for head, tag, payload in messages:
        fields = head.SerializeToString()
        if tag:
            fields += tag + varint(len(payload))
        pieces += (PARTITION_TAG, varint(len(fields) + len(payload)), fields, payload)
    return b"".join(pieces)


async def _stored_message(part: PartitionFetchResult) -> FetchedMessage:
    if part.slice is None:
        return FetchedMessage(_message_head(part, part.next_offset))
    try:
        return FetchedMessage(_message_head(part, part.next_offset), BATCHES_TAG, await _read_slice(part.slice))
    except KafkaError as error:
        return _error_message(part, part.fetch_offset, error)


async def _decoded_messages(
    part: PartitionFetchResult, found: LogSlice, form: int, max_bytes: int, pool: ConversionPool, *, together: int
) -> AsyncGenerator[FetchedMessage, None]:
    next_offset = part.fetch_offset
    try:
        payloads = await load_payloads()
        if form not in (log_pb2.ARROW, log_pb2.RECORDS):
            raise InvalidRequest(f"there is no format {form}")
        tag, decode = (
            (ARROW_TAG, payloads.decode_to_arrow)
            if form == log_pb2.ARROW
            else (RECORDS_TAG, payloads.decode_to_records)
        )
        data = await _read_slice(found)
        aborted = payloads.AbortedRanges(each[:3] for each in part.aborted)
        is_first = has_more = True
        while has_more:
            some, has_more = await pool.run(
                payloads.decode_some, decode, data, next_offset, max_bytes, together, aborted
            )
            if is_first and not some:  # only control records, aborted ones, or records below the offset
                yield FetchedMessage(_message_head(part, part.next_offset))
            is_first = False
            for each in some:
                next_offset = each.next_offset
                yield FetchedMessage(_message_head(part, next_offset), tag, each.payload)
    except KafkaError as error:
        yield _error_message(part, next_offset, error)


async def _read_slice(found: LogSlice) -> bytes:
    """Return the slice's bytes; a thread reads a large slice."""
    try:
        return found.read() if found.size <= READ_AT_ONCE else await asyncio.to_thread(found.read)
    except OSError as error:
        raise KafkaStorageError(f"the log could not be read: {error}") from None


def _error_message(part: PartitionFetchResult, next_offset: int, error: KafkaError) -> FetchedMessage:
    head = _message_head(part, next_offset)
    head.error.CopyFrom(error_message(error))
    return FetchedMessage(head)


def _message_head(part: PartitionFetchResult, next_offset: int) -> log_pb2.PartitionFetched:
    return log_pb2.PartitionFetched(
        topic=part.topic,
        partition=part.partition,
        error=error_message(part.error),
        high_watermark=part.high_watermark,
        last_stable_offset=part.last_stable_offset,
        aborted_transactions=[
            log_pb2.AbortedTransaction(
                producer_id=each.producer_id, first_offset=each.first_offset, last_offset=each.last_offset
            )
            for each in part.aborted
        ],
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
