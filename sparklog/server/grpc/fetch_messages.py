"""Encoding and decoding of a follower's fetch and its answer, as messages of the service `Replication`.

For performance, the records are inserted into the serialized answer, and extracted from it, without protobuf. The
encoder copies them once, and the decoder returns views of the received buffer; protobuf would copy them three times.

    ReplicaFetchResponse      session_id; for each partition its tag, length, fields
    ReplicaFetchedPartition   its other fields; then the tag of `records`, length, bytes
"""

from __future__ import annotations

from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import parse, read_error, read_topic_id_bytes
from sparklog.base.protobuf import bytes_tag, fields_of, varint
from sparklog.log.epochs import EpochEnd
from sparklog.replica.messages import (
    NO_GENERATION,
    FetchedPartition,
    FetchPartition,
    ReplicaFetch,
    ReplicaFetchResponse,
)
from sparklog.server.grpc import service
from sparklog.server.grpc.errors import error_message
from sparklog.v1 import replication_pb2 as pb

PARTITIONS = pb.ReplicaFetchResponse.DESCRIPTOR.fields_by_name["partitions"].number
RECORDS = pb.ReplicaFetchedPartition.DESCRIPTOR.fields_by_name["records"].number
PARTITION_TAG = bytes_tag(PARTITIONS)
RECORDS_TAG = bytes_tag(RECORDS)


def encode_fetch(request: ReplicaFetch) -> bytes:
    """Return the bytes of a ReplicaFetchRequest."""
    message = pb.ReplicaFetchRequest(
        replica_id=request.replica_id,
        broker_epoch=request.broker_epoch,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        partitions=[_fetch_message(part) for part in request.partitions],
        forgotten=[_fetch_message(part) for part in request.forgotten],
    )
    data: bytes = message.SerializeToString()
    return data


def _fetch_message(part: FetchPartition) -> pb.ReplicaFetchPartition:
    return pb.ReplicaFetchPartition(
        topic=part.name.topic,
        partition=part.name.partition,
        topic_id=part.topic_id.bytes,
        fetch_offset=part.fetch_offset,
        max_bytes=part.max_bytes,
        current_leader_epoch=part.current_leader_epoch,
        last_fetched_epoch=part.last_fetched_epoch,
        log_start_offset=part.log_start_offset,
    )


def decode_fetch(data: bytes) -> ReplicaFetch:
    """Return the request of these bytes. Raises as `service.parse` does."""
    message = service.parse(pb.ReplicaFetchRequest, data)
    return ReplicaFetch(
        replica_id=message.replica_id,
        broker_epoch=message.broker_epoch,
        max_wait_ms=message.max_wait_ms,
        min_bytes=message.min_bytes,
        max_bytes=message.max_bytes,
        session_id=message.session_id,
        session_epoch=message.session_epoch,
        partitions=tuple(_fetch_partition(part) for part in message.partitions),
        forgotten=tuple(_fetch_partition(part) for part in message.forgotten),
    )


def _fetch_partition(message: Any) -> FetchPartition:
    return FetchPartition(
        name=TopicPartition(message.topic, message.partition),
        topic_id=read_topic_id_bytes(message.topic_id),
        fetch_offset=message.fetch_offset,
        max_bytes=message.max_bytes,
        current_leader_epoch=message.current_leader_epoch,
        last_fetched_epoch=message.last_fetched_epoch if message.HasField("last_fetched_epoch") else None,
        log_start_offset=message.log_start_offset,
    )


def encode_fetch_response(response: ReplicaFetchResponse) -> bytes:
    """Return the bytes of a ReplicaFetchResponse; the records are copied into them once."""
    pieces = [pb.ReplicaFetchResponse(session_id=response.session_id).SerializeToString()]
    for part in response.partitions:
        fields = _fetched_message(part).SerializeToString()
        if part.records:
            fields += RECORDS_TAG + varint(len(part.records))
        pieces += (PARTITION_TAG, varint(len(fields) + len(part.records)), fields, part.records)
    return b"".join(pieces)


def _fetched_message(part: FetchedPartition) -> pb.ReplicaFetchedPartition:
    return pb.ReplicaFetchedPartition(
        topic=part.name.topic,
        partition=part.name.partition,
        error=error_message(part.error),
        high_watermark=part.high_watermark,
        log_start_offset=part.log_start_offset,
        segment_base_offset=part.segment_base_offset,
        diverging=pb.EpochEnd(epoch=part.diverging.epoch, end_offset=part.diverging.end_offset)
        if part.diverging
        else None,
        leader_epoch=part.leader_epoch,
        generation=None if part.generation == NO_GENERATION else part.generation,
    )


def decode_fetch_response(data: bytes) -> ReplicaFetchResponse:
    """Return the response of these bytes; its records are views of `data`, not copies."""
    rest, partitions = bytearray(), []
    for number, field, content in fields_of(memoryview(data)):
        if number == PARTITIONS:
            partitions.append(_fetched(content))
        else:
            rest += field
    return ReplicaFetchResponse(
        session_id=parse(pb.ReplicaFetchResponse, bytes(rest)).session_id, partitions=tuple(partitions)
    )


def _fetched(data: memoryview) -> FetchedPartition:
    rest = bytearray()
    records: bytes | memoryview = b""
    for number, field, content in fields_of(data):
        if number == RECORDS:
            records = content
        else:
            rest += field
    message = parse(pb.ReplicaFetchedPartition, bytes(rest))
    diverging = EpochEnd(message.diverging.epoch, message.diverging.end_offset)
    return FetchedPartition(
        name=TopicPartition(message.topic, message.partition),
        error=read_error(message),
        high_watermark=message.high_watermark,
        log_start_offset=message.log_start_offset,
        records=records,
        segment_base_offset=message.segment_base_offset,
        diverging=diverging if message.HasField("diverging") else None,
        leader_epoch=message.leader_epoch,
        generation=message.generation if message.HasField("generation") else NO_GENERATION,
    )
