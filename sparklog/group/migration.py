"""Online migration of a group between the classic and the consumer protocol (KIP-848).

Upgrade, with the first member of the consumer protocol: if group.consumer.migration.policy is bidirectional or upgrade,
the members of the classic group are consumers, and their subscriptions and assignments can be read. The generation
becomes the group epoch. Every member keeps its assignment, which is also its target. Members that wait for the end of a
rebalance get REBALANCE_IN_PROGRESS, and join again.

Downgrade, after the last member of the consumer protocol has left, or a classic member of the same instance id has
replaced it: if the policy is bidirectional or downgrade. The epoch becomes the generation. Every member is assigned the
partitions that it holds, and a rebalance starts at once; the record has no leader, so that a coordinator that loads it
starts the rebalance too (Kafka's does not: partitions of members that have left would stay without an owner). Kafka
assigns the member's target instead: if the group is upgraded again before the rebalance, another member may get
partitions that the member still holds.

Both write one batch of records: tombstones of the old group, and the records of the new one.

Differs from Kafka: user data in an assignment prevents an upgrade only if the assignor is not one that all clients
have. librdkafka's sticky assignors write user data that no client reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sparklog.base.config import BrokerConfig
from sparklog.base.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    read_assignment,
    read_subscription,
    write_assignment,
)
from sparklog.base.errors import GroupIdNotFound, RebalanceInProgress
from sparklog.base.ids import TopicPartition
from sparklog.group.classic_group import ClassicGroup, ClassicMember
from sparklog.group.consumer_group import ConsumerGroup, GroupEdit
from sparklog.group.consumer_heartbeat import ConsumerHeartbeats, SessionTimer, timers_of
from sparklog.group.consumer_member import ConsumerMember, group_by_topic, to_target_value
from sparklog.group.group import Work
from sparklog.group.rebalance import JOIN, SESSION, SYNC, ClassicTimer
from sparklog.group.requests import JoinGroupResponse, SyncGroupResponse
from sparklog.offsets_topic.records import (
    ClassicMemberMetadata,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    CoordinatorRecord,
    CurrentAssignmentKey,
    GroupKey,
    GroupValue,
    MemberMetadata,
    SupportedProtocol,
    TargetAssignmentKey,
    TargetEpochKey,
    TargetEpochValue,
)

KNOWN_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Assignors of Kafka's clients, whose user data is not needed when the coordinator assigns."""
Protocols = Sequence[tuple[str, bytes]]


class GroupDowngrade(NamedTuple):
    """Event: the records of a downgrade are committed, or have failed."""

    group_id: str
    protocols: Mapping[str, Protocols]
    """The protocols of each member's join, by member id."""


# Upgrade


def check_upgrade(group: ClassicGroup, config: BrokerConfig) -> None:
    """Raise GroupIdNotFound, as Kafka does, if the group must not be upgraded."""
    reason = None
    if config.group_consumer_migration_policy not in ("bidirectional", "upgrade"):
        reason = "online upgrade is disabled"
    elif group.protocol_type != PROTOCOL_TYPE:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > config.group_consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise GroupIdNotFound(f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.")


def upgrade(group: ClassicGroup, edit: GroupEdit, heartbeats: ConsumerHeartbeats) -> None:
    """Write the classic group as a consumer group. Raises GroupIdNotFound if its data cannot be read."""
    members = [_upgraded(group, member, heartbeats) for member in group.members.values()]
    group_id, work = group.group_id, edit.draft
    work.write(*group.tombstones())
    _release(group, work)
    for member in members:
        edit.write(ConsumerMemberKey(group_id=group_id, member_id=member.member_id), member.to_member_value())
    value = ConsumerGroupValue(epoch=group.generation, metadata_hash=edit.group.hash_topics())
    edit.write(ConsumerGroupKey(group_id=group_id), value)
    for member in members:
        target = {topic: frozenset(numbers) for topic, numbers in group_by_topic(member.assigned).items()}
        edit.write(TargetAssignmentKey(group_id=group_id, member_id=member.member_id), to_target_value(target))
    edit.write(TargetEpochKey(group_id=group_id), TargetEpochValue(assignment_epoch=group.generation))
    for member in members:
        edit.write(CurrentAssignmentKey(group_id=group_id, member_id=member.member_id), member.to_current_value())
        if member.classic is not None:
            work.set_timer(SessionTimer(group_id, member.member_id), member.classic.session_timeout_ms)


def _upgraded(group: ClassicGroup, member: ClassicMember, heartbeats: ConsumerHeartbeats) -> ConsumerMember:
    try:
        subscription = read_subscription(member.metadata_for(group.protocol) or member.protocols[0][1])
        assignment = read_assignment(member.assignment)
    except (ValueError, IndexError) as error:
        raise GroupIdNotFound(
            f"Cannot upgrade classic group {group.group_id} to consumer group because the embedded consumer protocol "
            f"is malformed: {error}"
        ) from error
    if assignment.user_data and group.protocol not in KNOWN_ASSIGNORS:
        raise GroupIdNotFound(
            f"Cannot upgrade classic group {group.group_id} to consumer group because an unsupported custom assignor "
            "is in use."
        )
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack or None,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
        member_epoch=group.generation,
        previous_member_epoch=group.generation,
        assigned=dict.fromkeys(heartbeats.ids_of(assignment.partitions), group.generation),
    )


