"""Every error that sparklog raises, as one tree.

    SparklogError
    ├── ConfigError                 a configuration or an option is wrong: fix it and start again
    ├── SchemaError                 a schema is invalid, not available, or incompatible with the requested one
    ├── MalformedRecord             a key or value does not follow its schema
    ├── StoreError                  the cluster store refused a write or a read; handled inside the broker
    ├── UnexpectedGap               batches for a follower's log leave out offsets; handled inside the broker
    ├── KafkaError                  has a code of Kafka's protocol; travels in responses
    │   ├── RetriableError          the same request may succeed later
    │   └── everything else         the same request will fail again
    └── ClientError                 raised in the client, never sent: closed, buffer full, timed out

A KafkaError's code and name are those of org.apache.kafka.common.protocol.Errors, so any Kafka client
understands them. `error_for(code, message)` recreates the error from a response.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar


class SparklogError(Exception):
    """The root of the tree. The text names the problem, its place, and the remedy."""


class ConfigError(SparklogError):
    """A configuration key or option is unknown, or its value is not allowed."""


class SchemaError(SparklogError):
    """A schema is invalid, has no type in Spark, or cannot be read as the requested schema."""


class RegistryError(SchemaError):
    """The schema registry refused, does not know, or did not answer."""


class MalformedRecord(SparklogError):
    """A key or value does not follow its schema."""


class StoreError(SparklogError):
    """The cluster store could not carry out an operation (`cluster/store.py`)."""


class NoNode(StoreError):
    """The path does not exist."""


class LostStates(StoreError):
    """The cluster store has lost the states of some partitions, though not their topics."""

    def __init__(self, topics: Iterable[str], message: str) -> None:
        super().__init__(message)
        self.topics = tuple(topics)


class NodeExists(StoreError):
    """The path exists already."""


class BadVersion(StoreError):
    """The node has been changed since it was read."""


class NotEmpty(StoreError):
    """The node has children, so it cannot be deleted."""


class ConnectionLoss(StoreError):
    """The store cannot be reached at the moment. A write in progress may or may not have happened."""


class SessionExpired(StoreError):
    """The store has ended this broker's session and removed its ephemeral nodes and watches."""


class ControllerMoved(StoreError):
    """Another controller was elected, so this controller's write was refused."""


class UnexpectedGap(SparklogError):
    """Batches for a follower's log leave out offsets, and the append cannot make the gap durable."""


class ClientError(SparklogError):
    """The client failed; no broker has refused a request."""


class ClosedError(ClientError):
    """Used after close()."""


class BufferExhausted(ClientError):
    """`buffer.memory` stayed full for `max.block.ms`: send more slowly, or raise one of the two."""


class DeliveryTimeout(ClientError):
    """A record was not acknowledged within `delivery.timeout.ms`."""


class DataLost(ClientError):
    """Records that the client should read no longer exist."""


HEAD_CHARACTERS, TAIL_CHARACTERS = 350, 100


class KafkaError(SparklogError):
    """An error with a code of Kafka's protocol.

    A long text loses its middle, as it may repeat data of the request: a request with one name of 30 KB and 10,000
    partitions would otherwise get a response of 300 MB.
    """

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False
    by_code: ClassVar[dict[int, type[KafkaError]]] = {}

    def __init__(self, text: str = "") -> None:
        if len(text) > HEAD_CHARACTERS + TAIL_CHARACTERS:
            text = f"{text[:HEAD_CHARACTERS]}…{text[-TAIL_CHARACTERS:]}"
        super().__init__(text)

    def __init_subclass__(cls) -> None:
        if "code" in cls.__dict__:
            KafkaError.by_code[cls.code] = cls


class RetriableError(KafkaError):
    """The same request may succeed later; clients refresh their metadata and retry."""

    retriable = True


class UnknownServerError(KafkaError):
    code, name = -1, "UNKNOWN_SERVER_ERROR"


class OffsetOutOfRange(KafkaError):
    code, name = 1, "OFFSET_OUT_OF_RANGE"


class LogTruncation(OffsetOutOfRange):
    """An unclean leader election has lost records that a consumer has read. Raised in the client, never sent."""


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


class ReplicaNotAvailable(RetriableError):
    code, name = 9, "REPLICA_NOT_AVAILABLE"


class MessageTooLarge(KafkaError):
    code, name = 10, "MESSAGE_TOO_LARGE"


class StaleControllerEpoch(KafkaError):
    code, name = 11, "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLarge(KafkaError):
    code, name = 12, "OFFSET_METADATA_TOO_LARGE"


class NetworkException(RetriableError):
    code, name = 13, "NETWORK_EXCEPTION"

    def __init__(self, text: str = "", *, address: str = "") -> None:
        super().__init__(text)
        self.address = address
        """Address of the broker that did not answer, if known."""


