"""Every error that sparklog raises, as one tree.

    SparklogError
    ├── ConfigError                 a configuration or an option is wrong: fix it and start again
    ├── StoreError                  the cluster store refused a write or a read; handled inside the broker
    ├── KafkaError                  has a code of Kafka's protocol; travels in responses
    │   ├── RetriableError          the same request may succeed later
    │   └── everything else         the same request will fail again
    └── ClientError                 raised in the client, never sent: closed, buffer full, timed out

A KafkaError's code and name are those of org.apache.kafka.common.protocol.Errors, so any Kafka client
understands them. `error_for(code, message)` makes the class again from what came over the wire.
"""

from __future__ import annotations

from typing import ClassVar


class SparklogError(Exception):
    """The root of the tree. Its text says what was wrong, where, and what to do."""


class ConfigError(SparklogError):
    """A configuration key or option is unknown, or its value is not allowed."""


class StoreError(SparklogError):
    """The cluster store could not do what was asked (`cluster/store.py`)."""


class NoNode(StoreError):
    """The path does not exist."""


class NodeExists(StoreError):
    """The path exists already."""


class BadVersion(StoreError):
    """The node has been changed since it was read."""


class NotEmpty(StoreError):
    """The node has children, so it cannot be deleted."""


class ClientError(SparklogError):
    """The client could not do what was asked, without a broker having refused it."""


class ClosedError(ClientError):
    """Used after close()."""


class BufferExhausted(ClientError):
    """`buffer.memory` stayed full for `max.block.ms`: slow down, or raise either."""


class DeliveryTimeout(ClientError):
    """A record was not acknowledged within `delivery.timeout.ms`."""


class DataLost(ClientError):
    """Records that were to be read are no longer there."""


class KafkaError(SparklogError):
    """An error with a code of Kafka's protocol."""

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False
    by_code: ClassVar[dict[int, type[KafkaError]]] = {}

    def __init_subclass__(cls) -> None:
        KafkaError.by_code.setdefault(cls.code, cls)


class RetriableError(KafkaError):
    """The same request may succeed later; clients refresh what they know and try again."""

    retriable = True


class UnknownServerError(KafkaError):
    code, name = -1, "UNKNOWN_SERVER_ERROR"


class OffsetOutOfRange(KafkaError):
    code, name = 1, "OFFSET_OUT_OF_RANGE"


class CorruptRecord(RetriableError):
    code, name = 2, "CORRUPT_MESSAGE"


class UnknownTopicOrPartition(RetriableError):
    code, name = 3, "UNKNOWN_TOPIC_OR_PARTITION"


class LeaderNotAvailable(RetriableError):
    code, name = 5, "LEADER_NOT_AVAILABLE"


class NotLeaderOrFollower(RetriableError):
    code, name = 6, "NOT_LEADER_OR_FOLLOWER"


class RequestTimedOut(RetriableError):
    code, name = 7, "REQUEST_TIMED_OUT"


class BrokerNotAvailable(KafkaError):
    code, name = 8, "BROKER_NOT_AVAILABLE"


class MessageTooLarge(KafkaError):
    code, name = 10, "MESSAGE_TOO_LARGE"


class NetworkException(RetriableError):
    code, name = 13, "NETWORK_EXCEPTION"


class InvalidTopic(KafkaError):
    code, name = 17, "INVALID_TOPIC_EXCEPTION"


class RecordListTooLarge(KafkaError):
    code, name = 18, "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicas(RetriableError):
    code, name = 19, "NOT_ENOUGH_REPLICAS"


class InvalidRequiredAcks(KafkaError):
    code, name = 21, "INVALID_REQUIRED_ACKS"


class InvalidTimestamp(KafkaError):
    code, name = 32, "INVALID_TIMESTAMP"


class UnsupportedVersion(KafkaError):
    code, name = 35, "UNSUPPORTED_VERSION"


class TopicAlreadyExists(KafkaError):
    code, name = 36, "TOPIC_ALREADY_EXISTS"


class InvalidPartitions(KafkaError):
    code, name = 37, "INVALID_PARTITIONS"


class InvalidReplicationFactor(KafkaError):
    code, name = 38, "INVALID_REPLICATION_FACTOR"


class InvalidConfig(KafkaError):
    code, name = 40, "INVALID_CONFIG"


class InvalidRequest(KafkaError):
    code, name = 42, "INVALID_REQUEST"


class UnsupportedForMessageFormat(KafkaError):
    code, name = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolation(KafkaError):
    code, name = 44, "POLICY_VIOLATION"


class KafkaStorageError(RetriableError):
    code, name = 56, "KAFKA_STORAGE_ERROR"


class TopicDeletionDisabled(KafkaError):
    code, name = 73, "TOPIC_DELETION_DISABLED"


class FencedLeaderEpoch(RetriableError):
    code, name = 74, "FENCED_LEADER_EPOCH"


class UnknownLeaderEpoch(RetriableError):
    code, name = 75, "UNKNOWN_LEADER_EPOCH"


class UnsupportedCompressionType(KafkaError):
    code, name = 76, "UNSUPPORTED_COMPRESSION_TYPE"


class OffsetNotAvailable(RetriableError):
    code, name = 78, "OFFSET_NOT_AVAILABLE"


class InvalidRecord(KafkaError):
    code, name = 87, "INVALID_RECORD"


class ThrottlingQuotaExceeded(RetriableError):
    code, name = 89, "THROTTLING_QUOTA_EXCEEDED"


def error_for(code: int, message: str) -> KafkaError:
    """The error that `code` stands for; UnknownServerError, naming the code, if sparklog does not know it."""
    cls = KafkaError.by_code.get(code)
    return cls(message) if cls else UnknownServerError(f"error code {code}: {message}")
