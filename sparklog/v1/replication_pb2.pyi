from sparklog.v1 import admin_pb2 as _admin_pb2
from sparklog.v1 import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PartitionState(_message.Message):
    __slots__ = ("topic", "partition", "topic_id", "leader", "leader_epoch", "isr", "replicas", "adding", "removing", "partition_epoch", "is_new")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    topic_id: bytes
    leader: int
    leader_epoch: int
    isr: _containers.RepeatedScalarFieldContainer[int]
    replicas: _containers.RepeatedScalarFieldContainer[int]
    adding: _containers.RepeatedScalarFieldContainer[int]
    removing: _containers.RepeatedScalarFieldContainer[int]
    partition_epoch: int
    is_new: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., topic_id: _Optional[bytes] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., replicas: _Optional[_Iterable[int]] = ..., adding: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ..., partition_epoch: _Optional[int] = ..., is_new: _Optional[bool] = ...) -> None: ...

class TopicOverrides(_message.Message):
    __slots__ = ("configs",)
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    configs: _containers.ScalarMap[str, str]
    def __init__(self, configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class LeaderAndIsrRequest(_message.Message):
    __slots__ = ("controller_id", "controller_epoch", "broker_epoch", "partitions", "overrides", "number", "store_id")
    class OverridesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: TopicOverrides
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[TopicOverrides, _Mapping]] = ...) -> None: ...
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionState]
    overrides: _containers.MessageMap[str, TopicOverrides]
    number: int
    store_id: str
    def __init__(self, controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionState, _Mapping]]] = ..., overrides: _Optional[_Mapping[str, TopicOverrides]] = ..., number: _Optional[int] = ..., store_id: _Optional[str] = ...) -> None: ...

class PartitionOutcome(_message.Message):
    __slots__ = ("topic", "partition", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: _records_pb2.Error
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[_records_pb2.Error, _Mapping]] = ...) -> None: ...

class LogEnd(_message.Message):
    __slots__ = ("topic", "partition", "leader_epoch", "end_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader_epoch: int
    end_offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class LeaderAndIsrResponse(_message.Message):
    __slots__ = ("errors", "ends")
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[PartitionOutcome]
    ends: _containers.RepeatedCompositeFieldContainer[LogEnd]
    def __init__(self, errors: _Optional[_Iterable[_Union[PartitionOutcome, _Mapping]]] = ..., ends: _Optional[_Iterable[_Union[LogEnd, _Mapping]]] = ...) -> None: ...

class StopPartition(_message.Message):
    __slots__ = ("topic", "partition", "leader_epoch", "delete")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader_epoch: int
    delete: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., delete: _Optional[bool] = ...) -> None: ...

class StopReplicaRequest(_message.Message):
    __slots__ = ("controller_id", "controller_epoch", "broker_epoch", "partitions", "number", "store_id")
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[StopPartition]
    number: int
    store_id: str
    def __init__(self, controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[StopPartition, _Mapping]]] = ..., number: _Optional[int] = ..., store_id: _Optional[str] = ...) -> None: ...

class StopReplicaResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[PartitionOutcome]
    def __init__(self, errors: _Optional[_Iterable[_Union[PartitionOutcome, _Mapping]]] = ...) -> None: ...

class Listener(_message.Message):
    __slots__ = ("name", "host", "port")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class BrokerState(_message.Message):
    __slots__ = ("broker_id", "grpc_address", "listeners", "rack", "version", "epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    grpc_address: str
    listeners: _containers.RepeatedCompositeFieldContainer[Listener]
    rack: str
    version: str
    epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., grpc_address: _Optional[str] = ..., listeners: _Optional[_Iterable[_Union[Listener, _Mapping]]] = ..., rack: _Optional[str] = ..., version: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class TopicState(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "overrides")
    class OverridesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionState]
    overrides: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[PartitionState, _Mapping]]] = ..., overrides: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UpdateMetadataRequest(_message.Message):
    __slots__ = ("controller_id", "controller_epoch", "broker_epoch", "brokers", "topics", "deleted", "is_full", "broker_overrides", "number", "acls", "quotas", "client_metrics", "full_since", "ends_full", "store_id")
    class BrokerOverridesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: TopicOverrides
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[TopicOverrides, _Mapping]] = ...) -> None: ...
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_FIELD_NUMBER: _ClassVar[int]
    BROKER_OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_METRICS_FIELD_NUMBER: _ClassVar[int]
    FULL_SINCE_FIELD_NUMBER: _ClassVar[int]
    ENDS_FULL_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerState]
    topics: _containers.RepeatedCompositeFieldContainer[TopicState]
    deleted: _containers.RepeatedScalarFieldContainer[str]
    is_full: bool
    broker_overrides: _containers.MessageMap[int, TopicOverrides]
    number: int
    acls: AclList
    quotas: QuotaList
    client_metrics: ClientMetricsSubscriptions
    full_since: int
    ends_full: bool
    store_id: str
    def __init__(self, controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[BrokerState, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[TopicState, _Mapping]]] = ..., deleted: _Optional[_Iterable[str]] = ..., is_full: _Optional[bool] = ..., broker_overrides: _Optional[_Mapping[int, TopicOverrides]] = ..., number: _Optional[int] = ..., acls: _Optional[_Union[AclList, _Mapping]] = ..., quotas: _Optional[_Union[QuotaList, _Mapping]] = ..., client_metrics: _Optional[_Union[ClientMetricsSubscriptions, _Mapping]] = ..., full_since: _Optional[int] = ..., ends_full: _Optional[bool] = ..., store_id: _Optional[str] = ...) -> None: ...

