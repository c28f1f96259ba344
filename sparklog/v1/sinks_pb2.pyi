from sparklog.v1 import admin_pb2 as _admin_pb2
from sparklog.v1 import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinBatchRequest(_message.Message):
    __slots__ = ("sink_id", "run_id", "batch_id", "timeout_ms", "one_off", "producer_id", "producer_epoch")
    SINK_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ONE_OFF_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    sink_id: str
    run_id: str
    batch_id: int
    timeout_ms: int
    one_off: bool
    producer_id: int
    producer_epoch: int
    def __init__(self, sink_id: _Optional[str] = ..., run_id: _Optional[str] = ..., batch_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., one_off: _Optional[bool] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class JoinBatchResponse(_message.Message):
    __slots__ = ("error", "committed", "producer_id", "producer_epoch")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error: _records_pb2.Error
    committed: bool
    producer_id: int
    producer_epoch: int
    def __init__(self, error: _Optional[_Union[_records_pb2.Error, _Mapping]] = ..., committed: _Optional[bool] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class CommitBatchRequest(_message.Message):
    __slots__ = ("sink_id", "run_id", "batch_id", "winners")
    SINK_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    WINNERS_FIELD_NUMBER: _ClassVar[int]
    sink_id: str
    run_id: str
    batch_id: int
    winners: _containers.RepeatedCompositeFieldContainer[BatchWinner]
    def __init__(self, sink_id: _Optional[str] = ..., run_id: _Optional[str] = ..., batch_id: _Optional[int] = ..., winners: _Optional[_Iterable[_Union[BatchWinner, _Mapping]]] = ...) -> None: ...

class BatchWinner(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "topics")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    topics: _containers.RepeatedCompositeFieldContainer[PartitionsOfTopic]
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[PartitionsOfTopic, _Mapping]]] = ...) -> None: ...

class PartitionsOfTopic(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class CommitBatchResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _records_pb2.Error
    def __init__(self, error: _Optional[_Union[_records_pb2.Error, _Mapping]] = ...) -> None: ...

class AbortBatchRequest(_message.Message):
    __slots__ = ("sink_id", "run_id", "batch_id")
    SINK_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    sink_id: str
    run_id: str
    batch_id: int
    def __init__(self, sink_id: _Optional[str] = ..., run_id: _Optional[str] = ..., batch_id: _Optional[int] = ...) -> None: ...

class AbortBatchResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _records_pb2.Error
    def __init__(self, error: _Optional[_Union[_records_pb2.Error, _Mapping]] = ...) -> None: ...

class ListSinksRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSinksResponse(_message.Message):
    __slots__ = ("error", "sinks")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SINKS_FIELD_NUMBER: _ClassVar[int]
    error: _records_pb2.Error
    sinks: _containers.RepeatedCompositeFieldContainer[ListedSink]
    def __init__(self, error: _Optional[_Union[_records_pb2.Error, _Mapping]] = ..., sinks: _Optional[_Iterable[_Union[ListedSink, _Mapping]]] = ...) -> None: ...

class ListedSink(_message.Message):
    __slots__ = ("sink_id", "state", "committed_batch_id", "last_update_ms")
    SINK_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_UPDATE_MS_FIELD_NUMBER: _ClassVar[int]
    sink_id: str
    state: str
    committed_batch_id: int
    last_update_ms: int
    def __init__(self, sink_id: _Optional[str] = ..., state: _Optional[str] = ..., committed_batch_id: _Optional[int] = ..., last_update_ms: _Optional[int] = ...) -> None: ...

class DescribeSinksRequest(_message.Message):
    __slots__ = ("sink_ids",)
    SINK_IDS_FIELD_NUMBER: _ClassVar[int]
    sink_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sink_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeSinksResponse(_message.Message):
    __slots__ = ("sinks",)
    SINKS_FIELD_NUMBER: _ClassVar[int]
    sinks: _containers.RepeatedCompositeFieldContainer[DescribedSink]
    def __init__(self, sinks: _Optional[_Iterable[_Union[DescribedSink, _Mapping]]] = ...) -> None: ...

class DescribedSink(_message.Message):
    __slots__ = ("sink_id", "error", "state", "run_id", "batch_id", "committed_batch_id", "committed_run_id", "last_update_ms", "timeout_ms", "producers", "partitions")
    SINK_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_UPDATE_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    sink_id: str
    error: _records_pb2.Error
    state: str
    run_id: str
    batch_id: int
    committed_batch_id: int
    committed_run_id: str
    last_update_ms: int
    timeout_ms: int
    producers: int
    partitions: _containers.RepeatedCompositeFieldContainer[_admin_pb2.PartitionId]
    def __init__(self, sink_id: _Optional[str] = ..., error: _Optional[_Union[_records_pb2.Error, _Mapping]] = ..., state: _Optional[str] = ..., run_id: _Optional[str] = ..., batch_id: _Optional[int] = ..., committed_batch_id: _Optional[int] = ..., committed_run_id: _Optional[str] = ..., last_update_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., producers: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_admin_pb2.PartitionId, _Mapping]]] = ...) -> None: ...

class ResetSinkRequest(_message.Message):
    __slots__ = ("sink_id",)
    SINK_ID_FIELD_NUMBER: _ClassVar[int]
    sink_id: str
    def __init__(self, sink_id: _Optional[str] = ...) -> None: ...

class ResetSinkResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _records_pb2.Error
    def __init__(self, error: _Optional[_Union[_records_pb2.Error, _Mapping]] = ...) -> None: ...
