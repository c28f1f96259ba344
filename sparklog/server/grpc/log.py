"""The service `Log`: produce, fetch, subscribe, list offsets, and producer ids.

Batches are passed through without decoding. Plain records and Arrow are encoded and decoded in a thread by
`server/grpc/payloads.py`; for a stream, in the order of its requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from sparklog.base.errors import (
    BrokerNotAvailable,
    InvalidPartitions,
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    KafkaError,
    TopicAuthorizationFailed,
)
from sparklog.base.message_mapping import read_topic_id, to_value
from sparklog.broker.api import Handler
from sparklog.broker.apis import fetch, init_producer_id, list_offsets, produce, subscribe
from sparklog.broker.apis.fetch import FetchRequest, FetchResponse, PartitionFetch
from sparklog.broker.apis.init_producer_id import InitProducerIdRequest
from sparklog.broker.apis.list_offsets import PartitionOffsetQuery
from sparklog.broker.apis.produce import PartitionProduce, PartitionProduceResult, ProduceRequest, ProduceResponse
from sparklog.broker.apis.subscribe import SubscribeRequest
from sparklog.broker.node import Broker
from sparklog.coordinator.transaction_messages import PROTOCOL_2
from sparklog.runtime.eager import start
from sparklog.runtime.remote_waits import OBSERVER, WorkTimer
from sparklog.server.grpc.call import GrpcCall
from sparklog.server.grpc.errors import STOPPING, error_message
from sparklog.server.grpc.fetched import ConversionPool, all_messages, answer_bytes, first_messages, serialize
from sparklog.server.grpc.load_payloads import load_payloads
from sparklog.server.grpc.produce_message import ParsedProduce, copy_of, parse_produce, read_produce
from sparklog.server.grpc.produce_stream import Answering, ProduceStream
from sparklog.server.grpc.response_memory import Reservation, ResponseMemory
from sparklog.server.grpc.service import (
    LARGE_ELEMENTS,
    SMALL_BYTES,
    has_large_fields,
    servicer_method,
)
from sparklog.server.kafka.quotas import RequestQueue
from sparklog.v1 import log_pb2

DEFAULT_MAX_BYTES = 7 << 19
"""3.5 MiB, because most gRPC clients accept messages of at most 4 MiB by default."""
HEADS_BYTES = 1 << 18
"""Maximum size of the heads of all partitions, beside the records."""
HEAD_BYTES = 60
"""The size of a partition's head, without the name of its topic."""
DEFAULT_PARTITION_MAX_BYTES = 1 << 20
FEW_SMALL = 4
"""Maximum number of small requests that are decoded and encoded at once, beside one that is not small."""
_ACKS = {log_pb2.ALL: produce.ACKS_ALL, log_pb2.LEADER: produce.ACKS_LEADER, log_pb2.NO_ACKS: produce.ACKS_NONE}
_POSITIONS = {
    "earliest": list_offsets.EARLIEST,
    "latest": list_offsets.LATEST,
    "max_timestamp": list_offsets.MAX_TIMESTAMP,
}


class TranslatedProduce(NamedTuple):
    """A request as a value, and the results of partitions whose payload is invalid."""

    correlation_id: int
    request: ProduceRequest
    refused: list[PartitionProduceResult]