class QuotaList(_message.Message):
    __slots__ = ("quotas",)
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[_admin_pb2.ClientQuota]
    def __init__(self, quotas: _Optional[_Iterable[_Union[_admin_pb2.ClientQuota, _Mapping]]] = ...) -> None: ...

class ClientMetricsSubscriptions(_message.Message):
    __slots__ = ("subscriptions",)
    class SubscriptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: TopicOverrides
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[TopicOverrides, _Mapping]] = ...) -> None: ...
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.MessageMap[str, TopicOverrides]
    def __init__(self, subscriptions: _Optional[_Mapping[str, TopicOverrides]] = ...) -> None: ...

class AclList(_message.Message):
    __slots__ = ("acls",)
    ACLS_FIELD_NUMBER: _ClassVar[int]
    acls: _containers.RepeatedCompositeFieldContainer[_admin_pb2.AclBinding]
    def __init__(self, acls: _Optional[_Iterable[_Union[_admin_pb2.AclBinding, _Mapping]]] = ...) -> None: ...

class UpdateMetadataResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReplicaFetchPartition(_message.Message):
    __slots__ = ("topic", "partition", "topic_id", "fetch_offset", "max_bytes", "current_leader_epoch", "last_fetched_epoch", "log_start_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCHED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    topic_id: bytes
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., topic_id: _Optional[bytes] = ..., fetch_offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., current_leader_epoch: _Optional[int] = ..., last_fetched_epoch: _Optional[int] = ..., log_start_offset: _Optional[int] = ...) -> None: ...

class ReplicaFetchRequest(_message.Message):
    __slots__ = ("replica_id", "broker_epoch", "max_wait_ms", "min_bytes", "max_bytes", "session_id", "session_epoch", "partitions", "forgotten")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    replica_id: int
    broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[ReplicaFetchPartition]
    forgotten: _containers.RepeatedCompositeFieldContainer[ReplicaFetchPartition]
    def __init__(self, replica_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., min_bytes: _Optional[int] = ..., max_bytes: _Optional[int] = ..., session_id: _Optional[int] = ..., session_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[ReplicaFetchPartition, _Mapping]]] = ..., forgotten: _Optional[_Iterable[_Union[ReplicaFetchPartition, _Mapping]]] = ...) -> None: ...

class EpochEnd(_message.Message):
    __slots__ = ("epoch", "end_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    end_offset: int
    def __init__(self, epoch: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class ReplicaFetchedPartition(_message.Message):
    __slots__ = ("topic", "partition", "error", "high_watermark", "log_start_offset", "segment_base_offset", "diverging", "leader_epoch", "generation", "records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: _records_pb2.Error
    high_watermark: int
    log_start_offset: int
    segment_base_offset: int
    diverging: EpochEnd
    leader_epoch: int
    generation: int
    records: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[_records_pb2.Error, _Mapping]] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., segment_base_offset: _Optional[int] = ..., diverging: _Optional[_Union[EpochEnd, _Mapping]] = ..., leader_epoch: _Optional[int] = ..., generation: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class ReplicaFetchResponse(_message.Message):
    __slots__ = ("session_id", "partitions")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[ReplicaFetchedPartition]
    def __init__(self, session_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[ReplicaFetchedPartition, _Mapping]]] = ...) -> None: ...

class DescribeFilesRequest(_message.Message):
    __slots__ = ("topic", "partition", "topic_id", "replica_id", "leader_epoch", "since", "wants_sums")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    WANTS_SUMS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    topic_id: bytes
    replica_id: int
    leader_epoch: int
    since: int
    wants_sums: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., topic_id: _Optional[bytes] = ..., replica_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., since: _Optional[int] = ..., wants_sums: _Optional[bool] = ...) -> None: ...

class SegmentSum(_message.Message):
    __slots__ = ("base_offset", "next_offset", "size_bytes", "crc32c", "identity")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    next_offset: int
    size_bytes: int
    crc32c: int
    identity: str
    def __init__(self, base_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., crc32c: _Optional[int] = ..., identity: _Optional[str] = ...) -> None: ...