def classic_metadata(session_timeout_ms: int, protocols: Protocols) -> ClassicMemberMetadata:
    """Return the part of a classic member's join that a ConsumerMember record keeps."""
    supported = tuple(SupportedProtocol(name=name, metadata=metadata) for name, metadata in protocols)
    return ClassicMemberMetadata(session_timeout_ms=session_timeout_ms, supported_protocols=supported)


def _release(group: ClassicGroup, work: Work) -> None:
    """Answer all waiting requests of the classic group, and cancel its timers."""
    error = RebalanceInProgress(f"group {group.group_id!r} is being rebalanced")
    for member in group.members.values():
        if member.join_ticket is not None:
            work.reply(member.join_ticket, JoinGroupResponse(error=error, member_id=member.member_id))
        if member.sync_ticket is not None:
            work.reply(member.sync_ticket, SyncGroupResponse(error=error))
    for member_id in (*group.members, *group.pending_joins):
        work.cancel_timer(ClassicTimer(SESSION, group.group_id, member_id))
    for what in (JOIN, SYNC):
        work.cancel_timer(ClassicTimer(what, group.group_id))


# Downgrade


def can_downgrade(group: ConsumerGroup, leaving: Collection[str], config: BrokerConfig) -> bool:
    """Return whether the group must become a classic group when these members leave."""
    staying = [member for member_id, member in group.members.items() if member_id not in leaving]
    return (
        bool(staying)
        and all(member.classic is not None for member in staying)
        and config.group_consumer_migration_policy in ("bidirectional", "downgrade")
        and len(staying) <= config.group_max_size
    )


def downgrade(
    group: ConsumerGroup, leaving: Collection[str], heartbeats: ConsumerHeartbeats, now_ms: int, work: Work
) -> None:
    """Write the group as a classic group of the members that stay."""
    staying = {member_id: member for member_id, member in group.members.items() if member_id not in leaving}
    protocols = {member_id: protocols_of(member) for member_id, member in staying.items()}
    protocol = _choose_protocol(list(protocols.values()))
    work.write(*group.tombstones())
    value = GroupValue(
        protocol_type=PROTOCOL_TYPE,
        generation=group.epoch,
        protocol=protocol,
        leader=None,
        current_state_timestamp_ms=now_ms,
        members=[
            _downgraded(
                member,
                dict(protocols[member_id])[protocol],
                heartbeats.names_of({**member.assigned, **member.revoking}),
            )
            for member_id, member in staying.items()
        ],
    )
    work.write(CoordinatorRecord(GroupKey(group_id=group.group_id), value))
    for member_id in group.members:
        for timer in timers_of(group.group_id, member_id):
            work.cancel_timer(timer)
    work.once_written(GroupDowngrade(group.group_id, protocols))


def protocols_of(member: ConsumerMember) -> Protocols:
    """Return the protocols in a classic member's join."""
    supported = member.classic.supported_protocols if member.classic else ()
    return tuple((each.name, each.metadata) for each in supported)


def _choose_protocol(offers: Sequence[Protocols]) -> str:
    """Return the protocol that most members prefer, of those that all support. The checks of joins ensure one."""
    common = set.intersection(*({name for name, _ in offer} for offer in offers))
    votes = Counter(next(name for name, _ in offer if name in common) for offer in offers)
    return max(votes, key=lambda name: votes[name])


def _downgraded(member: ConsumerMember, subscription: bytes, held: Sequence[TopicPartition]) -> MemberMetadata:
    assert member.classic is not None
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        subscription=subscription,
        assignment=write_assignment(Assignment(partitions=held)),
    )
