"""Conversion of log descriptions to and from messages of the gRPC service `Maintenance`, for brokers and clients."""

from __future__ import annotations

from sparklog.base.config_keys import render
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TOPIC_KEYS, TopicConfig
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.epochs import EpochStart
from sparklog.v1 import maintenance_pb2


def segment_message(segment: SegmentDescription) -> maintenance_pb2.SegmentOfLog:
    return maintenance_pb2.SegmentOfLog(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        largest_timestamp_ms=segment.largest_timestamp_ms,
        first_timestamp_ms=segment.first_timestamp_ms,
        identity=segment.identity,
    )


def to_segment(message: maintenance_pb2.SegmentOfLog) -> SegmentDescription:
    return SegmentDescription(
        base_offset=message.base_offset,
        next_offset=message.next_offset,
        size_bytes=message.size_bytes,
        largest_timestamp_ms=message.largest_timestamp_ms,
        first_timestamp_ms=message.first_timestamp_ms,
        identity=message.identity,
    )


def log_message(log: LogDescription) -> maintenance_pb2.PartitionLog:
    """Return the message, without the broker id and the cluster id, which the enclosing message holds."""
    return maintenance_pb2.PartitionLog(
        topic=log.partition.topic,
        partition=log.partition.partition,
        topic_id=log.topic_id,
        is_leader=log.is_leader,
        leader_epoch=log.leader_epoch,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_end_offset=log.log_end_offset,
        cleaned_offset=log.cleaned_offset,
        folder=log.folder,
        configs={name: render(getattr(log.config, key.field)) for name, key in TOPIC_KEYS.items()},
        segments=map(segment_message, log.segments),
        epochs=[maintenance_pb2.EpochOfLog(epoch=epoch, start_offset=start) for epoch, start in log.epochs],
        producer_ids=log.producer_ids,
    )


def to_log(message: maintenance_pb2.PartitionLog, *, broker_id: int, cluster_id: str) -> LogDescription:
    """Return the description. Configuration keys that only a newer broker knows are left out."""
    known = {name: value for name, value in message.configs.items() if name in TOPIC_KEYS}
    return LogDescription(
        partition=TopicPartition(message.topic, message.partition),
        cluster_id=cluster_id,
        topic_id=message.topic_id,
        broker_id=broker_id,
        is_leader=message.is_leader,
        leader_epoch=message.leader_epoch,
        log_start_offset=message.log_start_offset,
        high_watermark=message.high_watermark,
        last_stable_offset=message.last_stable_offset,
        log_end_offset=message.log_end_offset,
        cleaned_offset=message.cleaned_offset,
        folder=message.folder,
        config=TopicConfig.parse(known, TopicConfig()),
        segments=tuple(map(to_segment, message.segments)),
        epochs=tuple(EpochStart(each.epoch, each.start_offset) for each in message.epochs),
        producer_ids=tuple(message.producer_ids),
    )
