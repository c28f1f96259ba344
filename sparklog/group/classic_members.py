"""Members of the classic protocol in a consumer group, while the group is being migrated (KIP-848).

The coordinator assigns, so no member waits for another. JoinGroup acts as a heartbeat with a subscription, and is
answered at once, with the member's epoch as the generation; there is no leader. SyncGroup returns the member's
assignment. Heartbeat asks the member to join again, if one of these is true:

    - there is a newer target than the member's, or there will be one when it joins
    - the member has partitions to give up; its next join confirms that it has given them up
    - partitions that it waits for are free

A member that has to join again must do so within its rebalance timeout, and must sync within the same time after the
join. Otherwise it is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from msgspec.structs import replace

from sparklog.base.config import BrokerConfig
from sparklog.base.consumer_protocol import PROTOCOL_TYPE, Assignment, Subscription, read_subscription, write_assignment
from sparklog.base.errors import (
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from sparklog.group.consumer_group import ConsumerGroup, GroupEdit
from sparklog.group.consumer_heartbeat import ConsumerHeartbeats, RejoinTimer, RevocationTimer, SessionTimer, SyncTimer
from sparklog.group.consumer_member import ConsumerMember, MemberState, flatten
from sparklog.group.group import Work
from sparklog.group.migration import classic_metadata, protocols_of
from sparklog.group.requests import (
    NO_MEMBER,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupResponse,
)
from sparklog.group.topic_pattern import TopicMatches


class ClassicMembers:
    """Decides classic requests to consumer groups that have members. A refused request raises KafkaError."""

    def __init__(self, heartbeats: ConsumerHeartbeats, config: BrokerConfig, new_id: Callable[[], UUID]) -> None:
        self._heartbeats = heartbeats
        self._config = config
        self._new_id = new_id

    def join(self, edit: GroupEdit, request: JoinGroup, now_ms: int, matches: TopicMatches) -> JoinGroupResponse:
        """Handle the join as a heartbeat with a subscription, and answer at once."""
        group, is_new = edit.group, request.member_id == NO_MEMBER
        self._check_join(group, request)
        subscription = _subscription(request)
        member_id = (
            f"{request.group_instance_id or request.client_id}-{self._new_id()}" if is_new else request.member_id
        )
        if is_new and request.group_instance_id is None and request.requires_known_member_id:
            error = MemberIdRequired("join again with the member id of this answer")
            return JoinGroupResponse(error=error, member_id=member_id)
        before = self._find_or_create(edit, request, member_id)
        member = replace(
            before,
            instance_id=request.group_instance_id or before.instance_id,
            rack_id=subscription.rack or before.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            subscribed_topic_names=frozenset(subscription.topics),
            subscribed_topic_regex="",
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            classic=classic_metadata(request.session_timeout_ms, request.protocols),
        )
        changed = self._heartbeats.update_member(edit, before, member, now_ms, matches)
        self._heartbeats.update_target(edit, now_ms)
        owned = self._heartbeats.ids_of(subscription.owned)
        member = self._heartbeats.reconcile(edit, member_id, owned, subscription_changed=changed)
        work = edit.draft
        work.cancel_timer(RevocationTimer(group.group_id, member_id))
        work.cancel_timer(RejoinTimer(group.group_id, member_id))
        group.rejoining.discard(member_id)
        work.set_timer(SessionTimer(group.group_id, member_id), request.session_timeout_ms)
        work.set_timer(SyncTimer(group.group_id, member_id), request.rebalance_timeout_ms)
        return JoinGroupResponse(
            member_id=member_id,
            generation=member.member_epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol=request.protocols[0][0],
        )

    def sync(self, group: ConsumerGroup, request: SyncGroup, now_ms: int, work: Work) -> SyncGroupResponse:
        """Answer with the member's assignment, or RebalanceInProgress if it must join again."""
        member = self._find(group, request.member_id, request.group_instance_id, request.generation)
        protocol = protocols_of(member)[0][0]
        for asked, known in ((request.protocol_type, PROTOCOL_TYPE), (request.protocol, protocol)):
            if asked is not None and asked != known:
                raise InconsistentGroupProtocol(f"member {member.member_id!r} joined with {known!r}, not {asked!r}")
        if self._is_behind(group, member, now_ms) and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await_join(group, member, work)
            return SyncGroupResponse(
                error=RebalanceInProgress(f"group {group.group_id!r} is in epoch {group.epoch} by now")
            )
        work.cancel_timer(SyncTimer(group.group_id, member.member_id))
        self._restart_session(group, member, work)
        assignment = Assignment(partitions=self._heartbeats.names_of(member.assigned))
        return SyncGroupResponse(
            protocol_type=PROTOCOL_TYPE, protocol=protocol, assignment=write_assignment(assignment)
        )

    def heartbeat(self, group: ConsumerGroup, request: Heartbeat, now_ms: int, work: Work) -> HeartbeatResponse:
        """Answer a heartbeat: RebalanceInProgress in the answer if the member must join again."""
        member = self._find(group, request.member_id, request.group_instance_id, request.generation)
        self._restart_session(group, member, work)
        if (
            self._is_behind(group, member, now_ms)
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not _is_waiting(group, member))
        ):
            self._await_join(group, member, work)
            return HeartbeatResponse(error=RebalanceInProgress(f"member {member.member_id!r} has to join again"))
        return HeartbeatResponse()

    @staticmethod
    def find_leaving(group: ConsumerGroup, request: LeaveGroup) -> tuple[list[LeftMember], list[str]]:
        """Return the answer for each member of the request, and the ids of the members that leave."""
        left: list[LeftMember] = []
        leaving: list[str] = []
        for each in request.members:
            error: KafkaError | None = None
            try:
                leaving.append(_leaving(group, each).member_id)
            except KafkaError as refused:
                error = refused
            left.append(LeftMember(member_id=each.member_id, group_instance_id=each.group_instance_id, error=error))
        return left, leaving

    def _check_join(self, group: ConsumerGroup, request: JoinGroup) -> None:
        if len(group.members) >= self._config.group_consumer_max_size and request.member_id not in group.members:
            raise GroupMaxSizeReached(f"group {group.group_id!r} has {len(group.members)} members")
        classic = [
            member for member in group.members.values() if member.classic and member.member_id != request.member_id
        ]
        common = {name for name, _ in request.protocols}.intersection(
            *({name for name, _ in protocols_of(member)} for member in classic)
        )
        if request.protocol_type != PROTOCOL_TYPE or not common:
            raise InconsistentGroupProtocol(
                f"group {group.group_id!r} has no protocol in common with {request.protocol_type!r} "
                f"{', '.join(name for name, _ in request.protocols) or 'without protocols'}"
            )

    def _find_or_create(self, edit: GroupEdit, request: JoinGroup, member_id: str) -> ConsumerMember:
        group, instance_id = edit.group, request.group_instance_id
        if instance_id is not None:
            if request.member_id != NO_MEMBER:
                return group.check_instance(instance_id, member_id)
            existing = group.get_static(instance_id)
            if existing is not None:
                return self._heartbeats.replace_static(edit, existing, member_id)
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)

    @staticmethod
    def _find(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
        member = _classic(group.get(member_id) if instance_id is None else group.check_instance(instance_id, member_id))
        if generation != member.member_epoch:
            raise IllegalGeneration(f"member {member_id!r} is in generation {member.member_epoch}, not {generation}")
        return member

    def _is_behind(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> bool:
        """Return whether there is a newer target for the member, or there will be one when it joins again."""
        return member.member_epoch < group.target_epoch or self._heartbeats.is_assignment_due(group, now_ms)

    @staticmethod
    def _restart_session(group: ConsumerGroup, member: ConsumerMember, work: Work) -> None:
        if member.classic is not None:
            work.set_timer(SessionTimer(group.group_id, member.member_id), member.classic.session_timeout_ms)

    @staticmethod
    def _await_join(group: ConsumerGroup, member: ConsumerMember, work: Work) -> None:
        if member.member_id not in group.rejoining:
            group.rejoining.add(member.member_id)
            work.set_timer(RejoinTimer(group.group_id, member.member_id), member.rebalance_timeout_ms)


def _subscription(request: JoinGroup) -> Subscription:
    """Return the subscription in the member's preferred protocol; the others would be for a leader's choice."""
    try:
        return read_subscription(request.protocols[0][1])
    except ValueError as error:
        raise InconsistentGroupProtocol(f"the member's subscription cannot be read: {error}") from error


def _is_waiting(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether a partition of the member's target still belongs to another member."""
    target = flatten(group.target.get(member.member_id, {}))
    return any(partition not in member.assigned and group.is_assigned(partition) for partition in target)


def _leaving(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
    """Return the leaving classic member. Raises UnknownMemberId for consumer members: they leave by heartbeat."""
    if leaving.group_instance_id is None:
        member = group.get(leaving.member_id)
    elif leaving.member_id != NO_MEMBER:
        member = group.check_instance(leaving.group_instance_id, leaving.member_id)
    else:
        found = group.get_static(leaving.group_instance_id)
        if found is None:
            raise UnknownMemberId(f"instance id {leaving.group_instance_id!r} is unknown in group {group.group_id!r}")
        member = found
    return _classic(member)


def _classic(member: ConsumerMember) -> ConsumerMember:
    if member.classic is None:
        raise UnknownMemberId(f"member {member.member_id!r} does not use the classic protocol")
    return member
