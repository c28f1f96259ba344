"""Requests to a group coordinator and its responses, as plain values; the Kafka and gRPC listeners translate them.

Each class is the request or response of the Kafka API of its name, for all versions: a field that a version lacks has
its default. The error of a whole group is in `error`; if a request names several groups, members or partitions, each
has an error of its own. `refused` returns the response to a request that is refused as a whole. Times are in
milliseconds; an absent offset, epoch or generation is -1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct, field

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.coordinator.transaction_messages import PROTOCOL_1, TransactionProtocol

NO_GENERATION = -1
NO_MEMBER = ""


class JoinGroup(Struct, frozen=True, kw_only=True):
    """Key 11. Answered when all members have joined."""

    group_id: str
    member_id: str = NO_MEMBER
    """Empty for a new member, which gets its id from the coordinator."""
    group_instance_id: str | None = None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    """Names of assignors, with the member's metadata for each; the preferred one comes first."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    requires_known_member_id: bool = True
    """Whether a new member first gets only its id, and joins again with it (KIP-394): from version 4 on."""
    supports_skipping_assignment: bool = True
    """Whether a returning static leader understands `skip_assignment`: from version 9 on."""
    reason: str = ""

    def refused(self, error: KafkaError) -> JoinGroupResponse:
        return JoinGroupResponse(error=error, member_id=self.member_id)


class JoinedMember(Struct, frozen=True, kw_only=True):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = NO_MEMBER
    members: Sequence[JoinedMember] = ()
    """All members in the leader's response, empty in the others'."""


class SyncGroup(Struct, frozen=True, kw_only=True):
    """Key 14. Answered when the leader has sent the assignment."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    """Assignments by member id in the leader's request, empty in the others'."""

    def refused(self, error: KafkaError) -> SyncGroupResponse:
        return SyncGroupResponse(error=error)


class SyncGroupResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Heartbeat(Struct, frozen=True, kw_only=True):
    """Key 12."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None

    def refused(self, error: KafkaError) -> HeartbeatResponse:
        return HeartbeatResponse(error=error)


class HeartbeatResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None


class LeavingMember(Struct, frozen=True, kw_only=True):
    """A member to remove, named by its member id, or by its instance id with an empty member id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str = ""


class LeaveGroup(Struct, frozen=True, kw_only=True):
    """Key 13."""

    group_id: str
    members: Sequence[LeavingMember]

    def refused(self, error: KafkaError) -> LeaveGroupResponse:
        return LeaveGroupResponse(error=error)


class LeftMember(Struct, frozen=True, kw_only=True):
    member_id: str
    group_instance_id: str | None
    error: KafkaError | None = None


class LeaveGroupResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None
    members: Sequence[LeftMember] = ()


class OffsetToCommit(Struct, frozen=True, kw_only=True):
    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int | None = None
    """Time of the commit; None: now. Only version 1 has this field, which is not served."""
    topic_id: UUID | None = None
    """Id of the topic that was read; None: the topic that has the name now."""


class OffsetCommit(Struct, frozen=True, kw_only=True):
    """Key 8. A simple consumer has generation -1 and an empty member id; its membership is not checked."""

    group_id: str
    generation_or_epoch: int = NO_GENERATION
    member_id: str = NO_MEMBER
    group_instance_id: str | None = None
    retention_ms: int | None = None
    """Retention of the offsets, instead of offsets.retention.minutes: versions 2 to 4 only."""
    tells_missing_groups: bool = False
    """Whether a member of a missing group gets GROUP_ID_NOT_FOUND: from version 9 on. Older versions get
    ILLEGAL_GENERATION."""
    offsets: Sequence[OffsetToCommit]

    @property
    def names_member(self) -> bool:
        """Whether the request names a member or a generation; a simple consumer's names none."""
        return self.generation_or_epoch >= 0 or self.member_id != NO_MEMBER or self.group_instance_id is not None

    def refused(self, error: KafkaError) -> OffsetCommitResponse:
        return OffsetCommitResponse(errors={asked.partition: error for asked in self.offsets})


class OffsetCommitResponse(Struct, frozen=True, kw_only=True):
    """Error of each partition of the request; None: committed."""

    errors: Mapping[TopicPartition, KafkaError | None]


