"""Classic groups: join, sync, heartbeat, leave (org.apache.kafka.coordinator.group.GroupMetadataManager).

A new generation forms in two phases:

    join    members join and wait. The phase ends when all known members have joined, or after the longest rebalance
            timeout among them. Then members that have not joined are removed (static members stay). A group that was
            empty waits group.initial.rebalance.delay.ms instead, and as long again if a member joined meanwhile, up to
            the rebalance timeout. All members get the new generation; the leader gets all members' metadata.
    sync    members send SyncGroup and wait; the leader's request has all assignments. They are written to the log, and
            sent to the members once they are committed. A member that has not synced within the rebalance timeout is
            removed.

- A member id is `<client id>-<uuid>`, for a static member `<instance id>-<uuid>`. A new dynamic member whose client
  knows KIP-394 first gets only its id (MEMBER_ID_REQUIRED), and joins again with it.
- A member without a heartbeat within its session timeout is removed, unless it waits for the coordinator.
- A returning static member gets a new member id and keeps its place; the old id is fenced. In a stable group this
  starts no rebalance, unless it changes the protocol.
- A refused request raises a KafkaError before anything has changed. Exception, as in Kafka: a join refused with
  GROUP_MAX_SIZE_REACHED because the group has too many members removes the member.

Differs from Kafka: the metadata of a group's members may have at most 16 times message.max.bytes in all, or a join is
refused with GROUP_MAX_SIZE_REACHED. Kafka accepts more, but then cannot write the group: its record, with the metadata
of one protocol, must fit into one message. A group is Stable as soon as the assignment is appended (replayed), not when
it is committed. Members get it at the same time as in Kafka, once it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from typing import NamedTuple
from uuid import UUID

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from sparklog.group.classic_group import ClassicGroup, ClassicMember
from sparklog.group.group import MOST_METADATA, Group, Work
from sparklog.group.rebalance import JOIN, SESSION, ClassicTimer, RebalancePhases, join_response, sync_response
from sparklog.group.requests import (
    NO_MEMBER,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupResponse,
)
from sparklog.group.states import AWAITING_SYNC, DEAD, EMPTY, PREPARING_REBALANCE, STABLE, GroupEvent
from sparklog.offsets_topic.records import CoordinatorRecord, GroupKey, GroupValue

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""Session timeout of a new member during its first join, when it cannot send heartbeats yet."""


class GroupCreation(NamedTuple):
    """Event: the first record of a group is committed, or has failed."""

    group_id: str
    replaced: Group | None
    """The empty consumer group that the group replaced."""


class GroupAssignment(NamedTuple):
    """Event: the assignment of a generation is committed, or has failed."""

    group_id: str
    generation: int


class StaticMemberReplacement(NamedTuple):
    """Event: the new id of a static member is committed, or has failed."""

    group_id: str
    group_instance_id: str
    old_id: str


WriteEvent = GroupCreation | GroupAssignment | StaticMemberReplacement