class LogServicer:
    """Translation of the service's messages for one broker."""

    def __init__(self, broker: Broker, queue: RequestQueue | None = None, memory: ResponseMemory | None = None) -> None:
        """queue, memory: as in `service_handler`"""
        self.broker = broker
        self._queue = queue or RequestQueue()
        self._memory = memory or ResponseMemory()
        self._streams: set[ProduceStream] = set()
        self._without_key = 0
        self._decoding = ConversionPool()
        self._encoding = ConversionPool()
        self._few_small = asyncio.Semaphore(FEW_SMALL)
        self._large = asyncio.Lock()

    ListOffsets = servicer_method(
        list_offsets.API,
        list_offsets.ListOffsetsRequest,
        log_pb2.ListOffsetsResponse,
        request_fields=lambda request: {
            "partitions": [_query(part) for part in request.partitions],
            "is_read_committed": request.isolation_level == log_pb2.READ_COMMITTED,
        },
    )

    def stop(self) -> None:
        """Stop reading from the open produce streams. Requests that were already read get their answers."""
        for stream in self._streams:
            stream.stop()

    async def Produce(self, data: bytes, call: GrpcCall) -> log_pb2.ProduceResponse:
        response = await (await self._begin_produce(call, data))
        if throttle := call.throttle:
            response.MergeFrom(log_pb2.ProduceResponse(throttle_time_ms=throttle.produce_wait_ms))
        return response

    async def ProduceStream(self, call: GrpcCall) -> None:
        begin = partial(self._begin_timed_produce, call)
        most = self.broker.config.max_outstanding_produces
        stream = ProduceStream(call.context, begin, most, self._queue, lambda: call.throttle)
        self._streams.add(stream)
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)
        if stream.was_stopped:
            raise BrokerNotAvailable(STOPPING)

    async def Fetch(self, request: log_pb2.FetchRequest, call: GrpcCall) -> bytes:
        throttle, max_bytes = call.throttle, request.max_bytes or _default_max_bytes(request.partitions)
        if throttle:
            await throttle.fetch()
        wanted = FetchRequest(
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes or 1,
            max_bytes=throttle.fetch_bytes(max_bytes) if throttle else max_bytes,
            partitions=_partitions(request.partitions),
            is_read_committed=request.isolation_level == log_pb2.READ_COMMITTED,
            client_rack=request.client_rack if request.HasField("client_rack") else None,
        )
        with self._memory.reservation() as reservation:
            read = partial(call.serve, fetch.API)
            response, max_bytes = await _read_within(reservation, read, wanted, request.format)
            slices = self.broker.slices
            found = await first_messages(response.partitions, request.format, max_bytes, slices, self._decoding)
            data = serialize(found)
            if throttle:
                throttle.fetched(len(data))
                if wait_ms := throttle.fetch_wait_ms:
                    data += log_pb2.FetchResponse(throttle_time_ms=wait_ms).SerializeToString()
            return data

    async def Subscribe(self, request: log_pb2.SubscribeRequest, call: GrpcCall) -> AsyncIterator[bytes]:
        max_bytes = request.max_bytes or DEFAULT_MAX_BYTES
        with self._memory.reservation() as reservation:

            async def read(handler: Handler[FetchRequest, FetchResponse], asked: FetchRequest) -> FetchResponse:
                nonlocal max_bytes
                allowed = partial(call.authorized, fetch.API, handler)  # for each read: rights may be withdrawn
                throttle = call.throttle
                if throttle:
                    await throttle.admit()
                    await throttle.fetch()
                    asked = replace(asked, max_bytes=throttle.fetch_bytes(asked.max_bytes))
                timer = WorkTimer()
                OBSERVER.set(timer)
                try:
                    response, max_bytes = await _read_within(reservation, allowed, asked, request.format)
                finally:
                    if throttle:
                        throttle.worked(timer.local_s)
                return response

            wanted = SubscribeRequest(
                max_bytes=max_bytes,
                partitions=_partitions(request.partitions),
                is_read_committed=request.isolation_level == log_pb2.READ_COMMITTED,
                read=read,
            )
            async for response in await self.broker.handlers[subscribe.SUBSCRIBE](wanted):
                for part in response.partitions:
                    async for message in all_messages(part, request.format, max_bytes, self._decoding):
                        is_last, data = message.head.HasField("error"), serialize([message])
                        del message  # frees its bytes while the client reads
                        if throttle := call.throttle:
                            throttle.fetched(len(data))
                        yield data
                        if is_last:
                            return
        if self.broker.is_stopping:
            raise BrokerNotAvailable(STOPPING)

    async def InitProducerId(
        self, request: log_pb2.InitProducerIdRequest, call: GrpcCall
    ) -> log_pb2.InitProducerIdResponse:
        wanted = to_value(request, InitProducerIdRequest)
        try:
            request_fields = await call.serve(init_producer_id.API, wanted)
        except KafkaError as error:
            return log_pb2.InitProducerIdResponse(error=error_message(error), producer_id=-1, producer_epoch=-1)
        return log_pb2.InitProducerIdResponse(
            producer_id=request_fields.producer_id, producer_epoch=request_fields.producer_epoch
        )

    async def _begin_timed_produce(self, call: GrpcCall, data: bytes) -> Answering:
        """Begin a request of a stream as `_begin_produce` does, and log it if it is slow."""
        timer = WorkTimer()
        OBSERVER.set(timer)
        return self._answer_timed(await self._begin_produce(call, data), call, timer)

    async def _answer_timed(self, answering: Answering, call: GrpcCall, timer: WorkTimer) -> log_pb2.ProduceResponse:
        try:
            return await answering
        finally:
            call.ended("ProduceStream", timer)
            if throttle := call.throttle:
                throttle.worked(timer.local_s)

    async def _begin_produce(self, call: GrpcCall, data: bytes) -> Answering:
        """Do the work of a request that may wait, before the append.

        The returned coroutine appends in its first step; for a large request, the append is already done.
        """
        if len(data) > produce.BYTES_TOGETHER:
            await self.broker.slices.give_way()  # gRPC has copied the bytes several times in this turn
        if throttle := call.throttle:
            await throttle.produce(len(data))
        correlation_id, translated, refused = await self._translate(call, data)
        await self.broker.handlers[produce.CREATE_MISSING_TOPICS](translated)
        translated = await self.broker.handlers[produce.PREPARE](translated)
        answering = self._produce(correlation_id, translated, refused)
        if not produce.is_appended_in_parts(translated):
            return answering
        answer = start(answering)
        await asyncio.wait([answer])
        return _outcome_of(answer)

    async def _produce(
        self, correlation_id: int, translated: ProduceRequest, refused: list[PartitionProduceResult]
    ) -> log_pb2.ProduceResponse:
        response = await self.broker.serve(produce.API, translated)  # `_translate` has checked the client's rights
        if translated.acks == produce.ACKS_NONE:
            return log_pb2.ProduceResponse(correlation_id=correlation_id)
        translate = partial(_produce_answer, response, refused, correlation_id)
        if len(response.partitions) + len(refused) > LARGE_ELEMENTS:
            return await self.broker.slices.in_thread(translate)
        return translate()

    async def _translate(self, call: GrpcCall, data: bytes) -> TranslatedProduce:
        """Parse and translate a request.

        A request with plain records or Arrow takes many times its bytes until it is encoded, so few are parsed at once.
        """
        is_small = len(data) <= SMALL_BYTES
        if is_small or not has_large_fields(log_pb2.ProduceRequest, data):
            parsed = parse_produce(data)
            if not any(map(_is_encoded_here, parsed.request.partitions)):
                return await self._translate_parsed(call, parsed, len(data))
            del parsed
        async with self._few_small if is_small else self._large:
            return await self._translate_parsed(call, await read_produce(data), len(data))

    async def _translate_parsed(self, call: GrpcCall, parsed: ParsedProduce, size: int) -> TranslatedProduce:
        request = parsed.request
        if request.acks not in _ACKS:
            raise InvalidRequiredAcks(f"there is no acks {request.acks}")
        partitions: list[PartitionProduce] = []
        refused: list[PartitionProduceResult] = []
        transactional_id = request.transactional_id if request.HasField("transactional_id") else None
        access = await call.access()
        if access:
            try:
                produce.check_transactional_id(access, transactional_id)
            except KafkaError:
                self.broker.clients.count_refused(produce.API, 0.0)
                raise

        async def translate(part: log_pb2.PartitionProduce) -> None:
            try:
                if access:
                    produce.check_topic(access, part.topic)
                if part.WhichOneof("payload") == "batches":
                    partitions.append(await self._batches(parsed, part))
                else:
                    partitions.extend(await self._encode(parsed, part))
            except KafkaError as error:
                partition = part.partition if part.HasField("partition") else -1
                refused.append(PartitionProduceResult(topic=part.topic, partition=partition, error=error))

        slices = self.broker.slices
        each = slices.each if size > produce.BYTES_TOGETHER else slices.each_if_many
        await each(request.partitions, translate)
        if refused and not partitions and all(isinstance(each.error, TopicAuthorizationFailed) for each in refused):
            self.broker.clients.count_refused(produce.API)
        translated = ProduceRequest(
            acks=_ACKS[request.acks],
            timeout_ms=request.timeout_ms if request.HasField("timeout_ms") else produce.DEFAULT_TIMEOUT_MS,
            partitions=partitions,
            transactional_id=transactional_id,
            protocol=PROTOCOL_2,
        )
        return TranslatedProduce(request.correlation_id, translated, refused)

    async def _batches(self, parsed: ParsedProduce, part: log_pb2.PartitionProduce) -> PartitionProduce:
        if not part.HasField("partition"):
            raise InvalidPartitions(f"{part.topic}: batches need a partition; records and arrow are spread by key")
        return PartitionProduce(
            topic=part.topic,
            partition=part.partition,
            data=await copy_of(parsed.payload_of(part), self.broker.slices),
            current_leader_epoch=_leader_epoch(part),
        )

    async def _encode(self, parsed: ParsedProduce, part: log_pb2.PartitionProduce) -> list[PartitionProduce]:
        """Encode plain records or Arrow as batches, one result per partition."""
        if part.WhichOneof("payload") is None:
            raise InvalidRecord(f"{part.topic}: one of batches, records and arrow must be set")
        target = await self.broker.handlers[produce.FIND_TARGET](part.topic)
        self._without_key += 1
        payloads = await load_payloads()
        encoded = await self._encoding.run(
            payloads.encode_payload,
            part,
            await copy_of(parsed.payload_of(part), self.broker.slices),
            partitions=target.partitions,
            without_key=self._without_key % target.partitions,
            now_ms=target.now_ms,
            max_batch_bytes=target.max_batch_bytes,
            compression=target.compression,
        )
        return [
            PartitionProduce(topic=part.topic, partition=partition, data=data, current_leader_epoch=_leader_epoch(part))
            for partition, data in encoded
        ]