class TxnOffsetCommit(OffsetCommit, frozen=True, kw_only=True):
    """Key 28: a commit in a transaction, which takes effect once the transaction is committed (KIP-98, KIP-447).

    Clients before version 3 send neither generation nor member id, also in a group with members.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    protocol: TransactionProtocol = PROTOCOL_1


class OffsetFetch(Struct, frozen=True, kw_only=True):
    """Key 9, for one group."""

    group_id: str
    partitions: Sequence[TopicPartition] | None = None
    """Partitions to return; None: all for which the group has committed offsets."""
    member_id: str | None = None
    member_epoch: int = -1
    """Epoch of the member, checked in groups of the new protocol; -1: not checked."""
    require_stable: bool = False
    """Whether a partition whose offset may still change gets UNSTABLE_OFFSET_COMMIT (KIP-447): an open transaction has
    committed an offset for it, or a change is not committed in the log yet."""

    def refused(self, error: KafkaError) -> OffsetFetchResponse:
        return OffsetFetchResponse(error=error)


class CommittedOffset(Struct, frozen=True, kw_only=True):
    """Committed offset of one partition; `offset` is -1 if nothing is committed."""

    partition: TopicPartition
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    topic_id: UUID | None = None
    error: KafkaError | None = None


class OffsetFetchResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None
    offsets: Sequence[CommittedOffset] = ()


class OffsetDelete(Struct, frozen=True, kw_only=True):
    """Key 47. Offsets of topics that a member is subscribed to are not deleted (GROUP_SUBSCRIBED_TO_TOPIC)."""

    group_id: str
    partitions: Sequence[TopicPartition]

    def refused(self, error: KafkaError) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(error=error)


class OffsetDeleteResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None
    errors: Mapping[TopicPartition, KafkaError | None] = field(default_factory=dict)


class ListGroups(Struct, frozen=True, kw_only=True):
    """Key 16. States and types to list, compared without regard to case; empty: all."""

    states: Sequence[str] = ()
    types: Sequence[str] = ()


class ListedGroup(Struct, frozen=True, kw_only=True):
    group_id: str
    protocol_type: str
    state: str
    """Kafka's name: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead; Assigning, Reconciling."""
    type: str
    """classic or consumer."""


class ListGroupsResponse(Struct, frozen=True, kw_only=True):
    """The groups that are loaded; `error` is set if others are still being loaded."""

    error: KafkaError | None = None
    groups: Sequence[ListedGroup] = ()


class DescribeGroups(Struct, frozen=True, kw_only=True):
    """Key 15: groups of the classic protocol."""

    group_ids: Sequence[str]

    def refused(self, error: KafkaError) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=group_id, error=error, state="") for group_id in self.group_ids]
        )


class DescribedMember(Struct, frozen=True, kw_only=True):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(Struct, frozen=True, kw_only=True):
    """One group. A group that does not exist has the error GROUP_ID_NOT_FOUND and the state Dead."""

    group_id: str
    error: KafkaError | None = None
    state: str = "Dead"
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[DescribedMember] = ()


class DescribeGroupsResponse(Struct, frozen=True, kw_only=True):
    groups: Sequence[DescribedGroup]


class DeleteGroups(Struct, frozen=True, kw_only=True):
    """Key 42. A group with members is not deleted (NON_EMPTY_GROUP)."""

    group_ids: Sequence[str]

    def refused(self, error: KafkaError) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(errors=dict.fromkeys(self.group_ids, error))


class DeleteGroupsResponse(Struct, frozen=True, kw_only=True):
    errors: Mapping[str, KafkaError | None]


class ConsumerGroupHeartbeat(Struct, frozen=True, kw_only=True):
    """Key 68 (KIP-848). A field that is None is unchanged since the member's last heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    """0: the member joins; -1: it leaves; -2: a static member leaves temporarily."""
    client_id: str
    client_host: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: Sequence[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned_partitions: Sequence[TopicPartition] | None = None
    may_describe: Callable[[str], bool] | None = None
    """Returns whether the member may see a topic that its regular expression matches; None: it may see all."""

    def refused(self, error: KafkaError) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(error=error)


class ConsumerGroupHeartbeatResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Sequence[TopicPartition] | None = None
    """The member's partitions; None: unchanged since the last response."""


class ConsumerGroupDescribe(Struct, frozen=True, kw_only=True):
    """Key 69: groups of the new protocol."""

    group_ids: Sequence[str]

    def refused(self, error: KafkaError) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(
            groups=[DescribedConsumerGroup(group_id=group_id, error=error, state="") for group_id in self.group_ids]
        )


class DescribedConsumer(Struct, frozen=True, kw_only=True):
    member_id: str
    group_instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    assignment: Sequence[TopicPartition]
    target_assignment: Sequence[TopicPartition]
    is_classic: bool = False
    """Whether the member uses the classic protocol, in a group that is being migrated."""


class DescribedConsumerGroup(Struct, frozen=True, kw_only=True):
    group_id: str
    error: KafkaError | None = None
    state: str = "Dead"
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Sequence[DescribedConsumer] = ()


class ConsumerGroupDescribeResponse(Struct, frozen=True, kw_only=True):
    groups: Sequence[DescribedConsumerGroup]