class SnapshotFile(_message.Message):
    __slots__ = ("end_offset", "leader_epoch", "size_bytes")
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    end_offset: int
    leader_epoch: int
    size_bytes: int
    def __init__(self, end_offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class DescribeFilesResponse(_message.Message):
    __slots__ = ("generation", "segments", "closed_to", "cleaned_offset", "is_summed", "snapshot")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_TO_FIELD_NUMBER: _ClassVar[int]
    CLEANED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_SUMMED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    generation: int
    segments: _containers.RepeatedCompositeFieldContainer[SegmentSum]
    closed_to: int
    cleaned_offset: int
    is_summed: bool
    snapshot: SnapshotFile
    def __init__(self, generation: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[SegmentSum, _Mapping]]] = ..., closed_to: _Optional[int] = ..., cleaned_offset: _Optional[int] = ..., is_summed: _Optional[bool] = ..., snapshot: _Optional[_Union[SnapshotFile, _Mapping]] = ...) -> None: ...

class ReadFileRequest(_message.Message):
    __slots__ = ("topic", "partition", "topic_id", "replica_id", "leader_epoch", "offset", "identity", "position", "snapshot_epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    topic_id: bytes
    replica_id: int
    leader_epoch: int
    offset: int
    identity: str
    position: int
    snapshot_epoch: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., topic_id: _Optional[bytes] = ..., replica_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., offset: _Optional[int] = ..., identity: _Optional[str] = ..., position: _Optional[int] = ..., snapshot_epoch: _Optional[int] = ...) -> None: ...

class ReadFileResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class ControlledShutdownRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class ControlledShutdownResponse(_message.Message):
    __slots__ = ("remaining",)
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    remaining: _containers.RepeatedCompositeFieldContainer[_admin_pb2.PartitionId]
    def __init__(self, remaining: _Optional[_Iterable[_Union[_admin_pb2.PartitionId, _Mapping]]] = ...) -> None: ...

class AppendHistoryRequest(_message.Message):
    __slots__ = ("records", "timeout_ms")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    records: bytes
    timeout_ms: int
    def __init__(self, records: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class AppendHistoryResponse(_message.Message):
    __slots__ = ("base_offset",)
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    def __init__(self, base_offset: _Optional[int] = ...) -> None: ...

class TransactionMarker(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "commit", "coordinator_epoch", "transaction_version", "partitions")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: _containers.RepeatedCompositeFieldContainer[_admin_pb2.PartitionId]
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., commit: _Optional[bool] = ..., coordinator_epoch: _Optional[int] = ..., transaction_version: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_admin_pb2.PartitionId, _Mapping]]] = ...) -> None: ...

class WriteTxnMarkersRequest(_message.Message):
    __slots__ = ("markers",)
    MARKERS_FIELD_NUMBER: _ClassVar[int]
    markers: _containers.RepeatedCompositeFieldContainer[TransactionMarker]
    def __init__(self, markers: _Optional[_Iterable[_Union[TransactionMarker, _Mapping]]] = ...) -> None: ...

class MarkerWritten(_message.Message):
    __slots__ = ("producer_id", "errors")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    errors: _containers.RepeatedCompositeFieldContainer[PartitionOutcome]
    def __init__(self, producer_id: _Optional[int] = ..., errors: _Optional[_Iterable[_Union[PartitionOutcome, _Mapping]]] = ...) -> None: ...

class WriteTxnMarkersResponse(_message.Message):
    __slots__ = ("markers",)
    MARKERS_FIELD_NUMBER: _ClassVar[int]
    markers: _containers.RepeatedCompositeFieldContainer[MarkerWritten]
    def __init__(self, markers: _Optional[_Iterable[_Union[MarkerWritten, _Mapping]]] = ...) -> None: ...

class AddPartitionsToTxnRequest(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "partitions", "verify_only", "transaction_version")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    VERIFY_ONLY_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_VERSION_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[_admin_pb2.PartitionId]
    verify_only: bool
    transaction_version: int
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_admin_pb2.PartitionId, _Mapping]]] = ..., verify_only: _Optional[bool] = ..., transaction_version: _Optional[int] = ...) -> None: ...

class AddPartitionsToTxnResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[PartitionOutcome]
    def __init__(self, errors: _Optional[_Iterable[_Union[PartitionOutcome, _Mapping]]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class DescribePositionsRequest(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[Position]
    def __init__(self, positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ...) -> None: ...

class DescribedPosition(_message.Message):
    __slots__ = ("high_watermark", "timestamp_ms")
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    high_watermark: int
    timestamp_ms: int
    def __init__(self, high_watermark: _Optional[int] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class DescribePositionsResponse(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[DescribedPosition]
    def __init__(self, positions: _Optional[_Iterable[_Union[DescribedPosition, _Mapping]]] = ...) -> None: ...