class CoordinatorLoadInProgress(RetriableError):
    code, name = 14, "COORDINATOR_LOAD_IN_PROGRESS"


class CoordinatorNotAvailable(RetriableError):
    code, name = 15, "COORDINATOR_NOT_AVAILABLE"


class NotCoordinator(RetriableError):
    code, name = 16, "NOT_COORDINATOR"


class InvalidTopic(KafkaError):
    code, name = 17, "INVALID_TOPIC_EXCEPTION"


class RecordListTooLarge(KafkaError):
    code, name = 18, "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicas(RetriableError):
    code, name = 19, "NOT_ENOUGH_REPLICAS"


class NotEnoughReplicasAfterAppend(RetriableError):
    code, name = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class InvalidRequiredAcks(KafkaError):
    code, name = 21, "INVALID_REQUIRED_ACKS"


class IllegalGeneration(KafkaError):
    code, name = 22, "ILLEGAL_GENERATION"


class InconsistentGroupProtocol(KafkaError):
    code, name = 23, "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupId(KafkaError):
    code, name = 24, "INVALID_GROUP_ID"


class UnknownMemberId(KafkaError):
    code, name = 25, "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeout(KafkaError):
    code, name = 26, "INVALID_SESSION_TIMEOUT"


class RebalanceInProgress(KafkaError):
    code, name = 27, "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSize(KafkaError):
    code, name = 28, "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailed(KafkaError):
    code, name = 29, "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailed(KafkaError):
    code, name = 30, "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailed(KafkaError):
    code, name = 31, "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestamp(KafkaError):
    code, name = 32, "INVALID_TIMESTAMP"


class UnsupportedSaslMechanism(KafkaError):
    code, name = 33, "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslState(KafkaError):
    code, name = 34, "ILLEGAL_SASL_STATE"


class UnsupportedVersion(KafkaError):
    code, name = 35, "UNSUPPORTED_VERSION"


class TopicAlreadyExists(KafkaError):
    code, name = 36, "TOPIC_ALREADY_EXISTS"


class InvalidPartitions(KafkaError):
    code, name = 37, "INVALID_PARTITIONS"


class InvalidReplicationFactor(KafkaError):
    code, name = 38, "INVALID_REPLICATION_FACTOR"


class InvalidReplicaAssignment(KafkaError):
    code, name = 39, "INVALID_REPLICA_ASSIGNMENT"


class InvalidConfig(KafkaError):
    code, name = 40, "INVALID_CONFIG"


class NotController(RetriableError):
    code, name = 41, "NOT_CONTROLLER"


class InvalidRequest(KafkaError):
    code, name = 42, "INVALID_REQUEST"


class UnsupportedForMessageFormat(KafkaError):
    code, name = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolation(KafkaError):
    code, name = 44, "POLICY_VIOLATION"


class OutOfOrderSequenceNumber(KafkaError):
    code, name = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumber(KafkaError):
    code, name = 46, "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpoch(KafkaError):
    code, name = 47, "INVALID_PRODUCER_EPOCH"


class InvalidTxnState(KafkaError):
    code, name = 48, "INVALID_TXN_STATE"


class InvalidProducerIdMapping(KafkaError):
    code, name = 49, "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeout(KafkaError):
    code, name = 50, "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactions(RetriableError):
    """The transactional id has a change in progress, such as the end of its former transaction."""

    code, name = 51, "CONCURRENT_TRANSACTIONS"


class TransactionCoordinatorFenced(KafkaError):
    """A newer coordinator has written markers already."""

    code, name = 52, "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailed(KafkaError):
    code, name = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabled(KafkaError):
    code, name = 54, "SECURITY_DISABLED"


class OperationNotAttempted(KafkaError):
    code, name = 55, "OPERATION_NOT_ATTEMPTED"


class ReassignmentInProgress(KafkaError):
    code, name = 60, "REASSIGNMENT_IN_PROGRESS"


class KafkaStorageError(RetriableError):
    code, name = 56, "KAFKA_STORAGE_ERROR"


class LogDirNotFound(KafkaError):
    code, name = 57, "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailed(KafkaError):
    code, name = 58, "SASL_AUTHENTICATION_FAILED"


class UnknownProducerId(KafkaError):
    code, name = 59, "UNKNOWN_PRODUCER_ID"


class NonEmptyGroup(KafkaError):
    code, name = 68, "NON_EMPTY_GROUP"


class GroupIdNotFound(KafkaError):
    code, name = 69, "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFound(RetriableError):
    code, name = 70, "FETCH_SESSION_ID_NOT_FOUND"


class InvalidFetchSessionEpoch(RetriableError):
    code, name = 71, "INVALID_FETCH_SESSION_EPOCH"


