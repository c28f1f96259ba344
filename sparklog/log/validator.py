"""Preparation of produced batches by the leader: check them, stamp them, assign offsets.

Only headers are read. So the timestamp check uses the base and greatest timestamps in a batch's header; Kafka decodes
every batch and checks each record's timestamp. producer_state.py checks sequence numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparklog.base.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordListTooLarge
from sparklog.base.fs import Buffer
from sparklog.base.topic_config import TopicConfig
from sparklog.log.producers.producer_state import MarkerBatch, ProducerBatch, read_producer_batch
from sparklog.log.segment.segment_writer import PreparedBatch
from sparklog.records.batch import (
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assign,
    check_batch,
    check_produced,
    read_header,
    set_log_append_time,
)
from sparklog.records.markers import EndTransactionMarker, write_marker

LOG_APPEND_TIME = "LogAppendTime"


class PreparedBatches(NamedTuple):
    """Batches ready to be written."""

    batches: list[PreparedBatch]
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    """The last offset of the first batch with that timestamp."""
    log_append_time_ms: int
    """-1 if the timestamps are the producer's."""
    producer_batches: Sequence[ProducerBatch] = ()
    """The batches that clients sent with a producer id."""


def prepare(
    data: bytearray | memoryview, *, next_offset: int, leader_epoch: int, config: TopicConfig, now_ms: int
) -> PreparedBatches:
    """Check the batches in `data` and write their offsets from `next_offset` on, epoch and timestamps into `data`.

    Raises what `check_produced` raises, MessageTooLarge, RecordListTooLarge, InvalidTimestamp, or InvalidRecord for
    wrong producer fields; `data` may then be partly changed and must not be written.
    """
    if len(data) > config.roll_bytes:
        raise RecordListTooLarge(f"{len(data)} bytes at once: a segment holds {config.roll_bytes} (segment.bytes)")
    append_time = now_ms if config.message_timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    batches = []
    producer_batches: list[ProducerBatch] = []
    largest, offset_of_largest = NO_TIMESTAMP, -1
    for position, header in check_produced(data):
        size = header.batch_length + LOG_OVERHEAD
        if size > config.max_message_bytes:
            raise MessageTooLarge(f"a batch of {size} bytes: max.message.bytes is {config.max_message_bytes}")
        if header.attributes & LOG_APPEND_TIME_BIT:
            raise InvalidTimestamp("a producer's batch must have timestamps of type CreateTime")
        timestamp = header.max_timestamp
        if append_time != NO_TIMESTAMP:
            timestamp = append_time
            set_log_append_time(data, position, header, append_time)
        elif timestamp > latest or not earliest <= header.base_timestamp <= latest:
            _check_timestamps(header, earliest, latest, now_ms)
        assign(data, position, base_offset=next_offset, leader_epoch=leader_epoch)
        next_offset += header.last_offset_delta + 1
        batches.append(PreparedBatch(size, next_offset - 1, timestamp))
        if timestamp > largest:
            largest, offset_of_largest = timestamp, next_offset - 1
        if header.producer_id != NO_PRODUCER_ID:
            _check_numbered(header)
            producer_batches.append(ProducerBatch.of(header, next_offset - 1, timestamp))
        elif header.attributes & TRANSACTIONAL_BIT:
            raise InvalidRecord("a batch in a transaction needs a producer id")
    if producer_batches and len(producer_batches) < len(batches):
        raise InvalidRecord("batches with and without a producer id in one request for a partition")
    return PreparedBatches(batches, largest, offset_of_largest, append_time, producer_batches)


def prepare_marker(found: MarkerBatch, *, leader_epoch: int, config: TopicConfig) -> tuple[bytearray, PreparedBatches]:
    """Return the control batch of a marker, ready to be written at its offset."""
    data = write_marker(
        EndTransactionMarker(found.is_commit, found.coordinator_epoch), producer_id=found.producer_id,
        producer_epoch=found.producer_epoch, timestamp_ms=found.timestamp_ms,
    )  # fmt: skip
    append_time = NO_TIMESTAMP
    if config.message_timestamp_type == LOG_APPEND_TIME:
        append_time = found.timestamp_ms
        set_log_append_time(data, 0, read_header(data), append_time)
    assign(data, 0, base_offset=found.offset, leader_epoch=leader_epoch)
    placed = PreparedBatch(len(data), found.offset, found.timestamp_ms)
    return data, PreparedBatches([placed], found.timestamp_ms, found.offset, append_time)


def _check_numbered(header: BatchHeader) -> None:
    if min(header.producer_id, header.producer_epoch, header.base_sequence) < 0:
        raise InvalidRecord(
            f"a batch with producer id {header.producer_id}, epoch {header.producer_epoch} "
            f"and sequence {header.base_sequence}: none may be negative"
        )


def _check_timestamps(header: BatchHeader, earliest: int, latest: int, now_ms: int) -> None:
    if header.max_timestamp > latest:
        raise InvalidTimestamp(
            f"timestamp {header.max_timestamp} is later than the broker's {now_ms} by more than "
            f"{latest - now_ms} ms (message.timestamp.after.max.ms)"
        )
    first = min(header.base_timestamp, header.max_timestamp)
    if first != NO_TIMESTAMP and first < earliest:
        raise InvalidTimestamp(
            f"timestamp {first} is earlier than the broker's {now_ms} by more than "
            f"{now_ms - earliest} ms (message.timestamp.before.max.ms)"
        )


def read_replicated(data: Buffer) -> tuple[PreparedBatches, list[BatchHeader], list[ProducerBatch | MarkerBatch]]:
    """Read batches as the leader stored them; return them, their headers, and their producer batches and markers.

    Raises CorruptRecord, also if bytes are left over, and InvalidRecord if there is no batch or offsets decrease.
    """
    batches: list[PreparedBatch] = []
    headers: list[BatchHeader] = []
    producer_batches: list[ProducerBatch | MarkerBatch] = []
    largest, offset_of_largest, next_offset, position = NO_TIMESTAMP, -1, 0, 0
    while position < len(data):
        header = check_batch(data, position)
        if header.base_offset < next_offset:
            raise InvalidRecord(f"batch at position {position}: offset {header.base_offset} after {next_offset - 1}")
        next_offset = header.next_offset
        if header.producer_id >= 0:
            control = bytes(data[position : position + header.size]) if header.is_control else b""
            if found := read_producer_batch(header, control):
                producer_batches.append(found)
        position += header.size
        headers.append(header)
        batches.append(PreparedBatch(header.size, header.last_offset, header.max_timestamp))
        if header.max_timestamp > largest:
            largest, offset_of_largest = header.max_timestamp, header.last_offset
    if not batches:
        raise InvalidRecord("no batch to append")
    return PreparedBatches(batches, largest, offset_of_largest, NO_TIMESTAMP), headers, producer_batches