class ClassicGroups:
    """The classic groups among the groups of one shard.

    Methods for requests return the answer, and write the records, timers and replies to `work`.
    """

    def __init__(self, groups: MutableMapping[str, Group], config: BrokerConfig, new_id: Callable[[], UUID]) -> None:
        self._groups = groups
        self._config = config
        self._new_id = new_id
        self._phases = RebalancePhases(config)

    # Requests

    def join(self, request: JoinGroup, ticket: Hashable, now_ms: int, work: Work) -> JoinGroupResponse | None:
        """Decide a JoinGroup; return None if `ticket` waits until the join phase ends."""
        group = self._find(request.group_id)
        is_new_group = group is None
        if group is None:
            if request.member_id != NO_MEMBER:
                raise UnknownMemberId(f"there is no group {request.group_id!r}")
            group = ClassicGroup(group_id=request.group_id, state_timestamp_ms=now_ms)
        group.check_alive()
        self._check_room(group, request.member_id)
        self._check_metadata(group, request)
        if not group.supports(request.protocol_type, request.protocols):
            raise InconsistentGroupProtocol(
                f"group {group.group_id!r} has no protocol in common with {request.protocol_type!r} "
                f"{', '.join(name for name, _ in request.protocols) or 'without protocols'}"
            )
        if is_new_group:
            work.once_written(GroupCreation(group.group_id, self._groups.get(group.group_id)))
            self._groups[group.group_id] = group
            work.write(_first_record(group))
        if request.member_id == NO_MEMBER:
            response = self._join_new(group, request, ticket, now_ms, work)
        else:
            response = self._join_known(group, request, ticket, now_ms, work)
        if group.state is PREPARING_REBALANCE:
            self._phases.complete_if_all_joined(group, now_ms, work)
        return response

    def sync(self, request: SyncGroup, ticket: Hashable, work: Work) -> SyncGroupResponse | None:
        """Decide a SyncGroup; return None if `ticket` waits for the assignment."""
        group = self._get(request.group_id)
        group.check_alive()
        group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation)
        for asked, chosen in ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol)):
            if asked is not None and asked != chosen:
                raise InconsistentGroupProtocol(f"group {group.group_id!r} has {chosen!r}, not {asked!r}")
        if group.state is PREPARING_REBALANCE:
            raise RebalanceInProgress(f"group {group.group_id!r} is being rebalanced")
        member = group.members[request.member_id]
        self._phases.received_sync(group, member.member_id, work)
        if group.state is STABLE:
            self._phases.restart_session(group, member, work)
            return sync_response(group, member)
        if (abandoned := member.take_sync_ticket()) is not None:
            error = RebalanceInProgress(f"member {member.member_id!r} has asked again")
            work.reply(abandoned, SyncGroupResponse(error=error))
        member.wait_to_sync(ticket)
        if group.leader == member.member_id:
            work.write(group.snapshot(request.assignments))
            work.once_written(GroupAssignment(group.group_id, group.generation))
        return None

    def heartbeat(self, request: Heartbeat, work: Work) -> HeartbeatResponse:
        """Answer a member's heartbeat: RebalanceInProgress in the answer if it must join again.

        Raises InvalidGroupId, CoordinatorNotAvailable, UnknownMemberId, FencedInstanceId or IllegalGeneration.
        """
        group = self._get(request.group_id)
        group.check_alive()
        group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation)
        self._phases.restart_session(group, group.members[request.member_id], work)
        if group.state is PREPARING_REBALANCE:
            return HeartbeatResponse(error=RebalanceInProgress(f"group {group.group_id!r} is being rebalanced"))
        return HeartbeatResponse()

    def leave(self, request: LeaveGroup, now_ms: int, work: Work) -> LeaveGroupResponse:
        """Remove members, and start or continue a rebalance of the others. Each member has an error of its own.

        Raises InvalidGroupId, UnknownMemberId if there is no such group, or CoordinatorNotAvailable if it is dead.
        """
        group = self._get(request.group_id)
        group.check_alive()
        left: list[LeftMember] = []
        for leaving in request.members:
            error: KafkaError | None = None
            try:
                self._leave(group, leaving, work)
            except KafkaError as refused:
                error = refused
            left.append(
                LeftMember(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id, error=error)
            )
        if any(each.error is None for each in left):
            reasons = ", ".join(leaving.reason or "unknown" for leaving in request.members)
            self._phases.membership_changed(group, f"members left: {reasons}", now_ms, work)
        return LeaveGroupResponse(members=left)

    def committed_by(self, group: ClassicGroup, member_id: str, work: Work) -> None:
        """Restart the session of a member that has committed offsets."""
        if member := group.members.get(member_id):
            self._phases.restart_session(group, member, work)

    # Joining

    def check_join(self, request: JoinGroup) -> None:
        """Check a JoinGroup, for groups of both protocols. Raises InvalidGroupId or InvalidSessionTimeout."""
        if not request.group_id:
            raise InvalidGroupId("the group id is empty")
        low, high = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(f"session timeout of {request.session_timeout_ms} ms: from {low} to {high}")

    def _check_room(self, group: ClassicGroup, member_id: str) -> None:
        limit = self._config.group_max_size
        if group.state is EMPTY:
            return
        if group.state is PREPARING_REBALANCE:
            member = group.members.get(member_id)
            waits = member is not None and member.join_ticket is not None
            has_place = waits or len(group.members) < limit or group.awaiting_join < limit
        else:
            has_place = member_id in group.members or len(group.members) < limit
        if not has_place:
            group.remove(member_id)
            raise GroupMaxSizeReached(f"group {group.group_id!r} has {limit} members already")

    def _check_metadata(self, group: ClassicGroup, request: JoinGroup) -> None:
        """Raise GroupMaxSizeReached if the members' metadata would exceed MOST_METADATA messages."""
        most = MOST_METADATA * self._config.topic_defaults.max_message_bytes
        member_id = group.static_members.get(request.group_instance_id or "", request.member_id)
        if group.metadata_bytes_with(member_id, request.protocols) > most:
            raise GroupMaxSizeReached(
                f"the members of group {group.group_id!r} have more than {most} bytes of metadata"
            )

    def _join_new(
        self, group: ClassicGroup, request: JoinGroup, ticket: Hashable, now_ms: int, work: Work
    ) -> JoinGroupResponse | None:
        instance_id = request.group_instance_id
        member_id = f"{request.client_id if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None:
            if instance_id in group.static_members:
                return self._replace_static(group, request, member_id, ticket, now_ms, work)
        elif request.requires_known_member_id:
            group.pending_joins.add(member_id)
            work.set_timer(ClassicTimer(SESSION, group.group_id, member_id), request.session_timeout_ms)
            error = MemberIdRequired("join again with the member id of this answer")
            return JoinGroupResponse(error=error, member_id=member_id)
        self._add(group, request, member_id, ticket, now_ms, work)
        return None

    def _join_known(
        self, group: ClassicGroup, request: JoinGroup, ticket: Hashable, now_ms: int, work: Work
    ) -> JoinGroupResponse | None:
        member_id = request.member_id
        if member_id in group.pending_joins and request.group_instance_id is None:
            self._add(group, request, member_id, ticket, now_ms, work)
            return None
        group.check_member(member_id, request.group_instance_id)
        member = group.members[member_id]
        is_unchanged = list(member.protocols) == list(request.protocols)
        is_leader = group.leader == member_id
        if is_unchanged and (group.state is AWAITING_SYNC or (group.state is STABLE and not is_leader)):
            return join_response(group, member)  # the answer was lost, and the client repeats its join
        self._update(group, member, request, ticket, work)
        self._phases.rebalance_or_complete(group, f"member {member_id} joins again", now_ms, work)
        return None

    def _add(
        self, group: ClassicGroup, request: JoinGroup, member_id: str, ticket: Hashable, now_ms: int, work: Work
    ) -> None:
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=tuple(request.protocols),
            join_ticket=ticket,
            is_new=True,
        )
        if not group.members:
            group.begin_with(request.protocol_type)
        group.note_new_member()
        group.add(member)
        work.set_timer(ClassicTimer(SESSION, group.group_id, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._phases.rebalance_or_complete(group, f"member {member_id} joins: {request.reason or 'new'}", now_ms, work)

    def _update(
        self, group: ClassicGroup, member: ClassicMember, request: JoinGroup, ticket: Hashable | None, work: Work
    ) -> None:
        if (abandoned := member.take_join_ticket()) is not None:
            error = UnknownMemberId(f"member {member.member_id!r} has joined again")
            work.reply(abandoned, JoinGroupResponse(error=error, member_id=member.member_id))
        group.set_protocols(member, request.protocols)
        member.set_timeouts(session_ms=request.session_timeout_ms, rebalance_ms=request.rebalance_timeout_ms)
        member.wait_to_join(ticket)

    def _replace_static(
        self, group: ClassicGroup, request: JoinGroup, new_id: str, ticket: Hashable, now_ms: int, work: Work
    ) -> JoinGroupResponse | None:
        instance_id = request.group_instance_id or ""
        old_id, old_leader = group.static_members[instance_id], group.leader
        self._phases.fence(group.members[old_id], instance_id, work)
        work.cancel_timer(ClassicTimer(SESSION, group.group_id, old_id))
        member = group.replace_static(instance_id, new_id)
        self._phases.restart_session(group, member, work)
        self._update(group, member, request, None, work)
        if group.state is not STABLE or group.choose_protocol() != group.protocol:
            member.wait_to_join(ticket)
            self._phases.rebalance_or_complete(group, f"static member {instance_id} came back", now_ms, work)
            return None
        work.write(group.snapshot())
        work.once_written(StaticMemberReplacement(group.group_id, instance_id, old_id))
        if request.supports_skipping_assignment:
            return join_response(group, member, skip_assignment=group.leader == new_id)
        # The answer names the leader's old id, so that the returning member does not assign anew as the leader.
        return join_response(group, member, leader=old_leader or "", with_members=False)

    # Leaving

    def _leave(self, group: ClassicGroup, leaving: LeavingMember, work: Work) -> None:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if member_id == NO_MEMBER and instance_id is not None:
            member_id = group.static_members.get(instance_id, NO_MEMBER)
        if member_id not in group.pending_joins:
            group.check_member(member_id, instance_id)
        self._phases.remove(group, member_id, work)

    # The log and the timers

    def replay(self, key: GroupKey, value: GroupValue | None) -> None:
        """Apply the record of a group; None: the group was deleted."""
        group = self._find(key.group_id)
        if value is None:
            if group is not None:
                group.move(GroupEvent.DELETED, group.state_timestamp_ms)
                del self._groups[key.group_id]
            return
        if group is None:
            group = ClassicGroup(group_id=key.group_id)
            self._groups[key.group_id] = group
        group.restore(value)

    def loaded(self, group: ClassicGroup, now_ms: int, work: Work) -> None:
        """Start the sessions of a group's members, after the whole log is replayed.

        A group that is not Stable has begun a rebalance since, by the request of a member.
        """
        for member in group.members.values():
            if not member.is_new:  # or its session has begun with its first join
                self._phases.restart_session(group, member, work)
        if group.state is not STABLE:
            return
        if group.leader is None:
            self._phases.rebalance(group, "it has become a classic group", now_ms, work)
        elif len(group.members) > self._config.group_max_size:
            self._phases.rebalance(group, "it has more than group.max.size members", now_ms, work)

    def begin_after_downgrade(
        self, group_id: str, protocols: Mapping[str, Sequence[tuple[str, bytes]]], now_ms: int, work: Work
    ) -> None:
        """Rebalance a group that was downgraded from the consumer protocol: its members join the next generation."""
        group = self._find(group_id)
        if group is None or group.state is not STABLE:
            return
        for member in group.members.values():
            group.set_protocols(member, protocols.get(member.member_id, member.protocols))
            self._phases.restart_session(group, member, work)
        self._phases.rebalance(group, "it has become a classic group", now_ms, work)

    def timer_fired(self, timer: ClassicTimer, now_ms: int, work: Work) -> None:
        """Handle a timer of a group; do nothing if the group is gone."""
        group = self._find(timer.group_id)
        if group is None or group.state is DEAD:
            return
        if timer.what == SESSION:
            self._phases.session_timer_fired(group, timer.member_id, now_ms, work)
        elif timer.what == JOIN:
            self._phases.join_timer_fired(group, now_ms, work)
        else:
            self._phases.sync_timer_fired(group, now_ms, work)

    def written(self, event: WriteEvent, error: KafkaError | None, now_ms: int, work: Work) -> None:
        """Answer the members that wait for the assignment; after a failed write, undo the change.

        error: of the write; None: the records are committed
        """
        group = self._find(event.group_id)
        if group is None:
            return
        match event:
            case GroupAssignment(_, generation) if generation == group.generation and group.state is not EMPTY:
                if error is None:
                    self._phases.send_assignments(group, work)
                elif group.state in (AWAITING_SYNC, STABLE):
                    self._phases.refuse_syncs(group, error, work)
                    self._phases.rebalance(group, f"the assignment could not be written: {error}", now_ms, work)
            case StaticMemberReplacement(_, instance_id, old_id) if error is not None:
                if instance_id in group.static_members:
                    work.cancel_timer(ClassicTimer(SESSION, group.group_id, group.static_members[instance_id]))
                    self._phases.restart_session(group, group.replace_static(instance_id, old_id), work)
            case GroupCreation(_, replaced) if error is not None:
                for member_id in [*group.members, *group.pending_joins]:
                    self._phases.remove(group, member_id, work)
                work.cancel_timer(ClassicTimer(JOIN, group.group_id))
                del self._groups[group.group_id]
                if replaced is not None:
                    self._groups[group.group_id] = replaced

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _get(self, group_id: str) -> ClassicGroup:
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        group = self._find(group_id)
        if group is None:
            raise UnknownMemberId(f"there is no group {group_id!r}")
        return group


def _first_record(group: ClassicGroup) -> CoordinatorRecord:
    """Return the record that creates a group, without members or a protocol."""
    value = GroupValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp_ms=group.state_timestamp_ms,
        members=(),
    )
    return CoordinatorRecord(GroupKey(group_id=group.group_id), value)
