"""Produce in Kafka's protocol. For performance, request and response are decoded and encoded without kio.

    ProduceResponse   array of topics │ throttle time i32 │ flexible: tags
    topic             name, v13: id │ array of partitions │ tags
    partition         index i32, error i16, base offset i64, log append time i64 │ v5: log start offset i64
                      │ v8: array of record errors, error message nullable │ v10: tags, as 0 the current leader

As in Apache Kafka, each partition must have exactly one batch, of format v2, and zstd is allowed from version 7 on.
Otherwise the partition gets INVALID_RECORD or UNSUPPORTED_COMPRESSION_TYPE. The record errors are always empty, because
batches are not decoded, so the faulty record is unknown.

With acks=0 there is no response; an error closes the connection, as the only signal to the client.

From version 12 on, the request adds its partitions to the producer's transaction (KIP-890). A transactional id without
a transactional batch is ignored, as in Kafka. Metadata requests create topics, Produce does not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from sparklog.base.errors import (
    InvalidRecord,
    KafkaError,
    UnsupportedCompressionType,
)
from sparklog.broker.apis import produce
from sparklog.broker.apis.produce import ACKS_NONE, PartitionProduce, PartitionProduceResult, ProduceRequest
from sparklog.cluster.model import CurrentLeader
from sparklog.coordinator.transaction_messages import PROTOCOL_1, TransactionProtocol
from sparklog.records.batch import (
    ATTRIBUTES_LOW_BYTE_AT,
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    Codec,
)
from sparklog.server.kafka import packing
from sparklog.server.kafka.produce_request import WireProduceRequest, WireTopic, read_produce_request
from sparklog.server.kafka.responses import current_leader, node_endpoints
from sparklog.server.kafka.topic_ids import TopicIds
from sparklog.server.kafka.translation import KafkaCall, Pieces, Translation

FIRST_WITH_LOG_START = 5
FIRST_WITH_ZSTD = 7
FIRST_WITH_MESSAGES = 8
FIRST_FLEXIBLE = 9
FIRST_WITH_LEADERS = 10
ADMIN_CLIENT = "__admin_client"  # the only client that may write to internal topics, as in Apache Kafka
FIRST_WITH_ABORTABLE = 11
FIRST_OF_PROTOCOL_2 = 12
CURRENT_LEADER_TAG = 0
_PROTOCOLS = [
    TransactionProtocol(enrols=version >= FIRST_OF_PROTOCOL_2, knows_abortable=version >= FIRST_WITH_ABORTABLE)
    for version in range(produce.API.versions[1] + 1)
]
_INT32 = struct.Struct(">i")
_LENGTH_AND_MAGIC = struct.Struct(">i4xb")
_FIELDS = struct.Struct(">ihqqq")
_FIELDS_BEFORE_LOG_START = struct.Struct(">ihqq")
_SUCCESS = struct.Struct(">ihqqqih")
_SUCCESS_FLEXIBLE = struct.Struct(">ihqqqBBB")
_NO_THROTTLE = _INT32.pack(0)
_NO_THROTTLE_NO_TAGS = _NO_THROTTLE + packing.NO_TAGS


async def serve(call: KafkaCall, request: WireProduceRequest) -> Pieces | None:
    """Append the batches and return the response; None with acks=0. Raises the first error with acks=0."""
    wanted: list[PartitionProduce] = []
    refused: dict[int, PartitionProduceResult] = {}
    for topic in request.topics:
        _split_refused(call, topic, wanted, refused)
    in_transaction = request.transactional_id is not None and any(map(_is_transactional, wanted))
    response = await call.serve(
        produce.API,
        ProduceRequest(
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            partitions=wanted,
            creates_topics=False,
            writes_internal_topics=call.client_id == ADMIN_CLIENT,
            transactional_id=request.transactional_id if in_transaction else None,
            protocol=_PROTOCOLS[call.version] if in_transaction else PROTOCOL_1,
        ),
    )
    results: Iterable[PartitionProduceResult] = response.partitions
    if refused:
        results = _merge(refused, response.partitions)
    if request.acks == ACKS_NONE:
        _raise_first_error(results)
        return None
    return (_pack(call, request, results),)


def refuse(call: KafkaCall, request: WireProduceRequest, error: KafkaError) -> Pieces:
    """Return the answer to a request that was refused as a whole. Raises the error with acks=0."""
    if request.acks == ACKS_NONE:
        raise error
    failed = [
        PartitionProduceResult(topic="", partition=part.partition, error=error)
        for topic in request.topics
        for part in topic.partitions
    ]
    return (_pack(call, request, failed),)


def _split_refused(
    call: KafkaCall,
    topic: WireTopic,
    wanted: list[PartitionProduce],
    refused: dict[int, PartitionProduceResult],
) -> None:
    """Add valid partitions to `wanted`, and errors to `refused` by the partition's place in the request."""
    for partition, records in topic.partitions:
        try:
            name = topic.name
            if topic.topic_id is not None:
                name = TopicIds(call.broker).get_name(topic.topic_id)
            data = _check_records(call.version, records)
        except KafkaError as error:
            place = len(wanted) + len(refused)
            refused[place] = PartitionProduceResult(topic=topic.name, partition=partition, error=error)
        else:
            wanted.append(PartitionProduce(topic=name, partition=partition, data=data))


