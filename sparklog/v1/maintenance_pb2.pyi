from sparklog.v1 import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeLogRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionOfTopic]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionOfTopic, _Mapping]]] = ...) -> None: ...

class PartitionOfTopic(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class DescribeLogResponse(_message.Message):
    __slots__ = ("broker_id", "cluster_id", "partitions")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    cluster_id: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionLog]
    def __init__(self, broker_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionLog, _Mapping]]] = ...) -> None: ...

class PartitionLog(_message.Message):
    __slots__ = ("topic", "partition", "error", "is_leader", "leader_epoch", "log_start_offset", "high_watermark", "last_stable_offset", "log_end_offset", "cleaned_offset", "folder", "configs", "segments", "epochs", "topic_id", "producer_ids")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    IS_LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CLEANED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: _records_pb2.Error
    is_leader: bool
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    cleaned_offset: int
    folder: str
    configs: _containers.ScalarMap[str, str]
    segments: _containers.RepeatedCompositeFieldContainer[SegmentOfLog]
    epochs: _containers.RepeatedCompositeFieldContainer[EpochOfLog]
    topic_id: str
    producer_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[_records_pb2.Error, _Mapping]] = ..., is_leader: _Optional[bool] = ..., leader_epoch: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., last_stable_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., cleaned_offset: _Optional[int] = ..., folder: _Optional[str] = ..., configs: _Optional[_Mapping[str, str]] = ..., segments: _Optional[_Iterable[_Union[SegmentOfLog, _Mapping]]] = ..., epochs: _Optional[_Iterable[_Union[EpochOfLog, _Mapping]]] = ..., topic_id: _Optional[str] = ..., producer_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class EpochOfLog(_message.Message):
    __slots__ = ("epoch", "start_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class SegmentOfLog(_message.Message):
    __slots__ = ("base_offset", "next_offset", "size_bytes", "largest_timestamp_ms", "first_timestamp_ms", "identity")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LARGEST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    first_timestamp_ms: int
    identity: str
    def __init__(self, base_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., largest_timestamp_ms: _Optional[int] = ..., first_timestamp_ms: _Optional[int] = ..., identity: _Optional[str] = ...) -> None: ...

class ReadSegmentRequest(_message.Message):
    __slots__ = ("topic", "partition", "base_offset", "position", "size", "identity", "file")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    base_offset: int
    position: int
    size: int
    identity: str
    file: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., base_offset: _Optional[int] = ..., position: _Optional[int] = ..., size: _Optional[int] = ..., identity: _Optional[str] = ..., file: _Optional[str] = ...) -> None: ...

class ReadSegmentResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class BeginReplaceRequest(_message.Message):
    __slots__ = ("topic", "partition", "leader_epoch", "sources", "lease_ms", "holder")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader_epoch: int
    sources: _containers.RepeatedCompositeFieldContainer[SegmentOfLog]
    lease_ms: int
    holder: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[SegmentOfLog, _Mapping]]] = ..., lease_ms: _Optional[int] = ..., holder: _Optional[str] = ...) -> None: ...

class BeginReplaceResponse(_message.Message):
    __slots__ = ("lease_id", "path")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    path: str
    def __init__(self, lease_id: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class UploadSegmentRequest(_message.Message):
    __slots__ = ("lease_id", "data")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    data: bytes
    def __init__(self, lease_id: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadSegmentResponse(_message.Message):
    __slots__ = ("size_bytes",)
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    def __init__(self, size_bytes: _Optional[int] = ...) -> None: ...

class CommitReplaceRequest(_message.Message):
    __slots__ = ("lease_id", "leader_epoch", "size_bytes", "crc32c")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    leader_epoch: int
    size_bytes: int
    crc32c: int
    def __init__(self, lease_id: _Optional[str] = ..., leader_epoch: _Optional[int] = ..., size_bytes: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...

class CommitReplaceResponse(_message.Message):
    __slots__ = ("segment",)
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    segment: SegmentOfLog
    def __init__(self, segment: _Optional[_Union[SegmentOfLog, _Mapping]] = ...) -> None: ...

class AbortReplaceRequest(_message.Message):
    __slots__ = ("lease_id",)
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    def __init__(self, lease_id: _Optional[str] = ...) -> None: ...

class AbortReplaceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetCleanedOffsetRequest(_message.Message):
    __slots__ = ("topic", "partition", "leader_epoch", "offset", "segments")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader_epoch: int
    offset: int
    segments: _containers.RepeatedCompositeFieldContainer[SegmentOfLog]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., offset: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[SegmentOfLog, _Mapping]]] = ...) -> None: ...

class SetCleanedOffsetResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InstallSnapshotRequest(_message.Message):
    __slots__ = ("topic", "partition", "leader_epoch", "end_offset", "data", "size_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader_epoch: int
    end_offset: int
    data: bytes
    size_bytes: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., end_offset: _Optional[int] = ..., data: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class InstallSnapshotResponse(_message.Message):
    __slots__ = ("size_bytes",)
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    def __init__(self, size_bytes: _Optional[int] = ...) -> None: ...

class NoteJobRunRequest(_message.Message):
    __slots__ = ("job", "run_id", "started_ms", "status", "rows", "findings", "error", "schedule")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    job: str
    run_id: str
    started_ms: int
    status: int
    rows: int
    findings: int
    error: str
    schedule: str
    def __init__(self, job: _Optional[str] = ..., run_id: _Optional[str] = ..., started_ms: _Optional[int] = ..., status: _Optional[int] = ..., rows: _Optional[int] = ..., findings: _Optional[int] = ..., error: _Optional[str] = ..., schedule: _Optional[str] = ...) -> None: ...

class NoteJobRunResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
