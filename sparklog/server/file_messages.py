"""What a follower asks of its leader's files, and what it is told: messages of the service `Replication`, and back."""

from __future__ import annotations

from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.log.description import NO_SUM, SegmentSum
from sparklog.replica.messages import DescribeFiles, FileRead, FilesDescribed, ReadFile, SnapshotFile
from sparklog.server.peer_values import parse, read_topic_id, serialize
from sparklog.v1 import replication_pb2 as pb


def encode_describe(request: DescribeFiles) -> bytes:
    return serialize(
        pb.DescribeFilesRequest(
            topic=request.name.topic,
            partition=request.name.partition,
            topic_id=request.topic_id.bytes,
            replica_id=request.replica_id,
            leader_epoch=request.leader_epoch,
            since=request.since,
            wants_sums=request.wants_sums,
        )
    )


def decode_describe(data: bytes) -> DescribeFiles:
    message = parse(pb.DescribeFilesRequest, data)
    return DescribeFiles(
        name=TopicPartition(message.topic, message.partition),
        topic_id=read_topic_id(message.topic_id),
        replica_id=message.replica_id,
        leader_epoch=message.leader_epoch,
        since=message.since,
        wants_sums=message.wants_sums,
    )


def encode_described(response: FilesDescribed) -> bytes:
    snapshot = response.snapshot
    return serialize(
        pb.DescribeFilesResponse(
            generation=response.generation,
            segments=[_segment_message(each) for each in response.segments],
            closed_to=response.closed_to,
            cleaned_offset=response.cleaned_offset,
            is_summed=response.is_summed,
            snapshot=pb.SnapshotFile(
                end_offset=snapshot.end_offset, leader_epoch=snapshot.leader_epoch, size_bytes=snapshot.size_bytes
            )
            if snapshot
            else None,
        )
    )


def _segment_message(segment: SegmentSum) -> pb.SegmentSum:
    return pb.SegmentSum(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        crc32c=None if segment.crc32c == NO_SUM else segment.crc32c,
        identity=segment.identity,
    )


def decode_described(data: bytes) -> FilesDescribed:
    message = parse(pb.DescribeFilesResponse, data)
    snapshot = message.snapshot
    return FilesDescribed(
        generation=message.generation,
        segments=tuple(_segment(each) for each in message.segments),
        closed_to=message.closed_to,
        cleaned_offset=message.cleaned_offset,
        is_summed=message.is_summed,
        snapshot=SnapshotFile(
            end_offset=snapshot.end_offset, leader_epoch=snapshot.leader_epoch, size_bytes=snapshot.size_bytes
        )
        if message.HasField("snapshot")
        else None,
    )


def _segment(message: Any) -> SegmentSum:
    return SegmentSum(
        base_offset=message.base_offset,
        next_offset=message.next_offset,
        size_bytes=message.size_bytes,
        crc32c=message.crc32c if message.HasField("crc32c") else NO_SUM,
        identity=message.identity,
    )


def encode_read(request: ReadFile) -> bytes:
    return serialize(
        pb.ReadFileRequest(
            topic=request.name.topic,
            partition=request.name.partition,
            topic_id=request.topic_id.bytes,
            replica_id=request.replica_id,
            leader_epoch=request.leader_epoch,
            offset=request.offset,
            identity=request.identity,
            position=request.position,
            snapshot_epoch=request.snapshot_epoch,
        )
    )


def decode_read(data: bytes) -> ReadFile:
    message = parse(pb.ReadFileRequest, data)
    return ReadFile(
        name=TopicPartition(message.topic, message.partition),
        topic_id=read_topic_id(message.topic_id),
        replica_id=message.replica_id,
        leader_epoch=message.leader_epoch,
        offset=message.offset,
        identity=message.identity,
        position=message.position,
        snapshot_epoch=message.snapshot_epoch if message.HasField("snapshot_epoch") else None,
    )


def encode_piece(response: FileRead) -> bytes:
    return serialize(pb.ReadFileResponse(data=response.data))


def decode_piece(data: bytes) -> FileRead:
    return FileRead(data=parse(pb.ReadFileResponse, data).data)