class ListenerNotFound(RetriableError):
    code, name = 72, "LISTENER_NOT_FOUND"


class TopicDeletionDisabled(KafkaError):
    code, name = 73, "TOPIC_DELETION_DISABLED"


class FencedLeaderEpoch(RetriableError):
    code, name = 74, "FENCED_LEADER_EPOCH"


class UnknownLeaderEpoch(RetriableError):
    code, name = 75, "UNKNOWN_LEADER_EPOCH"


class UnsupportedCompressionType(KafkaError):
    code, name = 76, "UNSUPPORTED_COMPRESSION_TYPE"


class StaleBrokerEpoch(KafkaError):
    code, name = 77, "STALE_BROKER_EPOCH"


class OffsetNotAvailable(RetriableError):
    code, name = 78, "OFFSET_NOT_AVAILABLE"


class MemberIdRequired(KafkaError):
    code, name = 79, "MEMBER_ID_REQUIRED"


class PreferredLeaderNotAvailable(RetriableError):
    code, name = 80, "PREFERRED_LEADER_NOT_AVAILABLE"


class GroupMaxSizeReached(KafkaError):
    code, name = 81, "GROUP_MAX_SIZE_REACHED"


class FencedInstanceId(KafkaError):
    code, name = 82, "FENCED_INSTANCE_ID"


class EligibleLeadersNotAvailable(RetriableError):
    code, name = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE"


class ElectionNotNeeded(RetriableError):
    code, name = 84, "ELECTION_NOT_NEEDED"


class NoReassignmentInProgress(KafkaError):
    code, name = 85, "NO_REASSIGNMENT_IN_PROGRESS"


class GroupSubscribedToTopic(KafkaError):
    code, name = 86, "GROUP_SUBSCRIBED_TO_TOPIC"


class InvalidRecord(KafkaError):
    code, name = 87, "INVALID_RECORD"


class UnstableOffsetCommit(RetriableError):
    code, name = 88, "UNSTABLE_OFFSET_COMMIT"


class ThrottlingQuotaExceeded(RetriableError):
    code, name = 89, "THROTTLING_QUOTA_EXCEEDED"


class ProducerFenced(KafkaError):
    code, name = 90, "PRODUCER_FENCED"


class ResourceNotFound(KafkaError):
    code, name = 91, "RESOURCE_NOT_FOUND"


class DuplicateResource(KafkaError):
    code, name = 92, "DUPLICATE_RESOURCE"


class InvalidUpdateVersion(KafkaError):
    """The object to change has changed since it was read."""

    code, name = 95, "INVALID_UPDATE_VERSION"


class UnacceptableCredential(KafkaError):
    code, name = 93, "UNACCEPTABLE_CREDENTIAL"


class UnknownTopicId(RetriableError):
    code, name = 100, "UNKNOWN_TOPIC_ID"


class InconsistentTopicId(RetriableError):
    code, name = 103, "INCONSISTENT_TOPIC_ID"


class InconsistentClusterId(KafkaError):
    code, name = 104, "INCONSISTENT_CLUSTER_ID"


class TransactionalIdNotFound(KafkaError):
    code, name = 105, "TRANSACTIONAL_ID_NOT_FOUND"


class FetchSessionTopicIdError(RetriableError):
    code, name = 106, "FETCH_SESSION_TOPIC_ID_ERROR"


class FencedMemberEpoch(KafkaError):
    code, name = 110, "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceId(KafkaError):
    code, name = 111, "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignor(KafkaError):
    code, name = 112, "UNSUPPORTED_ASSIGNOR"


class StaleMemberEpoch(KafkaError):
    code, name = 113, "STALE_MEMBER_EPOCH"


class MismatchedEndpointType(KafkaError):
    code, name = 114, "MISMATCHED_ENDPOINT_TYPE"


class UnsupportedEndpointType(KafkaError):
    code, name = 115, "UNSUPPORTED_ENDPOINT_TYPE"


class UnknownSubscriptionId(KafkaError):
    code, name = 117, "UNKNOWN_SUBSCRIPTION_ID"


class TelemetryTooLarge(KafkaError):
    code, name = 118, "TELEMETRY_TOO_LARGE"


class TransactionAbortable(KafkaError):
    """The producer must abort its transaction, and may then begin another."""

    code, name = 120, "TRANSACTION_ABORTABLE"


class InvalidRegularExpression(KafkaError):
    code, name = 128, "INVALID_REGULAR_EXPRESSION"


def error_for(code: int, message: str) -> KafkaError:
    """Return the error with this code; for an unknown code, an UnknownServerError that names it."""
    cls = KafkaError.by_code.get(code)
    return cls(message) if cls else UnknownServerError(f"error code {code}: {message}")