async def _read_within(
    reservation: Reservation, read: Handler[FetchRequest, FetchResponse], wanted: FetchRequest, form: int
) -> tuple[FetchResponse, int]:
    """Return a response within the free memory, and the limit of its answer. The memory is reserved."""
    reservation.release()
    response = await read(wanted)
    size = answer_bytes(response, form, wanted.max_bytes)
    if (available := reservation.take_up_to(size)) >= size:
        return response, wanted.max_bytes
    max_bytes = max(1, available if form == log_pb2.BATCHES else available // 2)
    response = await read(replace(wanted, max_wait_ms=0, max_bytes=max_bytes))
    reservation.take(answer_bytes(response, form, max_bytes))
    return response, max_bytes


def _is_encoded_here(part: log_pb2.PartitionProduce) -> bool:
    return part.WhichOneof("payload") in ("records", "arrow")


async def _outcome_of(answer: asyncio.Future[log_pb2.ProduceResponse]) -> log_pb2.ProduceResponse:
    return await answer


def _produce_answer(
    response: ProduceResponse, refused: Sequence[PartitionProduceResult], correlation_id: int
) -> log_pb2.ProduceResponse:
    return log_pb2.ProduceResponse(
        partitions=[
            log_pb2.PartitionProduced(
                topic=part.topic,
                partition=part.partition,
                error=error_message(part.error),
                base_offset=part.base_offset,
                last_offset=part.last_offset,
                log_append_time_ms=part.log_append_time_ms,
                log_start_offset=part.log_start_offset,
            )
            for part in (*response.partitions, *refused)
        ],
        correlation_id=correlation_id,
    )


def _default_max_bytes(asked: Sequence[log_pb2.PartitionFetch]) -> int:
    """Return the bytes of records in a message that most clients accept, beside all partitions' heads."""
    heads = sum(HEAD_BYTES + len(part.topic) for part in asked)
    return max(1, DEFAULT_MAX_BYTES - max(0, heads - HEADS_BYTES))


def _partitions(asked: Sequence[log_pb2.PartitionFetch]) -> list[PartitionFetch]:
    return [
        PartitionFetch(
            topic=part.topic,
            partition=part.partition,
            fetch_offset=part.fetch_offset,
            max_bytes=part.partition_max_bytes or DEFAULT_PARTITION_MAX_BYTES,
            current_leader_epoch=_leader_epoch(part),
            last_fetched_epoch=part.last_fetched_epoch if part.HasField("last_fetched_epoch") else None,
            topic_id=read_topic_id(part.topic_id),
        )
        for part in asked
    ]


def _query(part: log_pb2.PartitionOffsetQuery) -> PartitionOffsetQuery:
    position = part.WhichOneof("position")
    if position is None:
        raise InvalidRequest(
            f"{part.topic}-{part.partition}: one of earliest, latest, timestamp_ms, max_timestamp is needed"
        )
    if position != "timestamp_ms":
        value = _POSITIONS[position]
    elif part.timestamp_ms < 0:
        raise InvalidRequest(f"{part.topic}-{part.partition}: timestamp_ms = {part.timestamp_ms} is negative")
    else:
        value = part.timestamp_ms
    return PartitionOffsetQuery(
        topic=part.topic, partition=part.partition, position=value, current_leader_epoch=_leader_epoch(part)
    )


def _leader_epoch(
    part: log_pb2.PartitionProduce | log_pb2.PartitionFetch | log_pb2.PartitionOffsetQuery,
) -> int | None:
    return part.current_leader_epoch if part.HasField("current_leader_epoch") else None