def _check_records(version: int, records: memoryview | None) -> memoryview:
    """Check that the request's version allows these records; the append checks the rest. Raises KafkaError."""
    if records is None or len(records) < HEADER_SIZE:
        raise InvalidRecord(f"version {version} of Produce must have one whole record batch in each partition")
    length, magic = _LENGTH_AND_MAGIC.unpack_from(records, LENGTH_AT)
    if magic != MAGIC:
        raise InvalidRecord(f"version {version} of Produce takes record batches of magic {MAGIC} only, not {magic}")
    if length != len(records) - LOG_OVERHEAD:
        raise InvalidRecord(f"version {version} of Produce takes exactly one whole record batch in each partition")
    if version < FIRST_WITH_ZSTD and records[ATTRIBUTES_LOW_BYTE_AT] & CODEC_MASK == Codec.ZSTD:
        raise UnsupportedCompressionType(f"version {version} of Produce does not know zstd")
    return records


def _is_transactional(part: PartitionProduce) -> bool:
    return bool(part.data[ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL_BIT)


def _merge(
    refused: dict[int, PartitionProduceResult], done: Sequence[PartitionProduceResult]
) -> list[PartitionProduceResult]:
    """Return one result for each partition, in the order of the request."""
    left = iter(done)
    return [refused.get(place) or next(left) for place in range(len(refused) + len(done))]


def _raise_first_error(results: Iterable[PartitionProduceResult]) -> None:
    for result in results:
        if result.error:
            raise result.error


def _pack(call: KafkaCall, request: WireProduceRequest, results: Iterable[PartitionProduceResult]) -> bytes:
    version = call.version
    flexible = version >= FIRST_FLEXIBLE
    left = iter(results)
    parts = [packing.array(len(request.topics), flexible=flexible)]
    leaders: list[CurrentLeader | None] = []
    for topic in request.topics:
        parts += (topic.key, packing.array(len(topic.partitions), flexible=flexible))
        for _ in topic.partitions:
            result = next(left)
            if result.error is None:
                parts.append(_pack_success(version, result))
            else:
                if version >= FIRST_WITH_LEADERS and result.is_told_leader:
                    leaders.append(result.current_leader)
                parts.append(_pack_error(call, result, result.error))
        if flexible:
            parts.append(packing.NO_TAGS)
    throttle = call.session.throttle
    may_wait = throttle and throttle.may_wait
    if leaders or may_wait:
        wait_ms = throttle.wait_ms() if throttle and may_wait else 0
        parts += (_INT32.pack(wait_ms), _tags(call, leaders) if flexible else b"")
    else:
        parts.append(_NO_THROTTLE_NO_TAGS if flexible else _NO_THROTTLE)
    return b"".join(parts)


def _tags(call: KafkaCall, leaders: Sequence[CurrentLeader | None]) -> bytes:
    return node_endpoints(call, leaders) if leaders else packing.NO_TAGS


def _pack_success(version: int, result: PartitionProduceResult) -> bytes:
    fields = result.partition, 0, result.base_offset, result.log_append_time_ms
    if version >= FIRST_FLEXIBLE:  # no record errors, no message, no tags
        return _SUCCESS_FLEXIBLE.pack(*fields, result.log_start_offset, 1, 0, 0)
    if version >= FIRST_WITH_MESSAGES:
        return _SUCCESS.pack(*fields, result.log_start_offset, 0, -1)
    if version >= FIRST_WITH_LOG_START:
        return _FIELDS.pack(*fields, result.log_start_offset)
    return _FIELDS_BEFORE_LOG_START.pack(*fields)


def _pack_error(call: KafkaCall, result: PartitionProduceResult, error: KafkaError) -> bytes:
    version = call.version
    flexible = version >= FIRST_FLEXIBLE
    if version < FIRST_WITH_LOG_START:
        return _FIELDS_BEFORE_LOG_START.pack(result.partition, error.code, -1, -1)
    packed = _FIELDS.pack(result.partition, error.code, -1, -1, result.log_start_offset)
    if version >= FIRST_WITH_MESSAGES:
        packed += packing.array(0, flexible=flexible) + packing.string(str(error), flexible=flexible)
    if version >= FIRST_WITH_LEADERS and result.is_told_leader:
        return packed + packing.tags({CURRENT_LEADER_TAG: current_leader(call, result.current_leader)})
    return packed + packing.NO_TAGS if flexible else packed


TRANSLATION = Translation(api=produce.API, serve=serve, refuse=refuse, read=read_produce_request)
